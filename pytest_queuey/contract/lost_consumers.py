"""Owns the contract's chapter on consumers that RabbitMQ ends: they come back, or say so and let what is out settle."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.rabbitmq_surroundings import MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import PATIENCE, MakeJob, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import ConsumerCancelledError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.options import RabbitMqOptions


class LostConsumers(RabbitMqSurroundings):
    """A consumer whose queue was deleted never idles for ever."""

    def test_a_consumer_of_a_deleted_queue_declares_it_again_and_resumes(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with backend.consume(queue) as deliveries:
            door.delete(queue.name)
            assert deliveries.get(timeout=1) is None
            backend.publish(new_job("after"))
            assert work_off(deliveries, 1) == ["after"]

    def test_without_reconnection_a_consumer_of_a_deleted_queue_ends_with_an_error_that_names_it(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig
    ) -> None:
        backend = backend_factory(RabbitMqOptions(reconnect=None))
        backend.declare([queue])
        with backend.consume(queue) as deliveries:
            door.delete(queue.name)
            with pytest.raises(ConsumerCancelledError, match=queue.name):
                deliveries.get(timeout=PATIENCE)
            with pytest.raises(ConsumerCancelledError, match=queue.name):
                next(deliveries)

    def test_without_reconnection_a_delivery_of_a_deleted_queue_can_still_be_settled(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(RabbitMqOptions(reconnect=None))
        backend.declare([queue])
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
