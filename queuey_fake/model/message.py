"""A message as it travels, and its place in one queue.

Owns what routing and delivery need to know of a message besides its octets. A `Message` is shared by all queues that
hold it and never changed; a dead-lettered message is a new one. A `QueuedMessage` belongs to one queue.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from queuey_fake.model.fields import Table
from queuey_fake.model.properties import Properties


@dataclass(frozen=True, slots=True)
class Death:
    """One entry of a message's death history, as RabbitMQ 4 keeps it (mc:record_death)."""

    queue: str
    reason: str
    exchange: str
    routing_keys: tuple[str, ...]
    first_time_ms: int
    original_expiration_ms: int | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class DeathHistory:
    """All deaths of a message, the most recent first, and which came first of all."""

    deaths: tuple[Death, ...]
    first: Death
    last_exchange: str


class Message:
    """One message. `other_keys` are the routing keys of its CC and BCC headers, `bcc` those of BCC alone.

    `number` stays the same when the message is dead-lettered. `deaths` is None until RabbitMQ 4 dead-letters it; 3.10
    writes the history into the headers. `delivery_count` is how often 4.3 saw it rejected or returned by a close.
    `hops` is how often it was dead-lettered at the instant `died_at_ms`.
    """

    __slots__ = (
        "bcc",
        "body",
        "deaths",
        "delivery_count",
        "died_at_ms",
        "exchange",
        "expiration_ms",
        "hops",
        "number",
        "other_keys",
        "properties",
        "routing_key",
    )

    def __init__(  # noqa: PLR0913  one for each part of a message; called for every publish
        self,
        number: int,
        exchange: str,
        routing_key: str,
        properties: Properties,
        body: bytes,
        *,
        other_keys: tuple[str, ...] = (),
        expiration_ms: int | None = None,
        bcc: tuple[str, ...] = (),
        deaths: DeathHistory | None = None,
        delivery_count: int = 0,
    ) -> None:
        self.number = number
        self.exchange = exchange
        self.routing_key = routing_key
        self.other_keys = other_keys
        self.properties = properties
        self.body = body
        self.expiration_ms = expiration_ms
        self.bcc = bcc
        self.deaths = deaths
        self.delivery_count = delivery_count
        self.died_at_ms: int | None = None
        self.hops = 0

    def read_from_disk(self) -> Message:
        """Return the message as a queue has it whose properties are not decoded: its expiration is not seen."""
        read = copy(self)
        read.expiration_ms = None
        return read

    @property
    def routing_keys(self) -> tuple[str, ...]:
        """The key it was published with or dead-lettered with, and the others behind it."""
        return (self.routing_key, *self.other_keys)


class QueuedMessage:
    """A message in one queue. `sequence` is its place there, kept when it is delivered and requeued.

    For quorum queues alone: `acquired_count` is how often it came back, None for never, and `annotations` are the
    headers that its delivery adds.
    """

    __slots__ = (
        "acquired_count",
        "annotations",
        "deadline_ms",
        "delivery_count",
        "level",
        "message",
        "redelivered",
        "sequence",
    )

    def __init__(self, message: Message, sequence: int, deadline_ms: int | None, level: int) -> None:
        self.message = message
        self.sequence = sequence
        self.deadline_ms = deadline_ms
        self.level = level
        self.redelivered = False
        self.acquired_count: int | None = None
        self.annotations: Table | None = None
        self.delivery_count = message.delivery_count
