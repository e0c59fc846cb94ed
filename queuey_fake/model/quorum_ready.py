"""The ready messages of one quorum queue: what was returned goes first, then what was published.

Owns their order, which by version knows no priorities, two classes of them, or one level for each (rabbit_fifo_q,
rabbit_fifo_pq). Knows neither time nor consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from queuey_fake.model.message import QueuedMessage

DEFAULT_PRIORITY = 4
_MAX_PRIORITY = 31
_WEIGHT = 2  # after so many messages in a row, one of the lower class has its turn (?WEIGHT)


class QuorumReadyMessages:
    """The ready messages; `priorities` is "none", "two classes" or "strict".

    `octets` is the size of their bodies, with `counts_properties` that of their properties too (4.3, maybe_enqueue).
    """

    __slots__ = ("_counts_properties", "_levels", "_priorities", "_returned", "_turn", "count", "octets")

    def __init__(self, priorities: str, *, counts_properties: bool = False) -> None:
        self._priorities = priorities
        self._counts_properties = counts_properties
        self._returned: deque[QueuedMessage] = deque()
        self._levels: list[deque[QueuedMessage]] = [deque() for _ in range(_MAX_PRIORITY + 1)]
        self._turn = 0
        self.count = 0
        self.octets = 0

    def level_of(self, priority: int | None) -> int:
        """Return the level of a message that was published with the priority."""
        if self._priorities == "none":
            return 0
        if self._priorities == "two classes":
            return int(priority is not None and priority > DEFAULT_PRIORITY)
        return min(DEFAULT_PRIORITY if priority is None else priority, _MAX_PRIORITY)

    def append(self, queued: QueuedMessage) -> None:
        """Add a message behind all others of its level."""
        self._levels[queued.level].append(queued)
        self._added(queued)

    def give_back(self, queued: QueuedMessage) -> None:
        """Put a message back, behind all others that were given back and before all that were not."""
        self._returned.append(queued)
        self._added(queued)

    def _added(self, queued: QueuedMessage) -> None:
        self.count += 1
        self.octets += self.size(queued)

    def size(self, queued: QueuedMessage) -> int:
        """Return what a message adds to `octets`."""
        message = queued.message
        return len(message.body) + (len(message.properties.payload()) if self._counts_properties else 0)

    def head(self) -> QueuedMessage | None:
        """Return the message that goes next."""
        if self._returned:
            return self._returned[0]
        level = self._next_level()
        return None if level is None else level[0]

    def pop(self) -> QueuedMessage:
        """Take the message that goes next; there must be one."""
        if self._returned:
            queued = self._returned.popleft()
        else:
            level = self._next_level()
            assert level is not None, "pop from a queue without ready messages"
            queued = level.popleft()
            self._turn = 0 if self._turn == _WEIGHT else self._turn + 1
        self.count -= 1
        self.octets -= self.size(queued)
        return queued

    def heads(self) -> list[deque[QueuedMessage]]:
        """Return the messages given back and the levels, what of them is not empty, in the order of taking."""
        return [level for level in (self._returned, *reversed(self._levels)) if level]

    def take_from(self, level: deque[QueuedMessage]) -> QueuedMessage:
        """Take the first message of one of `heads`."""
        queued = level.popleft()
        self.count -= 1
        self.octets -= self.size(queued)
        return queued

    def _next_level(self) -> deque[QueuedMessage] | None:
        if self._priorities == "two classes":
            normal, high = self._levels[0], self._levels[1]
            if normal and high and self._turn == _WEIGHT:
                return high if high[0].sequence < normal[0].sequence else normal
        return next((level for level in reversed(self._levels) if level), None)

    def clear(self) -> int:
        """Take all messages away; return how many there were."""
        count = self.count
        self._returned.clear()
        for level in self._levels:
            level.clear()
        self.count = self.octets = 0
        return count

    def __iter__(self) -> Iterator[QueuedMessage]:
        """Go through the messages: those given back, then by level."""
        yield from self._returned
        for level in reversed(self._levels):
            yield from level
