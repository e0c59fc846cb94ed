"""Outcomes of a worker in threads: the ack follows the confirm, and no thread waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    Deferred,
    Fatal,
    Hooks,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)
from queuey_rabbitmq.core.outstanding import HELPS_FROM, Outstanding

TIMEOUT_S = 10
JOBS = 4
DAY_S = 86_400


class Work(QueueSet, prefix="pipelined"):
    some = Queue(prefetch=JOBS, retry=RetryPolicy(max_attempts=2))


@job(Work.some)
class Do(Job[Work]):
    number: int


class Failing:
    """A handler that waits to be let go, and then raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._may_go = threading.Event()
        self._handled = threading.Semaphore(0)
        self.threads: set[threading.Thread] = set()

    def handle(self, job: Do) -> None:
        del job
        self.threads.add(threading.current_thread())
        assert self._may_go.wait(TIMEOUT_S)
        self._handled.release()
        raise self._error

    def let_go(self, *, jobs: int) -> None:
        self._may_go.set()
        for _ in range(jobs):
            assert self._handled.acquire(timeout=TIMEOUT_S), "a job was not handled"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


def wait_until(happened: Callable[[], bool]) -> None:
    never = threading.Event()
    for _ in range(1000):
        if happened():
            return
        never.wait(TIMEOUT_S / 1000)
    raise AssertionError(f"it did not happen within {TIMEOUT_S} s")


def depth(broker: FakeBroker, queue: str) -> int:
    found = broker.queue(queue)
    return 0 if found is None else found.ready


@pytest.mark.parametrize(
    ("error", "queue"),
    [
        (Fatal("no such mailbox"), "pipelined.some.dead"),
        (Retryable("503", delay=DAY_S), f"pipelined.some.deferred.{DAY_S * 1000}"),
        (Deferred(DAY_S, "too early"), f"pipelined.some.deferred.{DAY_S * 1000}"),
    ],
)
def test_one_thread_has_many_outcomes_under_way_and_shutdown_waits_for_their_confirms(
    broker: FakeBroker,
    start: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    queue: str,
) -> None:
    caplog.set_level(logging.INFO, "queuey_rabbitmq.worker")
    backend = broker.backend()
    Producer(backend, Work).enqueue_many([Do(n) for n in range(JOBS)])
    worker, failing = Worker(backend, Work, concurrency=1), Failing(error)
    worker.register(Do, failing)
    running = start(worker)
    wait_until(lambda: broker.queue(Work.some.name).unacked == JOBS)
    broker.faults.block()  # nothing is read from who publishes, and no confirm can come
    failing.let_go(jobs=JOBS)
    worker.shutdown()
    wait_until(lambda: "it takes no more jobs" in caplog.text)
    (thread,) = failing.threads
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert depth(broker, queue) == 0
    assert not running.ended.done()
    # What ends the worker is the confirms alone. Were time moved, it would not stand still for the thread that looks
    # after the worker, and what that does within a deadline might come after it.
    broker.faults.unblock()
    running.ended.result(TIMEOUT_S)
    assert depth(broker, queue) == JOBS
    assert broker.queue(Work.some.name).unacked == depth(broker, Work.some.name) == 0
    assert worker.settle_failures == 0


def test_an_outcome_that_the_broker_refuses_is_counted_and_the_job_given_back_after_the_backoff(
    broker: FakeBroker, start: Callable[..., Any]
) -> None:
    backend = broker.backend()
    Producer(backend, Work).enqueue(Do(1))
    worker, failing = Worker(backend, Work, concurrency=1, settle_backoff=5), Failing(Fatal("no such mailbox"))
    worker.register(Do, failing)
    broker.faults.nack_next()
    start(worker)
    failing.let_go(jobs=1)
    wait_until(lambda: worker.settle_failures == 1)
    assert broker.queue(Work.some.name).unacked == 1
    broker.advance(6)
    failing.let_go(jobs=1)
    wait_until(lambda: depth(broker, "pipelined.some.dead") == 1)
    assert worker.settle_failures == 1


def test_a_job_is_given_back_before_anybody_is_told_that_its_outcome_has_failed(broker: FakeBroker) -> None:
    class Advancing(Hooks):
        def settle_failed(self, context: JobContext, error: BaseException) -> None:
            del context, error
            broker.advance(5)

    def handle(job: Do) -> None:
        del job
        raise Fatal("no such mailbox")

    backend = broker.backend()
    Producer(backend, Work).enqueue(Do(1))
    worker = Worker(backend, Work, settle_backoff=5, hooks=[Advancing()])
    worker.register(Do, handle)
    broker.faults.nack_next()
    assert worker.step()
    assert worker.settle_failures == 1
    assert worker.step()
    assert depth(broker, "pipelined.some.dead") == 1


def test_whoever_adds_an_outcome_helps_when_many_answers_have_not_been_looked_at() -> None:
    woken, seen = [], []
    outstanding = Outstanding(wake=lambda: woken.append(True))
    answered: Future[None] = Future()
    answered.set_result(None)
    for _ in range(HELPS_FROM):
        outstanding.follow(answered, seen.append)
    assert (len(woken), len(seen), len(outstanding)) == (1, 0, HELPS_FROM)
    outstanding.follow(Future(), seen.append)
    assert seen == [None] * HELPS_FROM
    assert len(outstanding) == 1


def test_what_an_interrupt_keeps_from_an_answer_is_done_at_the_next_look() -> None:
    woken, seen = [], []
    outstanding = Outstanding(wake=lambda: woken.append(True))
    answered: Future[None] = Future()
    answered.set_result(None)

    def interrupted(_error: BaseException | None) -> None:
        raise KeyboardInterrupt

    for then in (seen.append, interrupted, seen.append):
        outstanding.follow(answered, then)
    with pytest.raises(KeyboardInterrupt):
        outstanding.look()
    assert (seen, len(outstanding), len(woken)) == ([None], 1, 2)
    outstanding.look()
    assert (seen, len(outstanding)) == ([None, None], 0)
