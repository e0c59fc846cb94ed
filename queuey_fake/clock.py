"""Clocks that a fake broker lives by: one that tests move, and the system's.

A clock moves in instants: on the way to where it is told to go it stops at every instant at which one of its
participants (brokers) has something due, so that one long jump and many short steps come to the same. Knows nothing
of what is due.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from queuey_fake import frozen_time, real_time

MS_PER_SECOND = 1000
LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which there is no datetime."""


class Participant(Protocol):
    """Something that lives by a clock: a broker."""

    def next_due_ms(self) -> int | None:
        """Return the next instant, in ms since the epoch, at which something is due."""

    def take_in(self) -> None:
        """Let what has already been sent to it take effect."""

    def before_move(self) -> None:
        """Let that take effect, and other threads finish, before time moves on."""

    def clock_moved(self) -> None:
        """Let everything that is due happen, and everything that follows from it."""


class Clock(Protocol):
    """The time of a fake broker, in ms since the epoch."""

    is_virtual: bool
    """Whether a test moves it; if not, it moves by itself."""

    def now_ms(self) -> int:
        """Return the present."""

    def join(self, participant: Participant) -> Callable[[], None]:
        """Tell a participant of every move from now on; the callable that is returned ends that."""


class ManualClock:
    """A clock that moves only when it is told to.

    With a `start` (an aware datetime) it keeps to a time of its own. Without one it starts at the present, and while
    freezegun or time-machine shows a time to the test, it is that time: it follows when the test moves it, moves it
    when it is moved itself, and comes back to its own when the real time is shown again.

    Only the thread that drives a test may move it.
    """

    is_virtual = True

    def __init__(self, start: datetime | None = None) -> None:
        self._follows = start is None
        self._own_ms = epoch_ms(start) if start is not None else real_time.now_ms()
        self._participants: list[Participant] = []
        self.library: str | None = None
        """Whose time it is, or last was: freezegun's or time-machine's; None where it has kept to its own."""
        if self._follows:
            self.library = frozen_time.shown_by()
            _following.add(self)
            frozen_time.listen(self)

    def __repr__(self) -> str:
        return f"<ManualClock at {datetime.fromtimestamp(self.now_ms() / MS_PER_SECOND, UTC).isoformat()}>"

    def now_ms(self) -> int:
        """Return the present."""
        shown_ms = frozen_time.shown_ms() if self._follows else None
        return self._own_ms if shown_ms is None else shown_ms

    def join(self, participant: Participant) -> Callable[[], None]:
        """Tell a participant of every move from now on; the callable that is returned ends that, once or more often."""
        self._participants.append(participant)
        return lambda: self._leave(participant)

    def _leave(self, participant: Participant) -> None:
        if participant in self._participants:
            self._participants.remove(participant)

    def advance(self, duration: timedelta | float) -> None:
        """Move on by a duration (timedelta or seconds, of 0 and more); everything due happens, at its own instant."""
        ms = duration_ms(duration)
        if ms < 0:
            raise ValueError(f"a clock advances forwards, not by {duration!r}; move_to() goes back")
        self.move_to_ms(self.now_ms() + ms)

    def move_to(self, instant: datetime) -> None:
        """Move to an instant (an aware datetime); going back undoes nothing and makes nothing happen."""
        self.move_to_ms(epoch_ms(instant))
        self.show_exactly(instant)

    def show_exactly(self, instant: datetime) -> None:
        """Have a library that shows the ms of an instant (an aware datetime) show the instant itself."""
        ms = epoch_ms(instant)
        if self._follows and frozen_time.shown_ms() == ms:
            frozen_time.move_shown_to(ms, below_ms=timedelta(microseconds=instant.microsecond % 1000))

    def move_to_ms(self, target_ms: int) -> None:
        """Move to an instant in ms since the epoch, stopping wherever something is due on the way."""
        if target_ms > LAST_MS:
            raise ValueError(f"time ends with the year 9999, and it was to move to {target_ms} ms since 1970")
        stopped_ms = None
        while True:
            self.before_move()
            due_ms = self.next_due_ms()
            if due_ms is None or due_ms > target_ms:
                break
            stopped_ms = max(due_ms, self.now_ms())
            self.stop_at(stopped_ms)
        if stopped_ms != target_ms:
            self.stop_at(target_ms)

    def before_move(self) -> None:
        """Let everybody finish what they are at before time moves on."""
        for participant in self._movers():
            participant.before_move()

    def next_due_ms(self) -> int | None:
        """Return the next instant, in ms since the epoch, at which something is due; None where nothing is."""
        due = [ms for participant in self._movers() if (ms := participant.next_due_ms()) is not None]
        return min(due, default=None)

    def shown_time_changes(self) -> None:
        """Let what was sent to the participants before a library freezes, moves or thaws time take effect before it."""
        for participant in list(self._participants):
            participant.take_in()

    def shown_time_changed(self) -> None:
        """Tell the participants: a library has frozen, moved or thawed time."""
        self.library = frozen_time.shown_by() or self.library
        for participant in list(self._participants):
            participant.clock_moved()

    def stop_at(self, now_ms: int) -> None:
        """Be at an instant, in ms since the epoch, past which nothing is due; what is due at it happens."""
        if self._follows and (shown_ms := frozen_time.shown_ms()) is not None:
            if shown_ms != now_ms:
                frozen_time.move_shown_to(now_ms)
        else:
            self._own_ms = now_ms
        for participant in self._movers():
            participant.clock_moved()

    def _movers(self) -> list[Participant]:
        """Return all that moves with this clock: while time is shown, that is what moves with any that follows it."""
        if not self._follows or frozen_time.shown_ms() is None:
            return list(self._participants)
        return [participant for clock in list(_following) for participant in clock._participants]  # noqa: SLF001 -- its own class


_following: weakref.WeakSet[ManualClock] = weakref.WeakSet()
"""The clocks that go by shown time: while there is one, they are one."""


class SystemClock:
    """The wall clock of this machine. It cannot be moved."""

    is_virtual = False

    def now_ms(self) -> int:
        """Return the present."""
        return real_time.now_ms()

    def join(self, participant: Participant) -> Callable[[], None]:
        """Do nothing: participants of a clock that moves by itself look at it when they have something to do."""
        del participant
        return lambda: None


def epoch_ms(instant: datetime) -> int:
    """Return an aware datetime in ms since the epoch, rounded down."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; write datetime(..., tzinfo=UTC)")
    return (instant - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def duration_ms(duration: timedelta | float) -> int:
    """Return a timedelta or a number of seconds in ms, rounded to the nearest.

    Raises TypeError for anything else, and ValueError for what is no length of time.
    """
    if isinstance(duration, timedelta):
        return round(duration / timedelta(milliseconds=1))
    try:
        return round(duration * MS_PER_SECOND)
    except TypeError as error:
        raise TypeError(f"a duration is a number of seconds or a timedelta, not {duration!r}") from error
    except (ValueError, OverflowError) as error:  # NaN, infinity
        raise ValueError(f"{duration!r} seconds is no length of time") from error
