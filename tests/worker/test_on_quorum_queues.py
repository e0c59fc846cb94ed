"""Bursts of a worker, and looking after dead letters, on quorum queues, which answer otherwise when asked."""

from __future__ import annotations

import pytest

from queuey_rabbitmq import (
    DeadLetters,
    Fatal,
    Job,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)

JOBS = 30
LOOKS = 25
"""More than the deliveries after which RabbitMQ itself drops a message of a quorum queue."""


class Safe(QueueSet, prefix="quorum"):
    work = Queue(prefetch=4, retry=RetryPolicy.fixed(2, 0.1), queue_type="quorum")


@job(Safe.work)
class Count(Job[Safe]):
    number: int


@pytest.fixture
def producer(queuey_backend: RabbitMqBackend) -> Producer[Safe]:
    return Producer(queuey_backend, Safe)


def test_a_burst_handles_all_there_is(queuey_backend: RabbitMqBackend, producer: Producer[Safe]) -> None:
    producer.enqueue_many(Count(number=number) for number in range(JOBS))
    handled: list[int] = []
    with Worker(queuey_backend, Safe) as worker:
        worker.register(Count, lambda job: handled.append(job.number))
        worker.run(burst=True)
    assert sorted(handled) == list(range(JOBS))


def test_a_job_that_is_given_back_is_handled_in_the_same_burst(
    queuey_backend: RabbitMqBackend, producer: Producer[Safe]
) -> None:
    producer.enqueue(Count(number=1))
    with queuey_backend.consume(Safe.work.config) as deliveries:
        delivery = deliveries.get(timeout=5)
        assert delivery is not None
        delivery.give_back()
    handled: list[int] = []
    with Worker(queuey_backend, Safe) as worker:
        worker.register(Count, lambda job: handled.append(job.number))
        worker.run(burst=True)
    assert handled == [1]


def test_dead_letters_are_looked_at_again_and_again_then_requeued_then_purged(
    queuey_backend: RabbitMqBackend, producer: Producer[Safe]
) -> None:
    def die(job: Count) -> None:
        raise Fatal("no use")

    producer.enqueue_many(Count(number=number) for number in range(JOBS))
    with Worker(queuey_backend, Safe) as worker:
        worker.register(Count, die)
        worker.run(burst=True)
    letters = DeadLetters(queuey_backend, Safe.work)
    for _ in range(LOOKS):
        assert sum(1 for _ in letters) == JOBS
    assert letters.requeue(limit=10).done == 10
    assert letters.purge().done == JOBS - 10
    assert list(letters) == []


def test_a_job_that_fails_for_good_is_in_a_dead_queue_of_the_same_type(
    queuey_backend: RabbitMqBackend, producer: Producer[Safe]
) -> None:
    def fail(job: Count) -> None:
        raise Retryable("not now", delay=0.1)

    producer.enqueue(Count(number=1))
    with Worker(queuey_backend, Safe) as worker:
        worker.register(Count, fail)
        assert worker.step(timeout=5)
        assert worker.step(timeout=5)
    [letter] = DeadLetters(queuey_backend, Safe.work)
    assert letter.attempts == 2
