"""A manual clock moves only when told to, and stops wherever something is due."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from queuey_fake import FakeBroker
from queuey_fake.clock import ManualClock, duration_ms, epoch_ms

START = datetime(2030, 1, 1, tzinfo=UTC)


class Recorder:
    """A participant with instants at which something is due, that notes when it is told of a move."""

    def __init__(self, clock: ManualClock, *due_s: float) -> None:
        self.clock = clock
        self.due = sorted(epoch_ms(START) + round(seconds * 1000) for seconds in due_s)
        self.seen: list[float] = []
        self.warned: list[float] = []

    def next_due_ms(self) -> int | None:
        return self.due[0] if self.due else None

    def take_in(self) -> None:
        """Have nothing on its way."""

    def before_move(self) -> None:
        self.warned.append((self.clock.now_ms() - epoch_ms(START)) / 1000)

    def clock_moved(self) -> None:
        now = self.clock.now_ms()
        self.seen.append((now - epoch_ms(START)) / 1000)
        self.due = [due for due in self.due if due > now]


def test_it_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(START)
    assert clock.now_ms() == clock.now_ms() == epoch_ms(START)
    clock.advance(1.5)
    assert clock.now_ms() == epoch_ms(START) + 1500


def test_one_jump_stops_at_every_instant_at_which_something_is_due() -> None:
    clock = ManualClock(START)
    recorder = Recorder(clock, 10, 20, 99)
    clock.join(recorder)
    clock.advance(timedelta(seconds=30))
    assert recorder.seen == [10, 20, 30]


def test_participants_are_told_before_each_move_of_time() -> None:
    clock = ManualClock(START)
    recorder = Recorder(clock, 10)
    clock.join(recorder)
    clock.advance(30)
    assert recorder.warned == [0, 10]


def test_several_participants_share_the_stops_in_order() -> None:
    clock = ManualClock(START)
    first, second = Recorder(clock, 10, 30), Recorder(clock, 20)
    clock.join(first)
    clock.join(second)
    clock.advance(30)
    assert first.seen == second.seen == [10, 20, 30]


@pytest.mark.parametrize("show", [freeze_time(START), time_machine.travel(START, tick=False)])
def test_clocks_that_follow_shown_time_stop_wherever_one_of_them_has_something_due(show: Any) -> None:
    with show:
        clocks = ManualClock(), ManualClock()
        first, second = Recorder(clocks[0], 10, 30), Recorder(clocks[1], 20)
        clocks[0].join(first)
        clocks[1].join(second)
        clocks[0].advance(30)
        assert sorted(set(second.seen)) == sorted(set(first.seen)) == [10, 20, 30]


def test_what_is_due_in_the_past_happens_now() -> None:
    clock = ManualClock(START)
    recorder = Recorder(clock, -5)
    clock.join(recorder)
    clock.advance(1)
    assert recorder.seen == [0, 1]


def test_going_back_stops_nowhere() -> None:
    clock = ManualClock(START)
    recorder = Recorder(clock, 10)
    clock.join(recorder)
    clock.move_to(START - timedelta(days=1))
    assert recorder.seen == [-86400]


def test_a_participant_that_left_is_told_nothing() -> None:
    clock = ManualClock(START)
    recorder = Recorder(clock, 10)
    leave = clock.join(recorder)
    leave()
    leave()
    clock.advance(60)
    assert recorder.seen == []


@pytest.mark.parametrize("duration", ["30", None])
def test_what_is_no_duration_is_refused_by_what_it_is(duration: Any) -> None:
    with pytest.raises(TypeError, match=f"a duration is a number of seconds or a timedelta, not {duration!r}"):
        ManualClock(START).advance(duration)


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_length_of_time_is_refused_as_that(duration: float) -> None:
    with pytest.raises(ValueError, match=f"{duration!r} seconds is no length of time"):
        ManualClock(START).advance(duration)


def test_it_ends_with_the_year_9999() -> None:
    clock = ManualClock()
    clock.move_to(datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))
    with pytest.raises(ValueError, match="time ends with the year 9999"):
        clock.advance(0.001)


def test_it_does_not_advance_backwards() -> None:
    with pytest.raises(ValueError, match="forwards"):
        ManualClock(START).advance(-1)


def test_an_instant_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2030, 1, 1))  # noqa: DTZ001 -- the naive datetime is the point


@pytest.mark.parametrize(("duration", "ms"), [(0.1, 100), (29.2, 29200), (timedelta(days=24), 2073600000), (3, 3000)])
def test_durations_are_exact_to_the_millisecond(duration: timedelta | float, ms: int) -> None:
    assert duration_ms(duration) == ms


@pytest.mark.parametrize("no_clock", [5, "now", datetime(2030, 1, 1, tzinfo=UTC)])
def test_what_is_no_clock_is_refused(no_clock: Any) -> None:
    with pytest.raises(TypeError, match="expected a clock, such as ManualClock"):
        FakeBroker(clock=no_clock)
