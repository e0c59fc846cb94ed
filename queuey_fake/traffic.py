"""What is between clients and the broker, and the faults that stand in it: silence, delay, refused connections.

Both doors, the in-process link and the AMQP port, ask here; so a fault is the same on both, and lives by the broker's
time. Owns no socket and knows no message. Everything happens in turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Traffic:
    """All ways of one broker; `elapsed_ms` is its time."""

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        self._elapsed_ms = elapsed_ms
        self.delay_ms = 0
        """How much later everything arrives, in either direction."""
        self.hung_since_ms: int | None = None
        """Since when nothing arrives any more, in either direction; None while it does."""
        self.is_calm = True
        """Whether everything arrives at once, and nothing is on its way any more."""
        self.refused_until_ms = 0
        """Until when new connections are refused."""
        self._late: dict[Lane, None] = {}
        self._sequence = 0

    @property
    def is_hung(self) -> bool:
        """Whether nothing arrives any more."""
        return self.hung_since_ms is not None

    def hang(self) -> None:
        """Let nothing arrive any more."""
        if self.hung_since_ms is None:
            self.hung_since_ms = self._elapsed_ms()
            self.is_calm = False

    def resume(self) -> None:
        """Let things arrive again."""
        self.hung_since_ms = None
        self._look_around()

    def delay(self, ms: int) -> None:
        """Let everything arrive so much later."""
        self.delay_ms = ms
        self._look_around()

    @property
    def refuses_connections(self) -> bool:
        """Whether a connection that is tried now is refused."""
        return self._elapsed_ms() < self.refused_until_ms

    def lane(self) -> Lane:
        """Return one direction of a new connection."""
        return Lane(self)

    def hold(self, lane: Lane) -> tuple[int, int]:
        """Note that a lane has something that arrives later; return when, and its place among all that do."""
        self._late[lane] = None
        self._sequence += 1
        return self._elapsed_ms() + self.delay_ms, self._sequence

    def forget(self, lane: Lane) -> None:
        """Let go of a lane that has nothing any more."""
        self._late.pop(lane, None)
        self._look_around()

    def _look_around(self) -> None:
        self.is_calm = not (self.delay_ms or self.is_hung or self._late)

    def next_due_ms(self) -> int | None:
        """Return when something arrives next; None where nothing is on its way, or all of it hangs."""
        if not self._late or self.is_hung:
            return None
        return min(lane.next_due[0] for lane in self._late)

    def next_due_in_ms(self) -> int | None:
        """Return how long it is until then."""
        due_ms = self.next_due_ms()
        return None if due_ms is None else max(0, due_ms - self._elapsed_ms())

    def let_arrive(self) -> bool:
        """Let the next that is due arrive; return whether there was anything."""
        if not self._late or self.is_hung:
            return False
        lane = min(self._late, key=lambda lane: lane.next_due)
        if lane.next_due[0] > self._elapsed_ms():
            return False
        lane.let_arrive()
        return True


class Lane:
    """One direction of one connection: what is put in arrives in order, at once where nothing is in the way."""

    __slots__ = ("_late", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._late: deque[tuple[tuple[int, int], Callable[[], object]]] = deque()

    def __len__(self) -> int:
        return len(self._late)

    @property
    def next_due(self) -> tuple[int, int]:
        """When the next arrives, and its place among all that arrive; there must be one."""
        return self._late[0][0]

    def put(self, arrive: Callable[[], object]) -> None:
        """Let something arrive: at once, or later."""
        if self._traffic.is_calm:
            arrive()
        else:
            self._late.append((self._traffic.hold(self), arrive))

    def let_arrive(self) -> None:
        """Let the next arrive, now."""
        _, arrive = self._late.popleft()
        if not self._late:
            self._traffic.forget(self)
        arrive()

    def clear(self) -> None:
        """Lose everything that is on its way."""
        self._late.clear()
        self._traffic.forget(self)
