"""The checks of the torture notice what they are there for; in memory, and in no time."""

from __future__ import annotations

import itertools
import time

from tests.torture.fates import FAULTS, fate_of, faults_of
from tests.torture.record import UNANSWERED_S, Record, following

SEED = 3
FIRST = (1, 0)
HOUR = 3600


def job_whose_fate(record: Record, *, last: str, steps: int) -> int:
    """Return the first job of a record that ends so, after so many runs."""
    return next(
        number
        for number in iter(record.new_job, None)
        if len(fate := fate_of(SEED, number)) == steps and fate[-1].outcome == last
    )


def test_a_seed_alone_decides_what_becomes_of_jobs_and_which_faults_come() -> None:
    assert [fate_of(SEED, number) for number in range(100)] == [fate_of(SEED, number) for number in range(100)]
    several = [list(itertools.islice(faults_of(seed), 100)) for seed in (SEED, SEED, SEED + 1)]
    assert several[0] == several[1] != several[2]
    assert {fault.kind for fault in several[0]} == set(FAULTS)


def test_jobs_end_in_every_way_and_wait_in_every_way() -> None:
    outcomes = {step.outcome for number in range(200) for step in fate_of(SEED, number)}
    assert outcomes == {"done", "dead", "defer", "retry"}


def test_a_published_job_is_unfinished_until_its_last_run() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=2)
    record.confirmed(number)
    first = record.ran(number, FIRST)
    assert record.unfinished() == [number]
    record.ran(number, (2, 0) if first.outcome == "retry" else (1, 1))
    assert record.unfinished() == []


def test_a_job_that_was_not_reported_as_published_may_be_missing() -> None:
    record = Record(SEED)
    job_whose_fate(record, last="done", steps=1)
    assert record.unfinished() == []


def test_a_run_before_its_time_is_early() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    record.asked(number, FIRST, HOUR)
    record.ran(number, FIRST)
    assert [entry.partition(",")[0] for entry in record.early] == [f"job {number}"]


def test_a_run_right_after_it_was_put_off_is_early() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=2)
    first = record.ran(number, FIRST)
    record.ran(number, (2, 0) if first.outcome == "retry" else (1, 1))
    assert len(record.early) == 1


def test_a_run_that_comes_twice_is_a_duplicate_and_not_early() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    record.ran(number, FIRST)
    record.ran(number, FIRST)
    assert (record.duplicates, record.early) == (1, [])


def test_a_published_job_that_should_be_dead_and_is_not_is_missing() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="dead", steps=1)
    record.confirmed(number)
    record.ran(number, FIRST)
    assert record.missing(set()) == [number]
    assert record.missing({number}) == []


def test_what_came_back_right_before_the_broker_was_killed_is_told_from_what_did_not() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    now = time.time()
    record.asked(number, FIRST, 0.0)
    record.held(number, FIRST)
    assert record.came_back_before(number, [now + 1])
    assert not record.came_back_before(number, [now - 1, now + UNANSWERED_S])
    assert record.came_back_before(number, [now + HOUR], absences=[(now - 1, now + HOUR - 1)])


def test_what_came_back_while_the_broker_was_shut_down_is_told_from_what_came_before_or_after() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    record.asked(number, FIRST, HOUR)
    record.held(number, FIRST)
    due = time.time() + HOUR
    assert record.came_back_in(number, [(due - 1, due + 1)])
    assert not record.came_back_in(number, [(due - 2, due - 1)])
    assert not record.came_back_in(number, [(due + 1, due + 2)])


def test_what_was_asked_for_twice_may_have_come_back_twice() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    for delay_s in (0.0, HOUR):
        record.asked(number, FIRST, delay_s)
        record.held(number, FIRST)
    now = time.time()
    assert record.came_back_before(number, [now + 1])
    assert record.came_back_before(number, [now + HOUR + 1])
    assert not record.came_back_before(number, [now + HOUR - 1])


def test_where_a_job_came_back_for_a_run_before_its_last_does_not_matter() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=2)
    record.asked(number, FIRST, 0.0)
    record.held(number, FIRST)
    now = time.time()
    assert record.came_back_before(number, [now + 1])
    first = record.ran(number, FIRST)
    record.ran(number, following(FIRST, first))
    assert not record.came_back_before(number, [now + 1])


def test_a_hold_that_was_not_confirmed_may_have_begun_as_late_as_a_publish_may_wait() -> None:
    record = Record(SEED)
    number = job_whose_fate(record, last="done", steps=1)
    record.asked(number, FIRST, 0.0)
    now = time.time()
    assert record.came_back_before(number, [now + UNANSWERED_S])
    assert not record.came_back_before(number, [now + HOUR])
