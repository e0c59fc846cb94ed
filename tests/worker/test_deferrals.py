"""A deferral: too early is no failure."""

from __future__ import annotations

import logging

import pytest

from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    Deferred,
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


class Calls(QueueSet, prefix="deferrals"):
    limited = Queue(prefetch=1, retry=RetryPolicy.fixed(3, 0.1), max_priority=7)
    once = Queue(prefetch=1)
    flat = Queue(prefetch=1, max_priority=0)


@job(Calls.limited)
class Call(Job[Calls]):
    number: int


@job(Calls.once)
class CallOnce(Job[Calls]):
    number: int


@job(Calls.flat)
class CallFlat(Job[Calls]):
    number: int


class Api:
    """Raises what it was given for a number, one after the other; keeps what it saw."""

    def __init__(self, **answers: list[Exception]) -> None:
        self.answers = answers
        self.seen: list[tuple[int, int, int, int]] = []

    def handle(self, job: Call | CallOnce | CallFlat, context: JobContext) -> None:
        self.seen.append((job.number, context.attempt, context.deferrals, context.priority))
        answers = self.answers.get(f"n{job.number}")
        if answers:
            raise answers.pop(0)


def make_worker(backend: RabbitMqBackend, api: Api) -> Worker[Calls]:
    worker = Worker(backend, Calls)
    worker.register(Call, api)
    worker.register(CallOnce, api)
    worker.register(CallFlat, api)
    return worker


def test_a_deferral_keeps_the_attempt_is_counted_and_returns_at_the_top_priority(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "queuey_rabbitmq.worker")
    api = Api(n1=[Deferred(0.1, "429"), Deferred(0.1)])
    Producer(backend, Calls).enqueue(Call(1))
    worker = make_worker(backend, api)
    for _ in range(3):
        worker.run(burst=True)
        queuey_clock.advance(0.15)
    assert api.seen == [(1, 1, 0, 0), (1, 1, 1, 7), (1, 1, 2, 7)]
    said = [vars(record) for record in caplog.records if "deferred by 0.1 s: 429" in record.getMessage()]
    assert [(fields["levelname"], fields["job_type"], fields["attempt"]) for fields in said] == [("INFO", "call", 1)]


def test_a_deferral_on_a_queue_without_priorities_returns_at_priority_0(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    api = Api(n1=[Deferred(0.1)])
    Producer(backend, Calls).enqueue(CallFlat(1))
    worker = make_worker(backend, api)
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert api.seen == [(1, 1, 0, 0), (1, 1, 1, 0)]


def test_a_deferral_never_touches_the_policy_even_of_one_attempt(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    api = Api(n1=[Deferred(0.1) for _ in range(4)])
    Producer(backend, Calls).enqueue(CallOnce(1))
    worker = make_worker(backend, api)
    for _ in range(5):
        worker.run(burst=True)
        queuey_clock.advance(0.15)
    assert [(attempt, deferrals) for _, attempt, deferrals, _ in api.seen] == [(1, n) for n in range(5)]


def test_a_retry_after_a_deferral_returns_at_priority_0_with_the_deferrals_kept(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    api = Api(n1=[Deferred(0.1), Retryable("503")])
    Producer(backend, Calls).enqueue(Call(1))
    worker = make_worker(backend, api)
    for _ in range(3):
        worker.run(burst=True)
        queuey_clock.advance(0.15)
    assert api.seen == [(1, 1, 0, 0), (1, 1, 1, 7), (1, 2, 1, 0)]


def test_a_deferred_job_beats_what_was_enqueued_while_it_waited(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    api = Api(n1=[Deferred(0.1)])
    producer = Producer(backend, Calls)
    producer.enqueue(Call(1))
    worker = make_worker(backend, api)
    worker.run(burst=True)
    producer.enqueue_many([Call(2), Call(3)])
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert [number for number, *_ in api.seen] == [1, 1, 2, 3]


def test_a_job_in_hold_survives_its_worker(backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    Producer(backend, Calls).enqueue(Call(1))
    with make_worker(backend, Api(n1=[Deferred(0.1)])) as worker:
        assert worker.step(timeout=5)
    queuey_clock.advance(0.15)
    api = Api()
    make_worker(backend, api).run(burst=True)
    assert api.seen == [(1, 1, 1, 7)]


@pytest.mark.queuey_broker("fake")  # nobody waits hours for a test
def test_a_burst_moves_no_virtual_time_and_a_step_that_waits_does(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    api = Api(n1=[Deferred(3 * 3600)])
    Producer(backend, Calls).enqueue(Call(1))
    began_ms = queuey_clock.now_ms()
    with make_worker(backend, api) as worker:
        worker.run(burst=True)
        assert queuey_clock.now_ms() == began_ms
        assert not worker.step()
        assert queuey_clock.now_ms() == began_ms
        assert not worker.step(timeout=3600)
        assert queuey_clock.now_ms() == began_ms + 3_600_000
        assert worker.step(timeout=5 * 3600)
        assert queuey_clock.now_ms() == began_ms + 3 * 3_600_000
    assert api.seen == [(1, 1, 0, 0), (1, 1, 1, 7)]
