"""Registering handlers: which callables are handlers, and which are refused at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from queuey_rabbitmq import InvalidConfigError, Job, JobContext, Queue, QueueSet, RetryPolicy, handles, job
from queuey_rabbitmq.core.handlers import Handler, add_handler
from queuey_rabbitmq.core.jobs import declared


class Work(QueueSet):
    some = Queue()


@job(Work.some, timeout=5)
class Do(Job[Work]):
    number: int


def added(handler: Any, **options: Any) -> Handler:
    handlers: dict[str, Handler] = {}
    add_handler(handlers, declared(Do), handler, **{"retry": None, "timeout": None} | options)
    return handlers["do"]


def takes_job(job: Do) -> None: ...
def takes_both(job: Do, context: JobContext) -> None: ...
def may_take_context(job: Do, context: JobContext | None = None) -> None: ...
def has_a_default(job: Do, times: int = 3) -> None: ...
def takes_anything(*job: Any) -> None: ...
def takes_another(job: Do, context: JobContext, more: int) -> None: ...
def takes_nothing() -> None: ...
def takes_a_name(job: Do, *, name: str) -> None: ...
def yields(job: Do) -> Iterator[int]:
    yield job.number


async def yields_async(job: Do) -> AsyncIterator[int]:
    yield job.number


async def is_async(job: Do, context: JobContext) -> None: ...


class Sender:
    def handle(self, job: Do, context: JobContext) -> None: ...
    def retry_policy(self, job: Do) -> RetryPolicy | None:
        return RetryPolicy.fixed(job.number, 1)


class IsCalled:
    def __call__(self, job: Do) -> None: ...


@pytest.mark.parametrize(
    ("handler", "wants_context"),
    [
        (takes_job, False),
        (takes_both, True),
        (may_take_context, True),
        (has_a_default, False),
        (takes_anything, False),
        (is_async, True),
        (Sender(), True),
        (IsCalled(), False),
        (partial(takes_another, more=3), True),
        (lambda job: job, False),
        ([].append, False),
    ],
)
def test_a_handler_gets_the_context_if_its_signature_asks_for_it(handler: Any, wants_context: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    assert added(handler).wants_context is wants_context


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (takes_another, r"handler of Do: takes_another\(.* must take the job, and may take its context"),
        (takes_nothing, r"takes_nothing\(\).* must take the job"),
        (takes_a_name, "must take the job"),
        (yields, "yields is a generator: calling it would do nothing"),
        (yields_async, "yields_async is a generator"),
        (Sender, "expected a function or an object, got the class Sender"),
        ("send", "expected a function, or an object with a method `handle`, got 'send'"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(handler: Any, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        added(handler)


def test_a_handlers_timeout_and_choice_come_before_the_jobs_and_the_objects() -> None:
    assert added(takes_job).timeout_ms == 5000
    assert added(takes_job, timeout=0.5).timeout_ms == 500
    by_method = added(Sender()).choose_retry
    assert by_method is not None
    assert by_method(Do(4)) == RetryPolicy.fixed(4, 1)
    given = added(Sender(), retry=lambda _: None).choose_retry
    assert given is not None
    assert given(Do(4)) is None


def test_two_handlers_of_one_job_type_are_refused() -> None:
    handlers: dict[str, Handler] = {}
    add_handler(handlers, declared(Do), takes_job, retry=None, timeout=None)
    with pytest.raises(InvalidConfigError, match="handler of Do: takes_job is its handler already; a job type has one"):
        add_handler(handlers, declared(Do), takes_both, retry=None, timeout=None)


def test_a_handler_of_every_worker_is_kept_with_the_set_and_stays_what_it_is() -> None:
    @job(Work.some)
    class Shared(Job[Work]):
        number: int

    @handles(Shared, timeout=3)
    def shared(job: Shared) -> int:
        return job.number * 2

    assert shared(Shared(3)) == 6
    kept = Work.__handlers__["shared"]
    assert (kept.function, kept.timeout_ms) == (shared, 3000)
    with pytest.raises(InvalidConfigError, match="is its handler already"):
        handles(Shared)(takes_job)


def test_what_is_no_job_has_no_handler() -> None:
    with pytest.raises(InvalidConfigError, match="int is not declared as a job"):
        handles(int)  # type: ignore[arg-type] -- that is the test
