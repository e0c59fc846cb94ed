"""Owns the contract's chapter on consumers that RabbitMQ ends: they say so, and what is out can still be settled."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    MakeJob,
    Surroundings,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import ConsumerCancelledError
from queuey_rabbitmq.core.queue_config import QueueConfig


class LostConsumers(Surroundings):
    """A consumer whose queue was deleted never idles for ever."""

    def test_a_consumer_of_a_deleted_queue_ends_with_an_error_that_names_it(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig
    ) -> None:
        with backend.consume(queue) as deliveries:
            door.delete(queue.name)
            with pytest.raises(ConsumerCancelledError, match=queue.name):
                deliveries.get(timeout=PATIENCE)
            with pytest.raises(ConsumerCancelledError, match=queue.name):
                next(deliveries)

    def test_a_delivery_of_a_deleted_queue_can_still_be_settled(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("being worked on"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            door.delete(queue.name)
            with pytest.raises(ConsumerCancelledError):
                deliveries.get(timeout=PATIENCE)
            delivery.ack()
        backend.declare([queue])
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
