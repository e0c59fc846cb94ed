"""The ready messages of one queue, by priority.

Owns their order and nothing else; knows neither time nor consumers. Each level is a deque for what was published, and a
sorted list for what was requeued, whose place is by its sequence (rabbit_variable_queue:requeue_merge). The head is the
head of the highest level that is not empty (rabbit_priority_queue:find2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge

from sortedcontainers import SortedKeyList

from queuey_fake.model.message import QueuedMessage


def _sequence(queued: QueuedMessage) -> int:
    return queued.sequence


class _Level:
    """The messages of one priority, in the order of their sequences."""

    __slots__ = ("published", "requeued")

    def __init__(self) -> None:
        self.published: deque[QueuedMessage] = deque()
        self.requeued: SortedKeyList[QueuedMessage] | None = None

    def head(self) -> QueuedMessage | None:
        if self.requeued and (not self.published or self.requeued[0].sequence < self.published[0].sequence):
            first: QueuedMessage = self.requeued[0]
            return first
        return self.published[0] if self.published else None

    def pop(self) -> QueuedMessage:
        if self.requeued and (not self.published or self.requeued[0].sequence < self.published[0].sequence):
            first: QueuedMessage = self.requeued.pop(0)
            return first
        return self.published.popleft()

    def requeue(self, queued: QueuedMessage) -> None:
        if self.requeued is None:
            self.requeued = SortedKeyList(key=_sequence)
        self.requeued.add(queued)

    def __iter__(self) -> Iterator[QueuedMessage]:
        if not self.requeued:
            return iter(self.published)
        return merge(self.requeued, self.published, key=_sequence)


class ReadyMessages:
    """The ready messages of a queue with levels 0 to `max_priority`: `count` of them, `octets` of bodies."""

    __slots__ = ("_highest", "_levels", "count", "octets")

    def __init__(self, max_priority: int) -> None:
        self._levels = [_Level() for _ in range(max_priority + 1)]
        self._highest = 0  # no level above this one holds a message
        self.count = 0
        self.octets = 0

    def append(self, queued: QueuedMessage) -> None:
        """Add a new message behind all others of its level."""
        level = queued.level
        self._levels[level].published.append(queued)
        self.count += 1
        self.octets += len(queued.message.body)
        if level > self._highest:  # noqa: PLR1730  max() costs a call for every message
            self._highest = level

    def requeue(self, queued: QueuedMessage) -> None:
        """Put a message back to the place that its sequence gives it in its level."""
        self._levels[queued.level].requeue(queued)
        self.count += 1
        self.octets += len(queued.message.body)
        self._highest = max(self._highest, queued.level)

    def head(self) -> QueuedMessage | None:
        """Return the message that goes next."""
        return self._highest_level().head() if self.count else None

    def pop(self) -> QueuedMessage:
        """Take the message that goes next; there must be one."""
        assert self.count, "pop from a queue without ready messages"
        queued = self._highest_level().pop()
        self.count -= 1
        self.octets -= len(queued.message.body)
        return queued

    def _highest_level(self) -> _Level:
        levels = self._levels
        highest = self._highest
        while not (levels[highest].published or levels[highest].requeued):
            highest -= 1
        self._highest = highest
        return levels[highest]

    def clear(self) -> int:
        """Take all messages away; return how many there were."""
        count = self.count
        for level in self._levels:
            level.published.clear()
            level.requeued = None
        self._highest = self.count = self.octets = 0
        return count

    def __iter__(self) -> Iterator[QueuedMessage]:
        """Go through the messages in the order in which they would be taken."""
        for level in reversed(self._levels):
            yield from level
