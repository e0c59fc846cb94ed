"""What properties and headers a message has, as other tools read them too."""

import uuid
from typing import Any

import pika
import pytest
from msgspec.structs import asdict

from queuey_rabbitmq import codec
from queuey_rabbitmq.core.envelope import Envelope

ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

UNSET = dict.fromkeys(
    (
        "content_type",
        "content_encoding",
        "headers",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "timestamp",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    )
)


def envelope(**changes: Any) -> Envelope:
    fields: dict[str, Any] = {
        "job_id": ID,
        "job_type": "send_email",
        "queue": "myapp.emails",
        "enqueued_at_ms": 5,
        "payload": None,
        "attempt": 3,
        "deferrals": 2,
        "priority": 7,
        "correlation_id": "req-1",
    }
    return Envelope(**(fields | changes))


def test_the_constants_have_the_values_that_every_implementation_shares() -> None:
    assert codec.CONTENT_TYPE_JSON == "application/json"
    assert codec.DELIVERY_MODE_PERSISTENT == 2
    assert codec.REASON_MALFORMED == "malformed envelope"


def test_a_live_message_has_these_properties_and_no_others() -> None:
    assert vars(codec.props_for(envelope())) == UNSET | {
        "content_type": "application/json",
        "delivery_mode": 2,
        "message_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "type": "send_email",
        "priority": 7,
        "headers": {"x-attempt": 3, "x-deferrals": 2},
    }


def test_priority_zero_is_written_too() -> None:
    assert codec.props_for(envelope(priority=0)).priority == 0


def test_a_dead_letter_says_why_and_whence_and_after_how_many_attempts() -> None:
    assert vars(codec.dead_letter_props(envelope(), "card declined")) == UNSET | {
        "content_type": "application/json",
        "delivery_mode": 2,
        "message_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "type": "send_email",
        "priority": 7,
        "headers": {
            "x-attempt": 3,
            "x-deferrals": 2,
            "x-death-reason": "card declined",
            "x-original-queue": "myapp.emails",
            "x-attempts": 3,
        },
    }


def test_a_malformed_body_is_persistent_and_has_only_its_reason_and_origin() -> None:
    assert vars(codec.malformed_props("myapp.emails", codec.REASON_MALFORMED)) == UNSET | {
        "delivery_mode": 2,
        "headers": {"x-death-reason": "malformed envelope", "x-original-queue": "myapp.emails"},
    }


def test_the_headers_alone_are_plain_dicts() -> None:
    assert codec.base_headers(envelope()) == {"x-attempt": 3, "x-deferrals": 2}
    assert codec.dead_letter_headers(envelope(), "r") == codec.dead_letter_props(envelope(), "r").headers


def test_what_the_backend_publishes_with_says_the_same_as_pikas_properties() -> None:
    pairs = [
        (codec.message_properties(envelope()), codec.props_for(envelope())),
        (codec.dead_letter_properties(envelope(), "r"), codec.dead_letter_props(envelope(), "r")),
        (codec.malformed_properties("q", "r"), codec.malformed_props("q", "r")),
    ]
    assert [asdict(ours) for ours, _ in pairs] == [vars(pikas) for _, pikas in pairs]


def test_only_a_message_of_the_retry_queue_gets_an_expiration() -> None:
    plain = codec.message_properties(envelope())
    expiring = codec.message_properties(envelope(), expiration_ms=30_000)
    assert plain.expiration is None
    assert asdict(expiring) == asdict(plain) | {"expiration": "30000"}


# --------------------------------------------------------------------------------------------------------- cuts


def test_a_long_type_is_cut_at_255_bytes_between_characters() -> None:
    assert codec.props_for(envelope(job_type="é" * 400)).type == "é" * 127
    assert codec.props_for(envelope(job_type="a" * 400)).type == "a" * 255
    assert codec.props_for(envelope(job_type="a" + "é" * 127)).type == "a" + "é" * 127


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("", ""),
        ("a" * 255, "a" * 255),
        ("a" * 256, "a" * 255),
        ("é" * 128, "é" * 127),
        ("a" * 254 + "é", "a" * 254),
        ("a" * 253 + "é", "a" * 253 + "é"),
        ("€" * 100, "€" * 85),
        ("🐇" * 100, "🐇" * 63),
    ],
)
def test_a_short_string_is_cut_between_characters(text: str, cut: str) -> None:
    assert codec.short_string(text) == cut


def test_a_reason_fits_one_frame_however_long_the_error_was() -> None:
    properties = codec.dead_letter_props(envelope(job_type="é" * 400), "é" * 1_000_000)
    assert properties.headers["x-death-reason"] == "é" * 16_384
    assert len(b"".join(properties.encode())) < 131_072 - 100


def test_a_reason_that_utf8_cannot_hold_is_still_written() -> None:
    properties = codec.malformed_props("q", "no such file: \udcff.txt")
    assert properties.headers["x-death-reason"] == "no such file: ?.txt"
    assert properties.encode()


def test_pika_can_write_every_counter_and_reads_it_back() -> None:
    full = envelope(attempt=2**32 - 1, deferrals=2**32 - 1, priority=255)
    written = codec.dead_letter_props(full, "r")
    read = pika.BasicProperties()
    read.decode(b"".join(written.encode()))
    assert vars(read) == vars(written)
