"""Which retry policy holds for a job, and what hooks and the log show of its life."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    Deferred,
    Envelope,
    Fatal,
    Hooks,
    InvalidConfigError,
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


def attempts(count: int) -> RetryPolicy:
    return RetryPolicy.fixed(count, 0.1)


class Work(QueueSet, prefix="policies"):
    five = Queue(prefetch=1, retry=attempts(5))
    other = Queue(prefetch=1, retry=attempts(6))


@job(Work.five)
class ByQueue(Job[Work]):
    number: int


@job(Work.five, retry=attempts(4))
class ByJob(Job[Work]):
    number: int


class Foreign(QueueSet):
    queue = Queue()


@job(Foreign.queue)
class ForeignJob(Job[Foreign]):
    number: int


class Sees:
    """A handler that keeps how often its jobs are tried; its own choice is two attempts for job 2."""

    def __init__(self) -> None:
        self.max_attempts: list[int] = []

    def handle(self, _job: ByQueue | ByJob, context: JobContext) -> None:
        self.max_attempts.append(context.max_attempts)


class Chooses(Sees):
    def retry_policy(self, job: ByQueue | ByJob) -> RetryPolicy | None:
        return attempts(job.number) if job.number else None


@pytest.mark.parametrize(
    ("enqueued", "overrides", "choice", "expected"),
    [
        (ByQueue(0), {}, None, 5),
        (ByJob(0), {}, None, 4),
        (ByJob(0), {Work.five: attempts(3)}, None, 3),
        (ByQueue(0), {Work.five: attempts(3)}, None, 3),
        (ByQueue(0), {Work.other: attempts(3)}, None, 5),
        (ByJob(0), {Work.five: attempts(3), ByJob: attempts(2)}, None, 2),
        (ByQueue(0), {ByJob: attempts(2)}, None, 5),
        (ByJob(0), {Work.five: attempts(3), ByJob: attempts(2)}, lambda _: attempts(1), 1),
        (ByJob(0), {Work.five: attempts(3), ByJob: attempts(2)}, lambda _: None, 2),
    ],
)
def test_the_policy_that_holds_is_the_first_of_choice_job_override_queue_override_job_and_queue(
    backend: RabbitMqBackend,
    enqueued: ByQueue | ByJob,
    overrides: dict[Any, RetryPolicy],
    choice: Callable[[Any], RetryPolicy | None] | None,
    expected: int,
) -> None:
    worker = Worker(backend, Work, retry=overrides)
    handler = Sees()
    worker.register(type(enqueued), handler, retry=choice)
    Producer(backend, Work).enqueue(enqueued)
    worker.run(burst=True)
    assert handler.max_attempts == [expected]


def test_a_handler_that_is_an_object_chooses_by_its_method(backend: RabbitMqBackend) -> None:
    worker = Worker(backend, Work)
    handler = Chooses()
    worker.register(ByJob, handler)
    Producer(backend, Work).enqueue_many([ByJob(0), ByJob(7)])
    worker.run(burst=True)
    assert handler.max_attempts == [4, 7]


def test_a_choice_that_raises_fails_the_attempt_by_the_other_policies(
    backend: RabbitMqBackend, dead_letters: Any, queuey_clock: QueueyClock
) -> None:
    worker = Worker(backend, Work, retry={ByJob: attempts(2)})
    called: list[ByJob] = []
    worker.register(ByJob, called.append, retry=lambda job: attempts(1 // job.number))
    Producer(backend, Work).enqueue(ByJob(0))
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    [(_, reason)] = dead_letters(Work.five)
    assert reason.startswith("gave up after attempt 2 of 2: ZeroDivisionError")
    assert called == []


@pytest.mark.parametrize("raised", [SystemExit(3), BaseException("bare")])
def test_a_choice_that_raises_what_ends_threads_fails_the_attempt_and_the_worker_lives(
    backend: RabbitMqBackend, dead_letters: Any, raised: BaseException
) -> None:
    def choose(_job: ByJob) -> RetryPolicy:
        raise raised

    worker = Worker(backend, Work, retry={ByJob: attempts(1)})
    worker.register(ByJob, print, retry=choose)
    Producer(backend, Work).enqueue_many([ByJob(0), ByJob(1)])
    worker.run(burst=True)
    assert [type(raised).__name__ in reason for _, reason in dead_letters(Work.five)] == [True, True]


@pytest.mark.parametrize("choice", ["3", 3, RetryPolicy])
def test_a_choice_that_is_no_policy_fails_the_attempt_and_the_worker_lives(
    backend: RabbitMqBackend, dead_letters: Any, choice: Any
) -> None:
    worker = Worker(backend, Work, retry={ByJob: attempts(1)})
    worker.register(ByJob, print, retry=lambda _: choice)
    Producer(backend, Work).enqueue_many([ByJob(0), ByJob(1)])
    worker.run(burst=True)
    assert ["which is no RetryPolicy" in reason for _, reason in dead_letters(Work.five)] == [True, True]


def test_a_policy_in_the_place_of_a_choice_is_refused(backend: RabbitMqBackend) -> None:
    with pytest.raises(InvalidConfigError, match=r"handler of ByJob: retry: expected a function.* @job\(retry=...\)"):
        Worker(backend, Work).register(ByJob, print, retry=attempts(1))  # type: ignore[arg-type] -- that is the test


@pytest.mark.queuey_broker("fake")
def test_jitter_comes_from_the_source_that_the_worker_was_given(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    worker = Worker(
        backend, Work, retry={ByJob: RetryPolicy.exponential(3, base=100)}, random_source=iter([0.25, 0.5]).__next__
    )
    seen = []
    began_ms = backend.now_ms()

    @worker.handler(ByJob)
    def fail(_job: ByJob) -> None:
        seen.append((backend.now_ms() - began_ms) / 1000)
        raise Retryable("503")

    Producer(backend, Work).enqueue(ByJob(0))
    with worker:
        while worker.step(timeout=1000):
            pass
    assert seen == [0, 25, 125]  # a quarter of 100 s, then half of 200 s


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"concurrency": 0}, "concurrency: expected an integer from 1"),
        ({"concurrency": True}, "concurrency: expected an integer from 1"),
        ({"only": []}, "only: names no queue"),
        ({"only": [Foreign.queue]}, "Foreign.queue 'queue'> is no queue of Work"),
        ({"retry": {ForeignJob: attempts(1)}}, "ForeignJob: it is a job of Foreign, and this is for Work"),
        ({"retry": {Foreign.queue: attempts(1)}}, "is no queue of Work"),
        ({"retry": {ByJob: 3}}, "expected a RetryPolicy"),
        ({"retry": attempts(1)}, "retry: expected policies by job type or queue"),
        ({"only": Work.five}, "only: expected a list of queues"),
        ({"hooks": [Hooks]}, "hooks: expected objects that are Hooks or like it, got <class"),
        ({"hooks": ["text"]}, "hooks: expected objects that are Hooks or like it, got 'text'"),
        ({"hooks": Hooks()}, "hooks: expected a list of Hooks"),
        ({"settle_backoff": 0}, "settle_backoff: must be longer than zero"),
        ({"grace": "soon"}, "grace: expected a timedelta or a number"),
        ({"grace": -1}, "Worker: grace: must not be negative, got -1"),
    ],
)
def test_what_can_never_work_is_refused_before_anything_is_declared(
    queuey_broker: Any, backend: RabbitMqBackend, how: dict[str, Any], message: str, door: BrokerDoor
) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Worker(backend, Work, **how)
    assert door.depth(Work.five.name) is None


class Recorder(Hooks):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def enqueued(self, envelope: Envelope, delay: timedelta | None) -> None:
        self.seen.append(("enqueued", envelope.job_type, delay))

    def started(self, context: JobContext) -> None:
        self.seen.append(("started", context.attempt))

    def succeeded(self, context: JobContext, took: float) -> None:
        self.seen.append(("succeeded", context.attempt, took))

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        self.seen.append(("retried", context.attempt, str(error), delay, took))

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        self.seen.append(("deferred", context.attempt, reason, delay, took))

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        self.seen.append(("dead-lettered", context.attempt, reason, str(error), took))

    def settle_failed(self, context: JobContext, error: BaseException) -> None:
        self.seen.append(("settle failed", context.attempt, type(error).__name__))


@pytest.mark.queuey_broker("fake")  # durations are exact in virtual time
def test_hooks_see_the_life_of_a_job_with_durations(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "queuey_rabbitmq.worker")
    hooks = Recorder()
    worker = Worker(backend, Work, hooks=[hooks])
    answers = [Deferred(1, "429"), Retryable("503"), None, Fatal("never")]

    @worker.handler(ByJob)
    def do(_job: ByJob) -> None:
        queuey_clock.advance(0.25)
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    producer = Producer(backend, Work, hooks=[hooks])
    producer.enqueue(ByJob(1))
    with worker:
        while worker.step(timeout=10):
            pass
        producer.enqueue_after(ByJob(2), 1)
        while worker.step(timeout=10):
            pass
    producer.enqueue_many([ByJob(3), ByJob(4)])
    assert hooks.seen[-2:] == [("enqueued", "by_job", None)] * 2
    second, tenth = timedelta(seconds=1), timedelta(seconds=0.1)
    assert hooks.seen[:-2] == [
        ("enqueued", "by_job", None),
        ("started", 1),
        ("deferred", 1, "429", second, 0.25),
        ("started", 1),
        ("retried", 1, "503", tenth, 0.25),
        ("started", 2),
        ("succeeded", 2, 0.25),
        ("enqueued", "by_job", second),
        ("started", 1),
        ("dead-lettered", 1, "fatal: never", "never", 0.25),
    ]
    assert [(r.levelname, vars(r)["queue"], vars(r)["attempt"]) for r in caplog.records if "job " in r.message] == [
        ("INFO", Work.five.name, 1),
        ("WARNING", Work.five.name, 1),
        ("DEBUG", Work.five.name, 2),
        ("ERROR", Work.five.name, 1),
    ]


class Places(Hooks):
    """Keeps in which threads it is told of what, and shuts the worker down after the fourth outcome."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.enough: Callable[[], None]

    def _told(self, what: str, *, is_outcome: bool = True) -> None:
        self.told.append((what, threading.current_thread().name))
        if is_outcome and sum(what not in ("started", "handler_ended") for what, _ in self.told) == 4:
            self.enough()

    def started(self, _context: JobContext) -> None:
        self._told("started", is_outcome=False)

    def handler_ended(self, _context: JobContext) -> None:
        self._told("handler_ended", is_outcome=False)

    def succeeded(self, *_about: object) -> None:
        self._told("succeeded")

    def retried(self, *_about: object) -> None:
        self._told("retried")

    def deferred(self, *_about: object) -> None:
        self._told("deferred")

    def dead_lettered(self, *_about: object) -> None:
        self._told("dead_lettered")


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_are_called_in_the_threads_that_they_are_said_to_be(backend: RabbitMqBackend, *, is_async: bool) -> None:
    places = Places()
    worker = Worker(backend, Work, concurrency=1, hooks=[places])
    places.enough = worker.shutdown
    answers = [Retryable("503"), Deferred(60), Fatal("never"), None]

    def do(_job: ByJob) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    async def do_async(job: ByJob) -> None:
        do(job)

    worker.register(ByJob, do_async if is_async else do, retry=lambda _: RetryPolicy.fixed(2, 60))
    Producer(backend, Work).enqueue_many([ByJob(number) for number in range(4)])
    worker.run(signals=False)
    here, takes_jobs = threading.current_thread().name, "queuey worker 1"
    assert set(places.told) == {
        ("started", takes_jobs),
        ("handler_ended", takes_jobs),
        ("succeeded", takes_jobs),
        ("dead_lettered", takes_jobs),
        ("retried", here),
        ("deferred", here),
    }


def test_the_dead_letter_hook_comes_before_the_settle_and_again_when_that_failed(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, door: BrokerDoor
) -> None:
    hooks = Recorder()
    Producer(backend, Work).enqueue(ByJob(1))
    with Worker(backend, Work, hooks=[hooks], settle_backoff=0.1) as worker:
        door.delete(f"{Work.five.name}.dead")
        worker.step(timeout=5)
        queuey_clock.advance(0.15)
        worker.step(timeout=5)
    told = [(what, *rest[:2]) for what, *rest in hooks.seen]
    no_handler = "no handler for job type 'by_job'"
    assert told == [("dead-lettered", 1, no_handler), ("settle failed", 1, "UnroutableError")] * 2


def test_an_object_of_another_class_is_told_what_it_has_methods_for(
    backend: RabbitMqBackend, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[JobContext] = []

    class Started:
        def started(self, context: JobContext) -> None:
            seen.append(context)

    hooks: Any = [Started()]
    worker = Worker(backend, Work, hooks=hooks)
    worker.register(ByJob, print)
    job_id = Producer(backend, Work, hooks=hooks).enqueue(ByJob(1))
    worker.run(burst=True)
    assert [context.job_id for context in seen] == [job_id]
    assert "raised" not in caplog.text


@pytest.mark.parametrize("raised", [ValueError("hook"), SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
def test_whatever_every_hook_raises_changes_nothing(
    backend: RabbitMqBackend, dead_letters: Any, queuey_clock: QueueyClock, raised: BaseException
) -> None:
    class Broken(Hooks):
        def __getattribute__(self, name: str) -> Any:
            raise raised

    worker = Worker(backend, Work, hooks=[Broken()], retry={ByJob: attempts(2)})
    answers = [Deferred(0.1), Retryable("503"), Fatal("never")]

    @worker.handler(ByJob)
    def do(_job: ByJob) -> None:
        raise answers.pop(0)

    producer = Producer(backend, Work, hooks=[Broken()])
    producer.enqueue(ByJob(1))
    for _ in range(3):
        worker.run(burst=True)
        queuey_clock.advance(0.15)
    assert [reason for _, reason in dead_letters(Work.five)] == ["fatal: never"]
    assert asyncio.run(producer.enqueue_async(ByJob(2)))


@pytest.mark.parametrize("headers", [{"a": 1}, {"a" * 256: "b"}, {"a": "\ud800"}, {1: "b"}, "text"])
def test_headers_that_cannot_be_sent_are_left_out_and_the_job_is_sent(
    backend: RabbitMqBackend, caplog: pytest.LogCaptureFixture, door: BrokerDoor, headers: Any
) -> None:
    class Broken(Hooks):
        def enqueuing(self, *_about: object) -> Any:
            return headers

    class Fine(Hooks):
        def enqueuing(self, *_about: object) -> Any:
            return {"tenant": "acme"}

    Producer(backend, Work, hooks=[Broken(), Fine()]).enqueue(ByJob(1))
    message = door.get(Work.five.name)
    assert message is not None
    assert message.headers == {"tenant": "acme", "x-attempt": 1, "x-deferrals": 0}
    assert "Broken.enqueuing raised" in caplog.text


def test_a_hook_that_raises_changes_nothing(
    backend: RabbitMqBackend, dead_letters: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hooks):
        def started(self, context: JobContext) -> None:
            raise ValueError(f"started {context.job_id}")

        def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
            raise ValueError(f"no veto: {context} {reason} {error} {took}")

    recorder = Recorder()
    worker = Worker(backend, Work, hooks=[Broken(), recorder])
    worker.register(ByJob, lambda _: 1 // 0, retry=lambda _: attempts(1))
    Producer(backend, Work).enqueue(ByJob(1))
    worker.run(burst=True)
    assert len(dead_letters(Work.five)) == 1
    assert [what for what, *_ in recorder.seen] == ["started", "dead-lettered"]
    assert "Broken.dead_lettered raised" in caplog.text
