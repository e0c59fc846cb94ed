"""Owns the contract's chapter on consuming: which deliveries come, how many at a time, and in which order."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    ContractClock,
    MakeBackend,
    MakeJob,
    Surroundings,
    TakeDeadLetters,
    payloads,
    take,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import BackendError
from queuey_rabbitmq.core.queue_config import QueueConfig


class Consuming(Surroundings):
    """Each job comes to one consumer, once, and never more of them than the consumer's prefetch."""

    def test_a_consumer_that_waits_already_gets_what_is_published(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with backend.consume(queue) as deliveries:
            backend.publish(new_job("fresh"))
            assert take_one(deliveries).envelope.payload == "fresh"

    def test_prefetch_bounds_what_is_unsettled(self, backend: Backend, queue_name: str, new_job: MakeJob) -> None:
        for number in range(5):
            backend.publish(new_job(number))
        with backend.consume(QueueConfig(queue_name, prefetch=2)) as deliveries:
            first, second = take(deliveries, 2)
            assert deliveries.get(timeout=0.2) is None
            second.ack()
            assert take_one(deliveries).envelope.payload == 2
            assert deliveries.get(timeout=0.2) is None
            first.ack()
            assert take_one(deliveries).envelope.payload == 3

    def test_what_one_consumer_may_not_have_yet_is_free_for_another(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        one_at_a_time = QueueConfig(queue_name, prefetch=1)
        backend.publish(new_job("first"))
        backend.publish(new_job("second"))
        with backend.consume(one_at_a_time) as deliveries:
            assert take_one(deliveries).envelope.payload == "first"
            with backend.consume(one_at_a_time) as other_deliveries:
                assert take_one(other_deliveries).envelope.payload == "second"

    def test_two_consumers_never_get_the_same_job(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with backend.consume(queue) as ours, backend_factory().consume(queue) as theirs:
            for number in range(20):
                backend.publish(new_job(number))
            arrived = payloads(take(ours, 10)) + payloads(take(theirs, 10))
        assert sorted(arrived) == list(range(20))

    def test_iterating_yields_jobs_in_order(self, backend: Backend, queue: QueueConfig, new_job: MakeJob) -> None:
        for number in range(3):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            arrived = [delivery.envelope.payload for _, delivery in zip(range(3), deliveries, strict=False)]
        assert arrived == [0, 1, 2]

    def test_get_waits_no_longer_than_its_timeout(
        self, backend: Backend, queue: QueueConfig, clock: ContractClock
    ) -> None:
        with backend.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            assert deliveries.get(timeout=0.2) is None
        assert 150 <= clock.now_ms() - start_ms <= 1000 * PATIENCE

    def test_get_without_anything_to_wait_for_leaves_later_jobs_to_be_had(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with backend.consume(queue) as deliveries:
            assert deliveries.get(timeout=0) is None
            backend.publish(new_job("later"))
            assert work_off(deliveries, 1) == ["later"]

    def test_consuming_a_queue_that_does_not_exist_names_it(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        missing = f"{queue.name}.missing"
        with pytest.raises(BackendError) as raised:
            backend.consume(QueueConfig(missing))
        assert f"'{missing}'" in str(raised.value)
        backend.publish(new_job("the backend works on"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["the backend works on"]


class ConsumingSeveralQueues(Surroundings):
    """One stream may have the jobs of several queues, each bounded by its own prefetch."""

    @pytest.fixture
    def two_queues(self, queue_name: str) -> tuple[QueueConfig, QueueConfig]:
        """Return two queues, of which one at a time and two at a time may be unsettled."""
        return QueueConfig(f"{queue_name}.one", prefetch=1), QueueConfig(f"{queue_name}.two", prefetch=2)

    def test_each_queue_of_a_stream_is_bounded_by_its_own_prefetch(
        self, backend_factory: MakeBackend, two_queues: tuple[QueueConfig, QueueConfig], new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        backend.declare(two_queues)
        for queue in two_queues:
            for number in range(3):
                backend.publish(new_job([queue.prefetch, number], queue=queue.name))
        with backend.consume(*two_queues) as deliveries:
            taken = take(deliveries, 3)
            assert sorted(payloads(taken)) == [[1, 0], [2, 0], [2, 1]]
            assert deliveries.get(timeout=0.2) is None
            for delivery in taken:
                delivery.ack()
            assert sorted(work_off(deliveries, 3)) == [[1, 1], [1, 2], [2, 2]]

    @needs("holds", "dead_letters")
    def test_an_outcome_is_of_the_queue_that_the_delivery_came_from(
        self,
        backend_factory: MakeBackend,
        two_queues: tuple[QueueConfig, QueueConfig],
        new_job: MakeJob,
        dead_letters: TakeDeadLetters,
    ) -> None:
        backend = backend_factory()
        backend.declare(two_queues)
        one, two = two_queues
        backend.publish(new_job("dead", queue=one.name))
        backend.publish(new_job("retried", queue=two.name))
        with backend.consume(one, two) as deliveries:
            by_payload = {delivery.envelope.payload: delivery for delivery in take(deliveries, 2)}
            by_payload["dead"].dead_letter("no use")
            by_payload["retried"].retry(by_payload["retried"].envelope.next_attempt(), 0.1)
            again = take_one(deliveries)
        assert (again.envelope.queue, again.envelope.attempt) == (two.name, 2)
        assert [len(dead_letters(queue.name)) for queue in two_queues] == [1, 0]

    def test_closing_a_stream_gives_back_what_it_held_of_every_queue(
        self, backend_factory: MakeBackend, two_queues: tuple[QueueConfig, QueueConfig], new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        backend.declare(two_queues)
        for queue in two_queues:
            backend.publish(new_job(queue.prefetch, queue=queue.name))
        with backend.consume(*two_queues) as deliveries:
            take(deliveries, 2)
        with backend.consume(*two_queues) as deliveries:
            again = take(deliveries, 2)
        assert sorted(payloads(again)) == [1, 2]
        assert [delivery.redelivered for delivery in again] == [True, True]
