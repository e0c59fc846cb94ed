"""What channels and queues say to each other about deliveries.

Owns a consumer, a delivery that is not settled yet, and the two protocols across which they pass. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from queuey_fake.model.message import QueuedMessage


class Mailbox(Protocol):
    """A channel, as a queue sees it.

    `turns` counts what its client did but for publishing without confirms: what the broker says in between, a burst of
    such publishes comes too early to hear.
    """

    turns: int

    @property
    def is_limited(self) -> bool:
        """Whether its consumers share a limit."""

    def take_room(self, queue: SettlingQueue, *, ack_required: bool) -> bool:
        """Take room for one delivery under the shared limit, or note that the queue waits for some; return which."""

    def deliver(self, consumer: Consumer, queued: QueuedMessage) -> PendingAck | None:
        """Send a message to the consumer; return what is to be settled, None where nothing is."""

    def consumer_gone(self, consumer: Consumer) -> None:
        """Hear that the queue of a consumer is gone."""

    def known_to(self, queue: Any) -> None:
        """Hear that a queue knows the channel, and wants to hear of its end."""

    def queue_gone(self, queue: Any) -> None:
        """Hear that a queue is gone that knew the channel."""


class SettlingQueue(Protocol):
    """A queue, as a channel sees it when deliveries are settled and when there is room again."""

    name: str
    is_deleted: bool

    def acknowledge(self, mailbox: Mailbox, pending: list[PendingAck]) -> None:
        """Forget the messages."""

    def requeue(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Take the messages back; `counts` says whether this raises their delivery count."""

    def discard(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Dead-letter or drop the messages."""

    def resume(self, mailbox: Mailbox) -> None:
        """Hear that there is room again under the limit that the channel's consumers share."""


@dataclass(frozen=True, slots=True, eq=False)
class Consumer:
    """One subscription. Two are never equal, whatever their tags."""

    mailbox: Mailbox
    tag: str
    no_ack: bool
    prefetch: int
    priority: int
    exclusive: bool


class PendingAck:
    """A delivery that is not settled; `consumer_tag` is None for basic.get."""

    __slots__ = ("consumer_tag", "delivery_tag", "queue", "queued")

    def __init__(
        self, delivery_tag: int, consumer_tag: str | None, queue: SettlingQueue, queued: QueuedMessage
    ) -> None:
        self.delivery_tag = delivery_tag
        self.consumer_tag = consumer_tag
        self.queue = queue
        self.queued = queued
