"""What a message of a dead queue says about itself, whoever wrote it; and the message that brings it back to work.

Reads everything and trusts nothing: a body may be no envelope, headers may be missing or be somebody else's. Sends
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from queuey_rabbitmq import codec, topology
from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import InvalidConfigError, SerializationError
from queuey_rabbitmq.core.jobs import declared
from queuey_rabbitmq.session.operations import Message

if TYPE_CHECKING:
    from queuey_rabbitmq.amqp import ReadableProperties
    from queuey_rabbitmq.browsing import Held

JobT = TypeVar("JobT")

Attempt = Literal["next", "first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message of a dead queue, as it is."""

    number: int
    """Its place in the dead queue, from 1, the oldest."""
    body: bytes = field(repr=False)
    properties: ReadableProperties = field(repr=False)
    """The basic properties, with pika's attribute names."""
    redelivered: bool
    """Whether it has been handed out before, to be looked at for one."""
    envelope: Envelope | None
    """The job; None where the body is no envelope."""
    problem: str | None
    """Why the body is no envelope."""
    reason: str | None
    """Why it died: what a worker said, else the word of the broker that dead-lettered it, "rejected" or another."""
    origin: str
    """The queue it would be requeued to."""
    attempts: int | None
    """How many attempts were made, where that is known."""
    age_ms: int | None
    """How long ago the job was first enqueued; None where the body is no envelope."""

    @property
    def job_type(self) -> str | None:
        """Return the name of the job, None where the body is no envelope."""
        return None if self.envelope is None else self.envelope.job_type

    @property
    def job_id(self) -> uuid.UUID | None:
        """Return the id of the job, None where the body is no envelope."""
        return None if self.envelope is None else self.envelope.job_id

    def decode(self, job: type[JobT]) -> JobT:
        """Decode the job as its class. Raises SerializationError where it is not that, or is no job at all."""
        if self.envelope is None:
            raise SerializationError(f"dead letter {self.number} of queue '{self.origin}' is no job: {self.problem}")
        try:
            expected = declared(job).name
        except InvalidConfigError:
            return self.envelope.decode(job)  # a plain type, which has no name to compare
        if self.envelope.job_type != expected:
            raise SerializationError(
                f"dead letter {self.number} of queue '{self.origin}' is a {self.envelope.job_type!r}, no {expected!r}"
            )
        return self.envelope.decode(job)


def read_dead_letter(held: Held, *, number: int, queue: str, now_ms: int) -> DeadLetter:
    """Read a message of the dead queue of `queue`."""
    envelope, problem = None, None
    try:
        envelope = Envelope.from_bytes(held.body, held.properties.headers)
    except SerializationError as error:
        problem = str(error)
    headers = held.properties.headers or {}
    attempts = headers.get(topology.HEADER_ATTEMPTS)
    if envelope is not None:
        attempts = envelope.attempt
    return DeadLetter(
        number=number,
        body=held.body,
        properties=held.properties,
        redelivered=held.redelivered,
        envelope=envelope,
        problem=problem,
        reason=_text(headers.get(topology.HEADER_DEATH_REASON)) or _last_death(headers, "reason"),
        origin=(
            _text(headers.get(topology.HEADER_ORIGINAL_QUEUE))
            or _last_death(headers, "queue")
            or (None if envelope is None else envelope.queue)
            or queue
        ),
        attempts=attempts if type(attempts) is int else None,
        age_ms=None if envelope is None else max(0, now_ms - envelope.enqueued_at_ms),
    )


def requeued(letter: DeadLetter, attempt: Attempt) -> Message:
    """Return the message that brings a dead letter back to its origin.

    A job comes back as its next attempt or as its first; anything else as it is, but for its user id, which RabbitMQ
    takes from that user only, and its expiration, which RabbitMQ removes from what it dead-letters itself (scenario
    dlx_properties_preserved), lest it dies again unseen. Of the headers those go along that `codec` lets go on.
    """
    if letter.envelope is not None:
        job = letter.envelope.first_attempt() if attempt == "first" else letter.envelope.next_attempt()
        return Message(letter.origin, codec.message_properties(job), job.to_bytes())
    said = {name: getattr(letter.properties, name) for name in Properties.__struct_fields__}
    headers = codec.carried_headers(said["headers"] or {})
    said |= {"headers": headers or None, "user_id": None, "expiration": None}
    return Message(letter.origin, Properties(**said), letter.body)


def _last_death(headers: Mapping[str, Any], what: Literal["queue", "reason"]) -> str | None:
    """Return what the broker noted when it dead-lettered the message last, if it did.

    Not its first death: that may have been the end of a wait in a hold queue. The newest comes first (scenario
    dlx_xdeath_moves_to_front).
    """
    deaths = headers.get(codec.HEADER_DEATHS)
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], Mapping):
        return None
    return _text(deaths[0].get(what))


def _text(value: object) -> str | None:
    """Return a header's value as text, None for nothing."""
    if value is None or isinstance(value, str):
        return value or None
    return value.decode(errors="replace") if isinstance(value, bytes) else repr(value)
