"""The envelope: what peers write is read and written back byte for byte, and nothing else is read."""

import copy
import dataclasses
import enum
import json
import pickle
import uuid
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq.core.envelope import Envelope, check_readable
from queuey_rabbitmq.core.errors import InvalidConfigError, SerializationError

ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

# What a Rust peer writes with serde_json: compact, in the order of its struct's fields.
PEER_BODY = (
    '{"job_id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","job_type":"send_email","queue":"myapp.emails","attempt":3,'
    '"enqueued_at_ms":1700000000123,"deferrals":2,"priority":10,"correlation_id":"req-é-\\u001b\\"/","payload":'
    '{"to":"Zoë <z@example.com>","n":1.0,"big":1e16,"u":18446744073709551615,"nested":[null,true,{}]}}'
).encode()

OLDER_BODY = (
    b'{"job_id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","job_type":"t","queue":"q","attempt":1,'
    b'"enqueued_at_ms":0,"payload":null}'
)


def envelope(**changes: Any) -> Envelope:
    fields: dict[str, Any] = {"job_id": ID, "job_type": "t", "queue": "q", "enqueued_at_ms": 5, "payload": None}
    return Envelope(**(fields | changes))


def body(**changes: Any) -> bytes:
    return json.dumps(json.loads(OLDER_BODY) | changes).encode()


# ------------------------------------------------------------------------------------------------- wire format


def test_a_peers_body_comes_back_byte_for_byte() -> None:
    assert Envelope.from_bytes(PEER_BODY).to_bytes() == PEER_BODY


def test_a_peers_body_is_understood() -> None:
    read = Envelope.from_bytes(PEER_BODY)
    assert (read.job_id, read.job_type, read.queue) == (ID, "send_email", "myapp.emails")
    assert (read.attempt, read.enqueued_at_ms, read.deferrals, read.priority) == (3, 1700000000123, 2, 10)
    assert read.correlation_id == 'req-é-\x1b"/'
    assert read.payload["to"] == "Zoë <z@example.com>"
    assert read.payload["u"] == 2**64 - 1


def test_the_fields_are_written_in_the_order_of_the_wire_format_without_an_unset_correlation_id() -> None:
    assert envelope(payload={"b": 1, "a": "é"}).to_bytes() == (
        '{"job_id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","job_type":"t","queue":"q","attempt":1,"enqueued_at_ms":5,'
        '"deferrals":0,"priority":0,"payload":{"b":1,"a":"é"}}'.encode()
    )


def test_a_body_older_than_deferrals_priority_and_correlation_id_is_read() -> None:
    read = Envelope.from_bytes(OLDER_BODY)
    assert (read.deferrals, read.priority, read.correlation_id, read.payload) == (0, 0, None, None)


def test_a_null_correlation_id_is_an_unset_one() -> None:
    read = Envelope.from_bytes(body(correlation_id=None))
    assert read.correlation_id is None
    assert b"correlation_id" not in read.to_bytes()
    assert read == Envelope.from_bytes(OLDER_BODY)


def test_unknown_fields_are_ignored_and_not_carried_on() -> None:
    assert b"trace" not in Envelope.from_bytes(body(trace={"x": [1]})).to_bytes()


def test_the_last_of_two_equal_fields_counts() -> None:
    assert Envelope.from_bytes(OLDER_BODY[:-1] + b',"attempt":7}').attempt == 7


def test_any_bytes_like_body_is_read_and_later_changes_to_it_are_not_seen() -> None:
    changing = bytearray(PEER_BODY)
    read = Envelope.from_bytes(changing)
    viewed = Envelope.from_bytes(memoryview(PEER_BODY))
    changing[:] = b"x" * len(changing)
    assert read.to_bytes() == viewed.to_bytes() == PEER_BODY


@given(
    job_type=st.text(),
    queue=st.text(),
    attempt=st.integers(1, 2**32 - 1),
    enqueued_at_ms=st.integers(0, 2**64 - 1),
    deferrals=st.integers(0, 2**32 - 1),
    priority=st.integers(0, 255),
    correlation_id=st.none() | st.text(),
    payload=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists),
)
def test_any_envelope_survives_the_wire(**fields: Any) -> None:
    made = envelope(**fields)
    read = Envelope.from_bytes(made.to_bytes())
    assert read == made
    assert {name: getattr(read, name) for name in fields} == fields
    assert json.loads(made.to_bytes())["payload"] == fields["payload"]


# ------------------------------------------------------------------------------------------------ bad bodies


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", "not-a-uuid"),
        ("job_id", 7),
        ("job_id", None),
        ("job_type", 1),
        ("job_type", None),
        ("queue", ["q"]),
        ("attempt", 0),
        ("attempt", -1),
        ("attempt", "1"),
        ("attempt", 1.0),
        ("attempt", True),
        ("attempt", None),
        ("attempt", 2**32),
        ("enqueued_at_ms", -1),
        ("enqueued_at_ms", 2**64),
        ("enqueued_at_ms", 10**40),
        ("enqueued_at_ms", 1.5),
        ("enqueued_at_ms", "2024-01-01"),
        ("deferrals", -1),
        ("deferrals", 2**32),
        ("deferrals", False),
        ("deferrals", None),
        ("priority", 256),
        ("priority", -1),
        ("priority", "0"),
        ("correlation_id", 5),
    ],
)
def test_a_field_with_a_wrong_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(SerializationError, match=rf"not an envelope.*\$\.{field}"):
        Envelope.from_bytes(body(**{field: value}))


@pytest.mark.parametrize("field", ["job_id", "job_type", "queue", "attempt", "enqueued_at_ms", "payload"])
def test_a_missing_field_is_named(field: str) -> None:
    fields = json.loads(OLDER_BODY)
    del fields[field]
    with pytest.raises(SerializationError, match=rf"not an envelope.*missing required field `{field}`"):
        Envelope.from_bytes(json.dumps(fields).encode())


HOSTILE = [
    OLDER_BODY.replace(b"null", b"[" * 200_000 + b"]" * 200_000),
    OLDER_BODY.replace(b'"attempt":1', b'"attempt":' + b"1" * 5000),
]


@pytest.mark.parametrize("raw", HOSTILE, ids=["nested too deeply", "a number of 5000 digits"])
def test_a_hostile_body_is_a_serialization_error_like_any_other(raw: bytes) -> None:
    with pytest.raises(SerializationError, match="not an envelope"):
        Envelope.from_bytes(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"garbage",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{}",
        PEER_BODY[:-1],
        PEER_BODY + b"x",
        b"\xef\xbb\xbf" + OLDER_BODY,
        OLDER_BODY.decode().encode("utf-16"),
        OLDER_BODY.replace(b'"t"', b'"\xff"'),
        OLDER_BODY.replace(b'"t"', b'"\\ud800"'),
        OLDER_BODY.replace(b"null", b'"\xff"'),
        OLDER_BODY.replace(b"null", b"{'a':1}"),
        OLDER_BODY.replace(b"null", b"NaN"),
        OLDER_BODY.replace(b"null", b"[1,]"),
        OLDER_BODY.replace(b"null", b'"\n"'),
        OLDER_BODY[:-1] + b',"unknown":"\xff"}',
    ],
)
def test_a_body_that_is_not_an_envelope_is_a_serialization_error_with_its_cause(raw: bytes) -> None:
    with pytest.raises(SerializationError, match=f"in a body of {len(raw)} bytes") as caught:
        Envelope.from_bytes(raw)
    assert caught.value.__cause__ is not None


@given(st.binary())
def test_no_bytes_make_anything_but_an_envelope_or_a_serialization_error(raw: bytes) -> None:
    with pytest.raises(SerializationError):
        Envelope.from_bytes(raw)


# ----------------------------------------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", str(ID)),
        ("job_id", None),
        ("job_type", 5),
        ("job_type", "\ud800"),
        ("queue", None),
        ("queue", b"q"),
        ("attempt", 0),
        ("attempt", 2**32),
        ("attempt", True),
        ("attempt", "1"),
        ("attempt", 1.0),
        ("enqueued_at_ms", -1),
        ("enqueued_at_ms", 2**64),
        ("enqueued_at_ms", 1.5),
        ("enqueued_at_ms", None),
        ("deferrals", -1),
        ("priority", 256),
        ("priority", None),
        ("correlation_id", 5),
        ("payload", object()),
        ("payload", {"x": object()}),
        ("payload", {(1, 2): 3}),
        ("payload", "\ud800"),
    ],
)
def test_a_field_that_cannot_be_is_refused_at_construction_and_named(field: str, value: Any) -> None:
    with pytest.raises(SerializationError, match=f"^envelope field `{field}`: "):
        envelope(**{field: value})


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SerializationError, match="`payload`"):
        envelope(payload=endless)


def test_the_time_of_enqueueing_has_no_default() -> None:
    with pytest.raises(TypeError, match="enqueued_at_ms"):
        Envelope(job_id=ID, job_type="t", queue="q", payload=None)  # type: ignore[call-arg]  # the mistake


def test_fields_are_given_by_keyword_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        Envelope(ID, job_type="t", queue="q", enqueued_at_ms=0, payload=None)  # type: ignore[call-arg]  # the mistake


def test_an_envelope_cannot_be_changed() -> None:
    made = envelope()
    with pytest.raises(AttributeError, match="immutable"):
        made.attempt = 2  # type: ignore[misc]  # the mistake
    with pytest.raises(AttributeError, match="immutable"):
        del made._wire


def test_the_payload_is_encoded_once_so_later_changes_to_the_value_are_not_seen() -> None:
    value = {"to": "a"}
    made = envelope(payload=value)
    value["to"] = "b"
    made.payload["to"] = "c"
    assert made.payload == {"to": "a"}


class Kind(enum.StrEnum):
    EMAIL = "email"


def test_text_and_numbers_may_be_enumerations() -> None:
    made = envelope(job_type=Kind.EMAIL, queue=Kind.EMAIL)
    assert Envelope.from_bytes(made.to_bytes()).job_type == "email"
    assert made == Envelope.from_bytes(made.to_bytes())


# -------------------------------------------------------------------------------------------- payloads as JSON


@pytest.mark.parametrize("raw", [b'{ "a" : 1.50,\n "b":"\\u00e9" }', b"1E2", b'"x"', b"null"])
def test_the_payloads_json_goes_round_byte_for_byte(raw: bytes) -> None:
    received = Envelope.from_bytes(OLDER_BODY.replace(b'"payload":null', b'"payload": ' + raw + b" "))
    assert received.payload_json == raw
    assert Envelope.from_bytes(received.next_attempt().to_bytes()).deferred(3).payload_json == raw


@pytest.mark.parametrize("given_json", [b' {"a": 1}\n', ' {"a": 1}\n'])
def test_a_payload_may_be_given_as_json(given_json: bytes | str) -> None:
    made = Envelope.with_payload_json(given_json, job_id=ID, job_type="t", queue="q", enqueued_at_ms=1, priority=4)
    assert made.payload_json == b'{"a": 1}'
    assert Envelope.from_bytes(made.to_bytes()) == made
    assert made.priority == 4


@pytest.mark.parametrize("not_json", [b"", b"{", b"NaN", b"\xff", b'"\xff"', b"1 2", "\ud800", b"[" * 2000])
def test_a_payload_that_is_not_json_is_refused(not_json: bytes | str) -> None:
    with pytest.raises(SerializationError, match="`payload`: not JSON"):
        Envelope.with_payload_json(not_json, job_id=ID, job_type="t", queue="q", enqueued_at_ms=1)


def test_json_that_python_cannot_hold_is_carried_on_and_refused_only_when_decoded() -> None:
    received = Envelope.from_bytes(OLDER_BODY.replace(b"null", b"1e400"))
    assert received.next_attempt().payload_json == b"1e400"
    with pytest.raises(SerializationError, match=r"job 6ba7b810.* of queue 'q': its payload cannot be decoded"):
        _ = received.payload


# ---------------------------------------------------------------------------------------------------- decoding


@dataclasses.dataclass
class Email:
    to: str
    copies: int = 0
    at: datetime | None = None


class EmailStruct(msgspec.Struct):
    to: str
    copies: int = 0


class Model:
    """Has pydantic's two methods, by which models are told from other values."""

    def __init__(self, to: str) -> None:
        self.to = to

    def model_dump_json(self, *, by_alias: bool, round_trip: bool) -> str:
        assert by_alias
        assert round_trip
        return json.dumps({"to": self.to})

    @classmethod
    def model_validate_json(cls, raw: bytes) -> "Model":
        fields = json.loads(raw)
        if set(fields) != {"to"}:
            raise ValueError(f"unexpected fields: {sorted(fields)}")
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.to == other.to

    __hash__ = None  # type: ignore[assignment]  # as pydantic's mutable models


@dataclasses.dataclass
class Batch:
    models: list[Model]


@pytest.mark.parametrize(
    "job",
    [
        Email("a@example.com", 2, datetime(2024, 1, 2, tzinfo=UTC)),
        EmailStruct("é", 7),
        Model("a@example.com"),
        Batch([Model("a"), Model("b")]),
        {"to": ["a", 1, None]},
        [1, 2],
        "text",
        5,
    ],
)
def test_a_job_comes_out_as_it_went_in(job: Any) -> None:
    received = Envelope.from_bytes(envelope(payload=job).to_bytes())
    assert received.decode(type(job)) == job


class OwnDatetime(datetime):
    """As pendulum's, and as the one of a library that freezes time."""


class OwnDate(date):
    """As above."""


class OwnTime(time):
    """As above."""


@dataclasses.dataclass
class Appointment:
    at: OwnDatetime
    day: OwnDate
    opens: OwnTime


def test_kinds_of_dates_and_times_are_written_as_python_s_own() -> None:
    own = [OwnDatetime(2030, 1, 2, 3, 4, 5, 6, UTC), OwnDate(2030, 1, 2), OwnTime(9, 30)]
    plain = [datetime(2030, 1, 2, 3, 4, 5, 6, UTC), date(2030, 1, 2), time(9, 30)]
    assert envelope(payload=own).payload_json == envelope(payload=plain).payload_json


def test_kinds_of_dates_and_times_come_out_as_they_went_in() -> None:
    job = Appointment(OwnDatetime(2030, 1, 2, 3, 4, 5, 6, UTC), OwnDate(2030, 1, 2), OwnTime(9, 30))
    check_readable(Appointment)
    received = envelope(payload=job).decode(Appointment)
    assert received == job
    assert [type(value) for value in dataclasses.astuple(received)] == [OwnDatetime, OwnDate, OwnTime]


def test_what_is_no_date_is_refused_where_a_kind_of_date_is_expected() -> None:
    payload = {"at": "tomorrow", "day": "2030-01-02", "opens": "09:30"}
    with pytest.raises(SerializationError, match=r"Invalid RFC3339 encoded datetime"):
        envelope(payload=payload).decode(Appointment)


def test_generic_types_are_decoded_into() -> None:
    assert envelope(payload=[{"to": "a"}]).decode(list[Email]) == [Email("a")]


def test_decoding_ignores_the_job_type_of_the_envelope() -> None:
    assert envelope(job_type="something else", payload={"to": "a"}).decode(Email) == Email("a")


@pytest.mark.parametrize(
    ("job_type", "payload", "said"),
    [
        (Email, {"to": 5}, r"is not a Email: Expected `str`, got `int` - at `\$\.to`"),
        (Email, {"to": "a", "copies": "2"}, r"\$\.copies"),
        (Email, {"to": "a", "copies": 2.0}, r"\$\.copies"),
        (Email, {"to": "a", "copies": True}, r"\$\.copies"),
        (EmailStruct, {}, "missing required field `to`"),
        (Model, {"from": "a"}, r"unexpected fields: \['from'\]"),
        (Batch, {"models": [{"from": "a"}]}, r"unexpected fields: \['from'\]"),
        (int, "5", "Expected `int`"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_naming_job_and_field(job_type: Any, payload: Any, said: str) -> None:
    with pytest.raises(SerializationError, match=said) as caught:
        envelope(payload=payload).decode(job_type)
    assert str(caught.value).startswith(f"job {ID} ('t') of queue 'q': its payload is not a ")


def test_a_type_that_no_payload_can_be_decoded_into_is_a_mistake_in_the_declaration() -> None:
    with pytest.raises(InvalidConfigError):
        envelope(payload={}).decode(3)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidConfigError):
        envelope(payload={}).decode(object.__subclasses__)  # type: ignore[arg-type]  # the mistake


# ------------------------------------------------------------------------------------------------------- turns


def test_the_next_attempt_counts_one_more_at_priority_zero_and_keeps_the_rest() -> None:
    before = Envelope.from_bytes(PEER_BODY)
    after = before.next_attempt()
    assert (after.attempt, after.priority, after.deferrals) == (4, 0, 2)
    assert after.deferred(10) == Envelope.from_bytes(
        PEER_BODY.replace(b'"attempt":3', b'"attempt":4').replace(b'"deferrals":2', b'"deferrals":3')
    )
    assert before.to_bytes() == PEER_BODY


def test_a_deferral_counts_one_more_at_the_given_priority_and_keeps_the_attempt() -> None:
    after = Envelope.from_bytes(PEER_BODY).deferred(7)
    assert (after.attempt, after.priority, after.deferrals) == (3, 7, 3)


@pytest.mark.parametrize("priority", [-1, 256, None, True, 1.0])
def test_a_deferral_to_an_impossible_priority_is_refused(priority: Any) -> None:
    with pytest.raises(SerializationError, match="`priority`"):
        envelope().deferred(priority)


def test_full_counters_stay_full_rather_than_losing_the_job() -> None:
    full = envelope(attempt=2**32 - 1, deferrals=2**32 - 1)
    assert full.next_attempt().attempt == 2**32 - 1
    assert full.deferred(0).deferrals == 2**32 - 1


# ------------------------------------------------------------------------------------------------------ values


def test_envelopes_are_equal_by_value() -> None:
    assert Envelope.from_bytes(PEER_BODY) == Envelope.from_bytes(PEER_BODY)
    assert envelope() != envelope(attempt=2)
    assert envelope(payload=1) != envelope(payload=2)
    assert envelope() != "an envelope"
    assert len({envelope(), envelope(), envelope(attempt=2)}) == 2


def test_envelopes_can_be_copied_and_pickled() -> None:
    made = Envelope.from_bytes(PEER_BODY)
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == copy.copy(made) == made  # noqa: S301 -- our bytes


def test_its_repr_shows_the_fields_and_the_beginning_of_a_long_payload() -> None:
    shown = repr(envelope(correlation_id="req-1", payload="x" * 1000))
    assert "job_id='6ba7b810-9dad-11d1-80b4-00c04fd430c8'" in shown
    assert "correlation_id='req-1'" in shown
    assert "(1002 bytes)" in shown
    assert len(shown) < 400
