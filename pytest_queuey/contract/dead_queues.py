"""Owns the contract's chapter on dead queues: what happens where one is missing, and where there are none."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import ContractClock, MakeJob, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import UnroutableError
from queuey_rabbitmq.core.queue_config import QueueConfig


class DeadQueues(RabbitMqSurroundings):
    """A dead letter that cannot be kept is not acked; without dead queues it is rejected."""

    def test_dead_lettering_into_a_deleted_dead_queue_raises_and_leaves_the_original(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("kept"))
        door.delete(f"{queue.name}.dead")
        with backend.consume(queue) as deliveries:
            first = take_one(deliveries)
            with pytest.raises(UnroutableError, match=f"'{queue.name}.dead'"):
                first.dead_letter("no use")
        with backend.consume(queue) as deliveries:
            again = take_one(deliveries)
        assert again.envelope == first.envelope
        assert again.redelivered

    def test_after_a_failed_dead_letter_another_outcome_may_be_chosen(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("kept"))
        door.delete(f"{queue.name}.dead")
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with pytest.raises(UnroutableError):
                delivery.dead_letter("no use")
            backend.declare([queue])
            delivery.dead_letter("no use after all")
        assert [door.depth(queue.name), door.depth(f"{queue.name}.dead")] == [0, 1]

    def test_a_failed_dead_letter_keeps_its_place_among_the_unsettled(
        self, door: BrokerDoor, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("kept"))
        backend.publish(new_job("next"))
        door.delete(f"{queue_name}.dead")
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            delivery = take_one(deliveries)
            with pytest.raises(UnroutableError):
                delivery.dead_letter("no use")
            assert deliveries.get(timeout=0.2) is None
            delivery.ack()
            assert work_off(deliveries, 1) == ["next"]

    def test_without_dead_letter_queues_a_dead_letter_is_rejected(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(declare_dead_letter_queues=False))
        backend.declare([queue])
        backend.publish(new_job("rejected"))
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter("no use")
            assert work_off(deliveries, 1) == ["next"]
        assert [door.depth(queue.name), door.depth(f"{queue.name}.dead")] == [0, None]

    def test_a_rejected_job_goes_where_the_queue_itself_dead_letters_to(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
        clock: ContractClock,
    ) -> None:
        graveyard = f"{queue.name}.graveyard"
        door.declare(graveyard)
        door.declare(queue.name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graveyard})
        backend = backend_factory(QUICK.replace(declare_dead_letter_queues=False))
        job = new_job("rejected")
        backend.publish(job)
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter("no use")
        clock.advance(0.1)
        message = door.get(graveyard)
        assert message is not None
        assert message.body == job.to_bytes()
        assert message.headers["x-death"][0]["reason"] == "rejected"
