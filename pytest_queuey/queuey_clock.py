"""Owns the time of one test, `queuey_clock`: moved on the fake, really waited for on a real broker.

Refuses to know which: the broker under test does what its kind can do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from pytest_queuey.pace import in_seconds
from queuey_rabbitmq.core.errors import DeadlineExceededError, NothingPending

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Steps(Protocol):
    """Something that works a step at a time: a Worker."""

    def step(self) -> bool:
        """Do what is ready, at most one thing; tell whether there was anything."""


class QueueyClock:
    """The clock of the test's broker."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._broker = broker

    def now_ms(self) -> int:
        """Return the broker's time, in ms since the epoch."""
        return self._broker.now_ms()

    def advance(self, duration: timedelta | float) -> None:
        """Let a duration (seconds or timedelta) pass; everything due in it has happened when this returns.

        On a real broker it is really waited for; the test fails where that is longer than the ini
        queuey_max_real_wait allows.
        """
        self._broker.advance(duration)

    def move_to(self, instant: datetime) -> None:
        """Let time pass until an instant; one without a time zone is in UTC. Raises ValueError for one in the past."""
        self._broker.advance(self._until(instant))
        self._show_exactly(instant)

    async def wait(self, duration: timedelta | float) -> None:
        """Let a duration pass as `advance` does, for a coroutine: other tasks run at each instant that is due.

        Unlike `asyncio.sleep` it ends while time is frozen, and takes no real time on the fake.
        """
        fake = self._broker.fake
        if fake is None:
            import asyncio

            await asyncio.get_running_loop().run_in_executor(None, self._broker.advance, duration)
            return
        end_ms = self._end_ms(in_seconds(duration))
        from pytest_queuey.loop_time import LoopTime

        time = LoopTime(fake)
        await time.let_tasks_work()
        while self.now_ms() < end_ms:
            self._broker.pace.move_on(end_ms)
            await time.let_tasks_work()

    def run(
        self,
        *workers: Steps | Callable[[], object],
        until: datetime | Callable[[], object] | None = None,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> int:
        """Let time pass while workers work along, in this thread; return how many steps they took.

        At each instant at which something is due all that is ready is worked off, before time moves on: handlers see
        that instant as now, and of several workers each takes one step in turn. A worker has a method `step`, as
        Worker does, or is called itself; either does at most one thing, and returns whether there was anything.

        It ends after the duration, the last instant included, or at `until`: an instant, or a condition, which is
        looked at after every step. A condition that is not met within the duration raises DeadlineExceededError, and
        without a duration NothingPending as soon as nothing can meet it any more.

        On a real broker it takes as long as it says, within the ini queuey_max_real_wait.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        instant = until if isinstance(until, datetime) else None
        if instant is not None:
            span = self._until(instant)
        is_met = None if isinstance(until, datetime) else until
        if is_met is not None and not callable(is_met):
            raise TypeError(f"until: expected a datetime, or a function that tells whether to end, got {until!r}")
        if is_met is None and not workers:
            raise ValueError("run needs something to run: a worker, or a function")
        steps = [_step_of(worker) for worker in workers]
        end_ms = None if is_met is not None and not span else self._end_ms(span.total_seconds())
        taken = _Stretch(self._broker, steps, is_met, end_ms).run()
        if instant is not None:
            self._show_exactly(instant)
        return taken

    def _show_exactly(self, instant: datetime) -> None:
        if self._broker.fake is not None:
            self._broker.fake.manual_clock.show_exactly(_aware(instant))

    def _until(self, instant: datetime) -> timedelta:
        if not isinstance(instant, datetime):
            raise TypeError(f"an instant is a datetime, not {instant!r}")
        aware = _aware(instant)
        left = (aware - _EPOCH) - self._broker.now_ms() * _MILLISECOND
        if left < timedelta(0):
            raise ValueError(f"{aware.isoformat()} is {-left} in the past of the broker: its time cannot go back")
        return left - left % _MILLISECOND

    def _end_ms(self, seconds: float) -> int:
        if seconds < 0:
            raise ValueError(f"time advances forwards, not by {seconds:g} s")
        self._broker.pace.check(seconds)
        return self._broker.now_ms() + round(seconds * 1000)


def _aware(instant: datetime) -> datetime:
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _step_of(worker: Steps | Callable[[], object]) -> Callable[[], object]:
    step = worker if callable(worker) else getattr(worker, "step", None)
    if not callable(step):
        raise TypeError(f"run drives workers, which have a method `step`, and functions, not {worker!r}")
    return step


class _Stretch:
    """A stretch of time through which workers are driven."""

    def __init__(
        self,
        broker: BrokerUnderTest,
        steps: list[Callable[[], object]],
        is_met: Callable[[], object] | None,
        end_ms: int | None,
    ) -> None:
        self._broker = broker
        self._pace = broker.pace
        self._steps = steps
        self._is_met = is_met
        self._end_ms = end_ms
        self._taken = 0

    def run(self) -> int:
        """Drive the workers; return how many steps they took."""
        began_ms = self._broker.now_ms()
        self._pace.begin()
        while True:
            # Other threads may still be at something that makes work for these.
            self._pace.let_others_finish()
            if self._work_off():
                if self._meets():
                    return self._taken
                continue
            if self._meets():
                return self._taken
            now_ms = self._broker.now_ms()
            if self._end_ms is not None and now_ms >= self._end_ms + self._pace.lag_ms:
                if self._is_met is None:
                    return self._taken
                raise DeadlineExceededError(
                    f"the condition was not met within {(now_ms - began_ms) / 1000:g} s{self._pace.explain()}"
                )
            if self._end_ms is None:
                self._check_anything_may_come(now_ms - began_ms)
            self._pace.move_on(self._end_ms)

    def _meets(self) -> bool:
        return self._is_met is not None and bool(self._is_met())

    def _work_off(self) -> bool:
        """Let each worker take one step; tell whether any had something to do."""
        worked = False
        for step in self._steps:
            if step():
                worked = True
                self._taken += 1
                if self._meets():
                    break
        return worked

    def _check_anything_may_come(self, passed_ms: int) -> None:
        self._pace.check(passed_ms / 1000)
        if self._pace.is_over():
            raise NothingPending(f"the condition is not met, and nothing is due any more{self._pace.explain()}")
