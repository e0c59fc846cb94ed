"""What came back to a quorum queue and waits before it is ready again (x-delayed-retry-type, RabbitMQ 4.3).

Owns which returns are delayed, for how long, and the order in which they become ready (rabbit_fifo:should_delay,
calculate_ready_at, delayed_in). Knows neither timers nor consumers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from queuey_fake.model.message import QueuedMessage


@dataclass(frozen=True, slots=True)
class DelayedRetry:
    """What the arguments ask for: `kind` is "all", "failed" (what counts a delivery) or "returned" (what does not)."""

    kind: str
    min_ms: int
    max_ms: int

    def delay_ms(self, delivery_count: int, *, counts: bool) -> int | None:
        """Return how long a message waits that came back, longer with each counted delivery; None for not at all."""
        if self.kind == ("returned" if counts else "failed"):
            return None
        return min(self.min_ms * max(1, delivery_count), self.max_ms)


class DelayedMessages:
    """The messages that wait, by the instant at which they are ready, and by age where that is the same."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, QueuedMessage]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def messages(self) -> list[QueuedMessage]:
        """What waits, in no order."""
        return [queued for _, _, queued in self._heap]

    @property
    def next_ms(self) -> int | None:
        """The instant at which the first is ready, None where none waits."""
        return self._heap[0][0] if self._heap else None

    def add(self, queued: QueuedMessage, ready_ms: int) -> None:
        """Have a message wait."""
        heapq.heappush(self._heap, (ready_ms, queued.sequence, queued))

    def take_ready(self, now_ms: int) -> list[QueuedMessage]:
        """Take out what is ready, in order."""
        taken = []
        while self._heap and self._heap[0][0] <= now_ms:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def clear(self) -> int:
        """Drop everything; return how many there were."""
        count = len(self._heap)
        self._heap.clear()
        return count
