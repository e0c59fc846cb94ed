"""Which operations must have ended by when. Knows no clock and ends nothing itself."""

from __future__ import annotations

from collections import deque

from queuey_rabbitmq.session.operations import Operation

SWEEP_FROM = 1024
"""From so many operations on, those that have finished behind one that has not are looked for."""


class Deadlines:
    """Open operations, soonest deadline first.

    Operations with one timeout stand in one line, and a line is in the order of its deadlines because time does not
    go back; so adding and forgetting cost the same whatever is open. A few timeouts are in use at a time.
    """

    def __init__(self) -> None:
        self._lines: dict[int, deque[Operation]] = {}
        self._sweep_over = SWEEP_FROM

    def add(self, operation: Operation) -> None:
        """Watch an operation until it has finished."""
        line = self._lines.get(operation.timeout_ms)
        if line is None:
            line = self._lines[operation.timeout_ms] = deque()
        while line and line[0].finished:
            line.popleft()
        line.append(operation)
        if len(line) > self._sweep_over:
            # One that is never answered would keep the bodies of all that are published until its deadline.
            line = self._lines[operation.timeout_ms] = deque(one for one in line if not one.finished)
            self._sweep_over = max(SWEEP_FROM, 2 * len(line))

    def next_ms(self) -> int | None:
        """Return the soonest deadline of an operation that has not finished."""
        soonest: int | None = None
        for timeout_ms, line in list(self._lines.items()):
            while line and line[0].finished:
                line.popleft()
            if not line:
                del self._lines[timeout_ms]
            elif soonest is None or line[0].deadline_ms < soonest:
                soonest = line[0].deadline_ms
        return soonest

    def overdue(self, now_ms: int) -> list[Operation]:
        """Take out the unfinished operations whose deadline has come."""
        due = []
        for line in self._lines.values():
            while line and (line[0].finished or line[0].deadline_ms <= now_ms):
                operation = line.popleft()
                if not operation.finished:
                    due.append(operation)
        return due

    def open(self) -> list[Operation]:
        """Return every unfinished operation."""
        return [operation for line in self._lines.values() for operation in line if not operation.finished]
