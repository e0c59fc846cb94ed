"""The limit that all consumers of a channel share (basic.qos with global, before RabbitMQ 4.3).

Owns how many unacknowledged deliveries the channel has room for, and which queues to wake when there is room again
(rabbit_limiter). Deliveries by basic.get neither need room nor, once the limit is set, take it.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuey_fake.model.delivery import Mailbox, SettlingQueue

Waiting = Iterable[SettlingQueue]


class ChannelLimiter:
    """The limit of one channel; `prefetch_count` 0 is none."""

    __slots__ = ("_mailbox", "_waiting", "prefetch_count", "volume")

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.prefetch_count = 0
        self.volume = 0
        self._waiting: dict[SettlingQueue, None] = {}

    @property
    def is_active(self) -> bool:
        """Whether there is a limit at all."""
        return self.prefetch_count > 0

    @property
    def is_reached(self) -> bool:
        """Whether there is no room."""
        return 0 < self.prefetch_count <= self.volume

    def take_room(self, queue: SettlingQueue, *, ack_required: bool) -> bool:
        """Take room for one delivery, or note that the queue waits for some; return which."""
        if self.is_reached:
            self._waiting[queue] = None
            return False
        if ack_required:
            self.volume += 1
        return True

    def limit(self, prefetch_count: int, unacked: int) -> None:
        """Set the limit; the first one starts from what is unacknowledged, basic.get included."""
        was_reached = self.is_reached
        if not self.prefetch_count:
            self.volume = unacked
        self.prefetch_count = prefetch_count
        self.wake(self._take_waiting(was_reached))

    def unlimit(self) -> None:
        """Lift the limit."""
        was_reached = self.is_reached
        self.prefetch_count = self.volume = 0
        self.wake(self._take_waiting(was_reached))

    def give_room(self, count: int) -> Waiting:
        """Give back the room of deliveries that are being settled; return the queues to wake once they are."""
        was_reached = self.is_reached
        if self.volume:
            self.volume -= count
        return self._take_waiting(was_reached)

    def wake(self, waiting: Waiting) -> None:
        """Tell queues that waited that there is room again."""
        for queue in waiting:
            if not queue.is_deleted:
                queue.resume(self._mailbox)

    def _take_waiting(self, was_reached: bool) -> Waiting:  # noqa: FBT001  a fact, not an option
        if not was_reached or self.is_reached:
            return ()
        waiting, self._waiting = self._waiting, {}
        return waiting
