"""Owns the contract's chapter on threads: a backend, a consumer and a delivery may be used from any of them.

Threads other than the test's own do the waiting: in virtual time only the test's thread moves the clock, and here it
does nothing but wait for the others to end.
"""

from __future__ import annotations

from threading import Barrier
from typing import Any

import pytest

from pytest_queuey.contract.settling import OUTCOMES
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    MakeJob,
    Surroundings,
    in_thread,
    take_one,
)
from queuey_rabbitmq.core.backend import Backend, Deliveries
from queuey_rabbitmq.core.errors import UnroutableError
from queuey_rabbitmq.core.queue_config import QueueConfig

PRODUCERS = 8
JOBS_EACH = 500
ROUNDS = 30
END = 60.0
"""Seconds within which threads must have ended."""


def publish_many(backend: Backend, new_job: MakeJob, producer: int) -> None:
    """Publish one producer's jobs, each confirmed before the next."""
    for number in range(JOBS_EACH):
        backend.publish(new_job([producer, number]))


def ack_until_one_says_stop(deliveries: Deliveries) -> list[Any]:
    """Ack jobs until the one whose payload is "stop", which goes back for the next thread; return the others."""
    arrived: list[Any] = []
    while True:
        delivery = take_one(deliveries)
        if delivery.envelope.payload == "stop":
            delivery.give_back()
            return arrived
        delivery.ack()
        arrived.append(delivery.envelope.payload)


def publish_in_step(backend: Backend, new_job: MakeJob, place: int, *, missing: str, step: Barrier) -> list[int]:
    """Publish once a round together with the other threads; return the rounds in which it was unroutable."""
    failed = []
    for number in range(ROUNDS):
        is_unroutable = number % PRODUCERS == place
        job = new_job([place, number], **({"queue": missing} if is_unroutable else {}))
        step.wait(PATIENCE)
        try:
            backend.publish(job)
        except UnroutableError:
            failed.append(number)
    return failed


class Threads(Surroundings):
    """Everything is thread-safe, and nothing is lost or doubled in a crowd."""

    def test_eight_threads_publish_while_a_consumer_acks_and_everything_arrives_once(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        with backend.consume(QueueConfig(queue_name, prefetch=200)) as deliveries:
            consumer = in_thread(ack_until_one_says_stop, deliveries)
            producers = [in_thread(publish_many, backend, new_job, producer) for producer in range(PRODUCERS)]
            for producer in producers:
                producer.result(END)
            backend.publish(new_job("stop"))
            arrived = consumer.result(END)
        assert len(arrived) == PRODUCERS * JOBS_EACH
        assert sorted(arrived) == [[producer, number] for producer in range(PRODUCERS) for number in range(JOBS_EACH)]

    def test_several_threads_share_the_deliveries_of_one_consumer(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        for number in range(400):
            backend.publish_nowait(new_job(number))
        backend.publish(new_job("stop"))
        with backend.consume(QueueConfig(queue_name, prefetch=20)) as deliveries:
            workers = [in_thread(ack_until_one_says_stop, deliveries) for _ in range(4)]
            arrived = [payload for worker in workers for payload in worker.result(END)]
        assert sorted(arrived) == list(range(400))

    def test_a_return_is_credited_to_the_thread_that_published(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        missing, step = f"{queue_name}.missing", Barrier(PRODUCERS)
        producers = [
            in_thread(publish_in_step, backend, new_job, place, missing=missing, step=step)
            for place in range(PRODUCERS)
        ]
        failed = [producer.result(END) for producer in producers]
        assert failed == [list(range(place, ROUNDS, PRODUCERS)) for place in range(PRODUCERS)]

    @pytest.mark.parametrize(("outcome", "next_job"), [("ack", "second"), ("give_back", "first")])
    def test_a_delivery_may_be_settled_by_another_thread_than_took_it(
        self, backend: Backend, queue_name: str, new_job: MakeJob, outcome: str, next_job: str
    ) -> None:
        backend.publish(new_job("first"))
        backend.publish(new_job("second"))
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            delivery = take_one(deliveries)
            in_thread(OUTCOMES[outcome], delivery).result(END)
            assert take_one(deliveries).envelope.payload == next_job
