"""The broker's time: what instant it is, and what is due when.

Owns the current instant and the timers, in the order (deadline, sequence): of two due at the same millisecond the one
set first fires first, so one run is like another. Reads no clock; whoever drives the broker moves it on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sortedcontainers import SortedList


class Timer(NamedTuple):
    """One timer that is set. The sequence is unique, so comparing two never reaches the action."""

    due_ms: int
    sequence: int
    action: Callable[[], None]


class Timers:
    """The current instant, `now_ms`, and all timers of one broker; the next fires at `next_due_ms`, None is never."""

    __slots__ = ("_sequence", "_timers", "next_due_ms", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.next_due_ms: int | None = None
        self._sequence = 0
        self._timers: SortedList[Timer] = SortedList()

    def set(self, due_ms: int, action: Callable[[], None]) -> Timer:
        """Set a timer; one that is due already fires when due timers are looked at next."""
        self._sequence += 1
        timer = Timer(due_ms, self._sequence, action)
        self._timers.add(timer)
        self._look_at_first()
        return timer

    def cancel(self, timer: Timer) -> None:
        """Take away a timer that has not fired."""
        self._timers.remove(timer)
        self._look_at_first()

    def take_due(self, until_ms: int) -> Timer | None:
        """Take the timer that fires next if it is due by then, and be at its instant, where that lies ahead."""
        if self.next_due_ms is None or self.next_due_ms > until_ms:
            return None
        timer: Timer = self._timers.pop(0)
        self._look_at_first()
        self.now_ms = max(min(self.now_ms, until_ms), timer.due_ms)
        return timer

    def _look_at_first(self) -> None:
        self.next_due_ms = self._timers[0].due_ms if self._timers else None
