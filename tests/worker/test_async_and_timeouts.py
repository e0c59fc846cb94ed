"""Handlers that are coroutines, and handlers that take too long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    Deferred,
    Envelope,
    Fatal,
    Hooks,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)
from queuey_rabbitmq.core import event_loop

TIMEOUT_S = 10


class Work(QueueSet, prefix="slow"):
    some = Queue(prefetch=4, retry=RetryPolicy.fixed(2, 0.1))


@job(Work.some, timeout=0.05)
class Do(Job[Work]):
    number: int


@job(Work.some)
class DoAtLeisure(Job[Work]):
    number: int


DeadLetters = Callable[[Any], list[tuple[Envelope, str]]]


@pytest.fixture
def producer(backend: RabbitMqBackend) -> Producer[Work]:
    return Producer(backend, Work)


@pytest.fixture
def worker(backend: RabbitMqBackend) -> Worker[Work]:
    return Worker(backend, Work, concurrency=4, random_source=lambda: 1.0)


def test_a_coroutine_is_awaited_on_one_loop_of_the_workers_own(producer: Producer[Work], worker: Worker[Work]) -> None:
    loops, threads = [], []

    @worker.handler(DoAtLeisure)
    async def do(job: DoAtLeisure, context: JobContext) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, str), TIMEOUT_S)
        loops.append(asyncio.get_running_loop())
        threads.append(threading.current_thread().name)
        assert context.attempt == 1

    producer.enqueue_many([DoAtLeisure(1), DoAtLeisure(2)])
    worker.run(burst=True)
    assert loops == [loops[0]] * 2
    assert threads == ["queuey worker's event loop"] * 2
    assert threading.current_thread().name not in threads
    assert "queuey worker's event loop" not in [thread.name for thread in threading.enumerate()]


class Eventually:
    """What can be awaited and is no coroutine, as compiled libraries and wrappers return it."""

    def __init__(self, outcome: Exception | None, awaited: list[str]) -> None:
        self.outcome = outcome
        self.awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        yield  # lets others on the loop run
        self.awaited.append(threading.current_thread().name)
        if self.outcome is not None:
            raise self.outcome


def test_whatever_a_handler_returns_to_be_awaited_is(
    producer: Producer[Work], worker: Worker[Work], dead_letters: DeadLetters
) -> None:
    awaited: list[str] = []
    outcomes = [None, Fatal("never")]
    worker.register(DoAtLeisure, lambda _: Eventually(outcomes.pop(0), awaited))
    producer.enqueue_many([DoAtLeisure(1), DoAtLeisure(2)])
    worker.run(burst=True)
    assert awaited == ["queuey worker's event loop"] * 2
    assert [reason for _, reason in dead_letters(Work.some)] == ["fatal: never"]


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (Retryable("503"), "gave up after attempt 1 of 1: Retryable: 503"),
        (SystemExit(1), "gave up after attempt 1 of 1: SystemExit: 1"),
        (TimeoutError("its own"), "gave up after attempt 1 of 1: TimeoutError: its own"),
        (asyncio.CancelledError(), "gave up after attempt 1 of 1: asyncio.exceptions.CancelledError"),
    ],
)
def test_what_a_coroutine_raises_fails_its_attempt_and_the_loop_lives(
    backend: RabbitMqBackend,
    producer: Producer[Work],
    dead_letters: DeadLetters,
    raised: BaseException,
    reason: str,
) -> None:
    worker = Worker(backend, Work, retry={DoAtLeisure: RetryPolicy.none()})
    done = []

    @worker.handler(DoAtLeisure)
    async def do(job: DoAtLeisure) -> None:
        if job.number == 1:
            raise raised
        done.append(job.number)

    producer.enqueue_many([DoAtLeisure(1), DoAtLeisure(2)])
    worker.run(burst=True)
    assert done == [2]
    assert [said for _, said in dead_letters(Work.some)] == [reason]


def test_a_coroutine_that_defers_is_held(
    producer: Producer[Work], worker: Worker[Work], queuey_clock: QueueyClock
) -> None:
    seen = []

    @worker.handler(DoAtLeisure)
    async def do(_job: DoAtLeisure, context: JobContext) -> None:
        seen.append((context.attempt, context.deferrals))
        if not context.deferrals:
            raise Deferred(0.1)

    producer.enqueue(DoAtLeisure(1))
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert seen == [(1, 0), (1, 1)]


def test_a_coroutine_that_takes_too_long_is_cancelled_and_tried_again(
    producer: Producer[Work], worker: Worker[Work], queuey_clock: QueueyClock
) -> None:
    seen = []

    @worker.handler(Do)
    async def do(_job: Do, context: JobContext) -> None:
        seen.append(context.attempt)
        if context.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    producer.enqueue(Do(1))
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert seen == [1, "cancelled", 2]


def test_a_coroutine_that_takes_its_cancellation_for_its_end_has_failed(
    producer: Producer[Work], worker: Worker[Work], queuey_clock: QueueyClock
) -> None:
    seen = []

    @worker.handler(Do)
    async def do(_job: Do, context: JobContext) -> None:
        seen.append(context.attempt)
        if context.attempt == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    producer.enqueue(Do(1))
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert seen == [1, 2]


def test_a_coroutine_that_does_not_heed_its_cancellation_has_failed_and_its_worker_goes_on(
    backend: RabbitMqBackend, producer: Producer[Work], dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "HEEDS_WITHIN_S", 0.05)
    worker = Worker(backend, Work, retry={Do: RetryPolicy.none()})
    done = []
    may_end = threading.Event()

    @worker.handler(Do)
    async def do(job: Do) -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)

    @worker.handler(DoAtLeisure)
    async def do_at_leisure(job: DoAtLeisure) -> None:
        done.append(job.number)

    producer.enqueue_many([Do(1), DoAtLeisure(2)])
    with worker:
        assert worker.step(timeout=5)
        assert worker.step(timeout=5)
        may_end.set()
    assert done == [2]
    [(envelope, reason)] = dead_letters(Work.some)
    assert envelope.decode(Do) == Do(1)
    told = "JobTimeoutError: cancelled, as it took longer than 0.05 s, and goes on all the same"
    assert reason == f"gave up after attempt 1 of 1: {told}"


def test_coroutines_that_run_are_cancelled_when_the_grace_is_over_and_their_jobs_go_back(
    producer: Producer[Work], worker: Worker[Work], start: Callable[..., Any], door: Any
) -> None:
    began, cancelled = threading.Event(), threading.Event()

    @worker.handler(DoAtLeisure)
    async def do(_job: DoAtLeisure) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    producer.enqueue(DoAtLeisure(1))
    running = start(worker)
    assert began.wait(TIMEOUT_S)
    running.shut_down(grace=0)
    assert cancelled.wait(TIMEOUT_S)
    assert door.comes_to(Work.some.name, 1)
    assert worker.settle_failures == 0


class GivenBack(Hooks):
    def __init__(self) -> None:
        self.seen = threading.Event()

    def given_back(self, context: JobContext) -> None:
        del context
        self.seen.set()


def test_a_coroutine_that_is_not_waited_for_is_logged_as_given_back(
    producer: Producer[Work], backend: RabbitMqBackend, start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    began, told = threading.Event(), GivenBack()
    worker = Worker(backend, Work, hooks=[told])

    @worker.handler(DoAtLeisure)
    async def do(_job: DoAtLeisure) -> None:
        began.set()
        await asyncio.Event().wait()

    job_id = producer.enqueue(DoAtLeisure(1))
    running = start(worker)
    assert began.wait(TIMEOUT_S)
    running.shut_down(grace=0)
    assert told.seen.wait(TIMEOUT_S)
    [record] = [record for record in caplog.records if "not done, as its worker ends" in record.getMessage()]
    assert (record.levelname, record.__dict__["job_id"]) == ("WARNING", str(job_id))


@pytest.mark.queuey_broker("fake")  # the handler moves virtual time
def test_a_function_that_took_too_long_has_failed_when_it_returns(
    producer: Producer[Work], worker: Worker[Work], queuey_broker: BrokerUnderTest
) -> None:
    seen = []

    @worker.handler(Do)
    def do(_job: Do, context: JobContext) -> None:
        seen.append(context.attempt)
        queuey_broker.advance(0.06 if context.attempt == 1 else 0.04)

    producer.enqueue(Do(1))
    worker.run(burst=True)
    assert seen == [1]
    queuey_broker.advance(0.15)
    worker.run(burst=True)
    assert seen == [1, 2]


def test_a_function_that_does_not_return_counts_as_failed_and_is_tried_in_another_thread(
    producer: Producer[Work], worker: Worker[Work], start: Callable[..., Any], queuey_clock: QueueyClock, door: Any
) -> None:
    let_go, tried_again = threading.Event(), threading.Event()

    @worker.handler(Do)
    def do(_job: Do, context: JobContext) -> None:
        if context.attempt == 1:
            assert let_go.wait(TIMEOUT_S)
        else:
            tried_again.set()

    producer.enqueue(Do(1))
    running = start(worker)
    try:
        assert wait_in_time(tried_again, queuey_clock)
    finally:
        let_go.set()
    running.shut_down()
    assert door.depth(Work.some.name) == 0
    assert worker.settle_failures == 0


def test_a_timeout_of_the_handler_replaces_that_of_the_job(producer: Producer[Work], worker: Worker[Work]) -> None:
    seen = []

    @worker.handler(Do, timeout=30)
    async def do(_job: Do) -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.06)
        seen.append("done")

    producer.enqueue(Do(1))
    worker.run(burst=True)
    assert seen == ["done"]


def wait_in_time(event: threading.Event, clock: QueueyClock) -> bool:
    """Let time pass in small pieces until something has happened; tell whether it has."""
    for _ in range(200):
        clock.advance(0.1)
        if event.wait(0.05):
            return True
    return False
