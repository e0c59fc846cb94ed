"""How an envelope becomes the properties and headers of an AMQP message, so that tooling reads what the backend wrote.

The rules stand here once, in functions that return `queuey_rabbitmq.amqp.Properties`, which is what the backend
publishes with. The functions named `..._props` give the same as `pika.BasicProperties`; only they import pika, and
only when called. Headers are plain dicts. Pure: no connection, no I/O. The body is `Envelope.to_bytes()`, always.

What a message came with goes on with it, through holds, retries and dead letters, but for what is only true of the
message it was read from: see `carried_headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from queuey_rabbitmq import topology
from queuey_rabbitmq.amqp import Properties

if TYPE_CHECKING:
    import pika

    from queuey_rabbitmq.core.envelope import Envelope

CONTENT_TYPE_JSON = "application/json"
DELIVERY_MODE_PERSISTENT = 2
REASON_MALFORMED = "malformed envelope"

MAX_SHORT_STRING_BYTES = 255
"""What an AMQP short string holds: message-id, type, queue names."""

MAX_REASON_BYTES = 32_768
"""Headers must fit one frame, 131072 bytes by default, or RabbitMQ 4.3 closes the connection: "frame_too_large"."""


MAX_CARRIED_BYTES = 65_536
"""What carried headers may take of that frame, a reason of full length beside them."""

HEADER_DEATHS = "x-death"
"""What the broker notes of each death of a message."""

_OF_ONE_MESSAGE = frozenset(
    {
        topology.HEADER_ATTEMPT,
        topology.HEADER_DEFERRALS,
        topology.HEADER_DEATH_REASON,
        topology.HEADER_ORIGINAL_QUEUE,
        topology.HEADER_ATTEMPTS,
        HEADER_DEATHS,  # republished, it would let the broker see a cycle that is none, and drop the message
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-last-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
        "x-delivery-count",  # of a quorum queue
        "x-acquired-count",
        "CC",  # these two would send it to further queues
        "BCC",
    }
)


def carried_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return which headers of a message go on with what takes its place: trace context, those of other programs.

    Not what queuey or the broker has noted of that one message, and no more than MAX_CARRIED_BYTES in all.
    """
    carried = {}
    left = MAX_CARRIED_BYTES
    for name, value in headers.items():
        if name not in _OF_ONE_MESSAGE and (size := _size(name) + _size(value)) <= left:
            carried[name] = value
            left -= size
    return carried


def base_headers(envelope: Envelope) -> dict[str, Any]:
    """Return the headers of a live message."""
    own = {topology.HEADER_ATTEMPT: envelope.attempt, topology.HEADER_DEFERRALS: envelope.deferrals}
    try:
        return carried_headers(envelope.headers) | own if envelope.headers else own
    except Exception:  # noqa: BLE001 -- decoded only now, and not to be decoded: no reason not to settle the job
        return own


def dead_letter_headers(envelope: Envelope, reason: str) -> dict[str, Any]:
    """Return the headers of a dead letter; a very long reason is cut."""
    return {
        **base_headers(envelope),
        **_death_headers(envelope.queue, reason),
        topology.HEADER_ATTEMPTS: envelope.attempt,
    }


def message_properties(envelope: Envelope, *, expiration_ms: int | None = None) -> Properties:
    """Return the properties of a live message; only the three-queue topology gives its retries an expiration."""
    return _properties(envelope, base_headers(envelope), expiration_ms=expiration_ms)


def dead_letter_properties(envelope: Envelope, reason: str) -> Properties:
    """Return the properties of a dead letter."""
    return _properties(envelope, dead_letter_headers(envelope, reason), expiration_ms=None)


def malformed_properties(original_queue: str, reason: str) -> Properties:
    """Return the properties of a body that is no envelope, moved aside as it came: it has no id, type or priority."""
    return Properties(headers=_death_headers(original_queue, reason), delivery_mode=DELIVERY_MODE_PERSISTENT)


def props_for(envelope: Envelope) -> pika.BasicProperties:
    """Return `message_properties` as pika's."""
    return _as_pika(message_properties(envelope))


def dead_letter_props(envelope: Envelope, reason: str) -> pika.BasicProperties:
    """Return `dead_letter_properties` as pika's."""
    return _as_pika(dead_letter_properties(envelope, reason))


def malformed_props(original_queue: str, reason: str) -> pika.BasicProperties:
    """Return `malformed_properties` as pika's."""
    return _as_pika(malformed_properties(original_queue, reason))


@lru_cache(maxsize=256)  # names of job types, the same ones again and again
def short_string(text: str) -> str:
    """Cut a text to the 255 bytes of an AMQP short string, between characters."""
    return _cut(text, MAX_SHORT_STRING_BYTES)


def _properties(envelope: Envelope, headers: dict[str, Any], *, expiration_ms: int | None) -> Properties:
    return Properties(
        content_type=CONTENT_TYPE_JSON,
        headers=headers,
        delivery_mode=DELIVERY_MODE_PERSISTENT,
        priority=envelope.priority,
        expiration=None if expiration_ms is None else str(expiration_ms),
        message_id=to_builtins(envelope.job_id),  # its text, at a quarter of the cost of `str`
        type=short_string(envelope.job_type),
    )


def _death_headers(original_queue: str, reason: str) -> dict[str, Any]:
    return {
        topology.HEADER_DEATH_REASON: _cut(reason, MAX_REASON_BYTES),
        topology.HEADER_ORIGINAL_QUEUE: original_queue,
    }


def _size(value: Any) -> int:
    """Return about how many bytes a value takes in a table, rather too many than too few."""
    if isinstance(value, str):
        return 5 + len(value.encode(errors="replace"))
    if isinstance(value, bytes):
        return 5 + len(value)
    if isinstance(value, Mapping):
        return 5 + sum(_size(name) + _size(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return 5 + sum(map(_size, value))
    return 16


def _cut(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8 between characters; what UTF-8 cannot hold becomes a question mark."""
    if len(text) <= limit and text.isascii():
        return text
    encoded = text.encode(errors="replace")
    return encoded[:limit].decode(errors="ignore")


def _as_pika(properties: Properties) -> pika.BasicProperties:
    import pika
    from msgspec.structs import asdict

    return pika.BasicProperties(**asdict(properties))
