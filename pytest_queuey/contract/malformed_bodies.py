"""Owns the contract's chapter on bodies that are no envelope: moved aside with their reason, never in the way."""

from __future__ import annotations

import logging

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor, RawMessage
from pytest_queuey.contract.foreign_bodies import ENVELOPE
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import ContractClock, MakeJob, work_off
from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig

MALFORMED = {
    "empty": b"",
    "no JSON": b"hello",
    "cut": ENVELOPE[:-1],
    "no object": b"[1, 2]",
    "nothing in it": b"{}",
    "no UTF-8": ENVELOPE.replace(b'"t"', b'"\xff"'),
    "attempt as text": ENVELOPE.replace(b'"attempt":1', b'"attempt":"1"'),
    "attempt zero": ENVELOPE.replace(b'"attempt":1', b'"attempt":0'),
    "no job id": ENVELOPE.replace(b"0198f0c2", b"whatever"),
    "no payload": ENVELOPE.replace(b',"payload":null', b""),
}

each_malformed = pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in MALFORMED.items()])


def moved_aside(door: BrokerDoor, queue: QueueConfig) -> RawMessage:
    """Take a message off the dead queue, where there must be one."""
    message = door.get(f"{queue.name}.dead")
    assert message is not None, "the malformed message is not in the dead queue"
    return message


class MalformedBodies(RabbitMqSurroundings):
    """A consumer sees only jobs, and a message that is none is not lost for that."""

    @each_malformed
    def test_a_malformed_body_is_moved_aside_untouched_and_the_next_job_delivered(
        self, door: BrokerDoor, backend: Backend, queue_name: str, new_job: MakeJob, body: bytes
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        door.publish(queue_name, body, Properties(message_id="m", type="t", priority=3, headers={"x-mine": 1}))
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        message = moved_aside(door, queue)
        assert message.body == body
        assert dict(message.headers) == {"x-death-reason": "malformed envelope", "x-original-queue": queue_name}
        properties = message.properties
        assert (properties.message_id, properties.type, properties.priority) == (None, None, None)
        assert properties.delivery_mode == 2
        assert door.depth(queue_name) == 0

    def test_a_malformed_body_is_logged_with_its_queue(
        self,
        door: BrokerDoor,
        backend: Backend,
        queue: QueueConfig,
        new_job: MakeJob,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        door.publish(queue.name, b"hello")
        backend.publish(new_job("next"))
        with caplog.at_level(logging.WARNING, logger="queuey_rabbitmq"), backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        assert [record for record in caplog.records if queue.name in record.getMessage()]

    def test_many_malformed_bodies_are_passed_by_whatever_the_prefetch(
        self, door: BrokerDoor, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        for number in range(20):
            door.publish(queue_name, b"%d" % number)
        backend.publish(new_job("next"))
        with backend.consume(QueueConfig(queue_name, prefetch=3)) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        moved = [moved_aside(door, QueueConfig(queue_name)).body for _ in range(20)]
        assert moved == [b"%d" % number for number in range(20)]

    def test_a_malformed_body_is_moved_aside_while_nothing_else_comes(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig
    ) -> None:
        door.publish(queue.name, b"hello")
        with backend.consume(queue) as deliveries:
            assert deliveries.get(timeout=0.5) is None
        assert moved_aside(door, queue).body == b"hello"

    def test_malformed_bodies_that_keep_coming_do_not_prolong_a_wait(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, clock: ContractClock
    ) -> None:
        trickle = f"{queue.name}.trickle"
        door.declare(trickle, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.name})
        for after_ms in (200, 400, 600):
            door.publish(trickle, b"hello", Properties(expiration=str(after_ms)))
        with backend.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            assert deliveries.get(timeout=0.3) is None
            assert clock.now_ms() - start_ms < 600

    def test_without_dead_letter_queues_a_malformed_body_is_rejected(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        backend = backend_factory(QUICK.replace(declare_dead_letter_queues=False))
        backend.declare([queue])
        door.publish(queue_name, b"hello")
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        assert [door.depth(queue_name), door.depth(f"{queue_name}.dead")] == [0, None]

    def test_a_malformed_body_that_cannot_be_moved_stays_in_its_queue_and_others_pass_it(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        door.delete(f"{queue.name}.dead")
        door.publish(queue.name, b"hello")
        for number in range(3):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 3) == [0, 1, 2]
        assert door.comes_to(queue.name, 1)

    def test_a_malformed_body_that_could_not_be_moved_is_moved_when_it_can_be(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        door.delete(f"{queue.name}.dead")
        door.publish(queue.name, b"hello")
        backend.publish(new_job("first"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["first"]
            backend.declare([queue])
        backend.publish(new_job("second"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["second"]
        assert moved_aside(door, queue).body == b"hello"
