"""Deadlines name what is overdue, soonest first, and forget what has finished."""

from weakref import ref

from queuey_rabbitmq.session.deadlines import SWEEP_FROM, Deadlines
from queuey_rabbitmq.session.operations import Step


class Watched(Step):
    """A step that can be looked at without being kept."""

    __slots__ = ("__weakref__",)


def step(deadline_ms: int, timeout_ms: int = 100) -> Step:
    return Step("waiting", deadline_ms=deadline_ms, timeout_ms=timeout_ms)


def test_the_soonest_deadline_of_any_timeout_is_next() -> None:
    deadlines = Deadlines()
    deadlines.add(step(500, timeout_ms=500))
    deadlines.add(step(100, timeout_ms=100))
    assert deadlines.next_ms() == 100


def test_what_has_finished_is_forgotten() -> None:
    deadlines = Deadlines()
    finished, open_one = step(100), step(150)
    deadlines.add(finished)
    deadlines.add(open_one)
    finished.finished = True
    assert deadlines.next_ms() == 150
    assert deadlines.open() == [open_one]


def test_what_is_overdue_is_taken_out_once() -> None:
    deadlines = Deadlines()
    due, later = step(100), step(150)
    deadlines.add(due)
    deadlines.add(later)
    assert deadlines.overdue(100) == [due]
    assert deadlines.overdue(100) == []
    assert deadlines.next_ms() == 150


def test_what_has_finished_is_not_kept_behind_one_that_is_never_answered() -> None:
    deadlines = Deadlines()
    deadlines.add(unanswered := step(100))
    done = []
    for _ in range(4 * SWEEP_FROM):
        deadlines.add(last := Watched("publishing", deadline_ms=150, timeout_ms=100))
        last.finished = True
        done.append(ref(last))
    assert sum(operation() is not None for operation in done) <= 2 * SWEEP_FROM
    assert deadlines.open() == [unanswered]


def test_nothing_open_has_no_deadline() -> None:
    assert Deadlines().next_ms() is None
