"""Owns the contract's chapter on the older three-queue topology, its head-of-line blocking included."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import ContractClock, MakeJob, payloads, take, take_one
from queuey_rabbitmq import topology
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import DelayTooLongError, QueueNameTooLongError, UnknownQueueError
from queuey_rabbitmq.core.queue_config import QueueConfig

THREE_QUEUES = QUICK.replace(retry_suffix=topology.DEFAULT_RETRY_SUFFIX)


class RetryQueue(RabbitMqSurroundings):
    """With `retry_suffix`, retries and delayed publishes wait in q.retry, one behind the other."""

    @pytest.fixture
    def three_queues(self, backend_factory: MakeRabbitMqBackend, queue: QueueConfig) -> Backend:
        """Return a backend of the three-queue topology that has declared the test's queue."""
        backend = backend_factory(THREE_QUEUES)
        backend.declare([queue])
        return backend

    def test_the_retry_queue_is_declared_as_topology_says(
        self, door: BrokerDoor, three_queues: Backend, queue: QueueConfig
    ) -> None:
        names = [f"{queue.name}{suffix}" for suffix in ("", ".retry", ".dead")]
        assert [door.depth(name) for name in names] == [0, 0, 0]
        door.declare(f"{queue.name}.retry", arguments=topology.retry_queue_args(queue))
        door.declare(
            f"{queue.name}.retry",
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.name},
        )

    @pytest.mark.parametrize(
        ("delay", "expiration"), [(40, "40000"), (40.001, "80000"), (0.0001, "40000"), (0, "40000"), (-1, "40000")]
    )
    def test_a_delayed_publish_waits_there_with_its_expiration_rounded_up(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
        delay: float,
        expiration: str,
    ) -> None:
        backend = backend_factory(THREE_QUEUES.replace(retry_granularity=40))
        backend.declare([queue])
        job = new_job("waiting", priority=2)
        backend.publish(job, delay=delay)
        message = door.get(f"{queue.name}.retry")
        assert message is not None
        assert message.properties.expiration == expiration
        assert message.properties.priority == 2
        assert message.body == job.to_bytes()

    def test_a_retried_job_comes_as_its_next_attempt_and_never_early(
        self, three_queues: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        three_queues.publish(new_job("failed"))
        with three_queues.consume(queue) as deliveries:
            first = take_one(deliveries)
            start_ms = clock.now_ms()
            first.retry(first.envelope.next_attempt(), 0.2)
            second = take_one(deliveries)
            assert clock.now_ms() - start_ms >= 200
        assert second.envelope == first.envelope.next_attempt()

    def test_a_short_retry_is_stuck_behind_a_long_one(
        self, three_queues: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        with three_queues.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            three_queues.publish(new_job("long"), delay=0.6)
            three_queues.publish(new_job("short"), delay=0.1)
            assert payloads(take(deliveries, 2)) == ["long", "short"]
            assert clock.now_ms() - start_ms >= 600

    def test_a_deferral_waits_in_a_hold_queue_past_the_retries(
        self, door: BrokerDoor, three_queues: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        three_queues.publish(new_job("deferred"))
        with three_queues.consume(queue) as deliveries:
            three_queues.publish(new_job("retried"), delay=60)
            delivery = take_one(deliveries)
            delivery.defer(delivery.envelope.deferred(queue.top_priority), 0.1)
            assert take_one(deliveries).envelope.payload == "deferred"
        assert door.depth(f"{queue.name}.retry") == 1

    def test_a_retry_for_an_undeclared_queue_is_refused_and_nothing_sent(
        self,
        door: BrokerDoor,
        three_queues: Backend,
        backend_factory: MakeRabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        with pytest.raises(UnknownQueueError):
            backend_factory(THREE_QUEUES).publish(new_job(), delay=40)
        assert door.depth(f"{queue.name}.retry") == 0

    def test_a_retry_may_wait_as_long_as_32_bits_of_milliseconds_say_and_no_longer(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(THREE_QUEUES.replace(retry_granularity=0.001))
        backend.declare([queue])
        with pytest.raises(DelayTooLongError, match="longer than a retry queue can wait"):
            backend.publish(new_job(), delay=timedelta(milliseconds=topology.MAX_TTL_MS + 1))
        assert door.depth(f"{queue.name}.retry") == 0
        backend.publish(new_job(), delay=timedelta(milliseconds=topology.MAX_TTL_MS))
        message = door.get(f"{queue.name}.retry")
        assert message is not None
        assert message.properties.expiration == "4294967295"

    def test_a_retry_into_a_deleted_retry_queue_raises_and_leaves_the_original(
        self, door: BrokerDoor, three_queues: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        three_queues.publish(new_job("kept"))
        door.delete(f"{queue.name}.retry")
        with three_queues.consume(queue) as deliveries:
            first = take_one(deliveries)
            with pytest.raises(Exception, match=f"'{queue.name}.retry'"):
                first.retry(first.envelope.next_attempt(), 0.1)
        with three_queues.consume(queue) as deliveries:
            assert take_one(deliveries).envelope == first.envelope

    def test_a_retry_suffix_that_makes_too_long_a_name_is_refused(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue_name: str
    ) -> None:
        queue = QueueConfig(queue_name.ljust(100, "x"))
        with pytest.raises(QueueNameTooLongError):
            backend_factory(QUICK.replace(retry_suffix="." + "r" * 200)).declare([queue])
        assert door.depth(queue.name) is None
