"""What people report of test suites: tests that see each other's jobs, and retries that look like a hang."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pytest_queuey import BrokerUnderTest, QueueyClock
from queuey_fake import real_time
from queuey_rabbitmq import Fatal, Job, Producer, Queue, QueueSet, RabbitMqBackend, Retryable, RetryPolicy, Worker, job
from queuey_rabbitmq.core.errors import NothingPending


class Reports(QueueSet, prefix="reported"):
    slow = Queue(prefetch=1, retry=RetryPolicy.fixed(5, timedelta(days=7)))
    once = Queue(prefetch=1)


@job(Reports.slow)
class Slow(Job[Reports]):
    pass


@job(Reports.once)
class Once(Job[Reports]):
    pass


@pytest.mark.parametrize("run", ["first", "second"])
def test_a_dead_letter_of_one_test_is_not_there_in_the_next(
    queuey_backend: RabbitMqBackend, queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock, run: str
) -> None:
    assert queuey_broker.queue("reported.once.dead") is None
    Producer(queuey_backend, Reports).enqueue(Once())
    dead: list[str] = []
    with Worker(queuey_backend, Reports) as worker:

        @worker.handler(Once)
        def handle(_job: Once) -> None:
            dead.append(run)
            raise Fatal("no use")

        queuey_clock.run(worker, until=lambda: bool(dead))
    assert queuey_broker.queue("reported.once.dead").ready == 1  # type: ignore[union-attr]  # the worker declared it


@pytest.mark.queuey_broker("fake")
def test_a_job_that_always_fails_is_dead_in_no_time_though_it_waits_for_weeks(
    queuey_backend: RabbitMqBackend, queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    began_s, began_ms = real_time.monotonic_s(), queuey_clock.now_ms()
    Producer(queuey_backend, Reports).enqueue(Slow())

    def is_dead() -> bool:
        dead = queuey_broker.queue("reported.slow.dead")
        return dead is not None and dead.ready == 1

    with Worker(queuey_backend, Reports) as worker:

        @worker.handler(Slow)
        def handle(_job: Slow) -> None:
            raise Retryable("never")

        queuey_clock.run(worker, until=is_dead)
    assert queuey_clock.now_ms() - began_ms == timedelta(days=28) / timedelta(milliseconds=1)
    assert real_time.monotonic_s() - began_s < 5


@pytest.mark.queuey_broker("fake")
def test_a_wait_for_what_can_never_come_fails_at_once_and_says_what_there_is(
    queuey_backend: RabbitMqBackend,
) -> None:
    Producer(queuey_backend, Reports).enqueue(Slow())
    with queuey_backend.consume(Reports.once.config) as deliveries, pytest.raises(NothingPending) as refused:
        next(deliveries)
    assert "queue 'reported.slow': 1 message ready, no consumer" in str(refused.value)
