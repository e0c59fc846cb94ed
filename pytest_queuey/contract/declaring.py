"""Owns the contract's chapter on declaring queues, as far as any backend can keep it."""

from __future__ import annotations

from pytest_queuey.contract.surroundings import MakeBackend, MakeJob, Surroundings, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig


class Declaring(Surroundings):
    """Queues exist once they are declared, and declaring them again changes nothing."""

    def test_declaring_a_queue_twice_leaves_its_jobs_alone(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("before"))
        backend.declare([queue])
        backend.publish(new_job("after"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 2) == ["before", "after"]

    def test_a_second_backend_may_declare_the_same_queue(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        other = backend_factory()
        other.declare([queue])
        backend.publish(new_job("from the first"))
        with other.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "from the first"

    def test_jobs_of_one_queue_never_reach_the_consumer_of_another(
        self, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        other_queue = QueueConfig(f"{queue.name}.other")
        backend.declare([queue, other_queue])
        backend.publish(new_job("for the other", queue=other_queue.name))
        backend.publish(new_job("for this"))
        with backend.consume(queue) as deliveries, backend.consume(other_queue) as other_deliveries:
            assert work_off(deliveries, 1) == ["for this"]
            assert work_off(other_deliveries, 1) == ["for the other"]

    def test_a_queue_may_be_called_anything_that_utf_8_can_write(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(f"{queue_name}.Grüße/✉ *#")
        backend.declare([queue])
        backend.publish(new_job("there", queue=queue.name))
        with backend.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.queue == queue.name
