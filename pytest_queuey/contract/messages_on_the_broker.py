"""Owns the contract's chapter on the messages that a backend writes to RabbitMQ, as tools of others read them."""

from __future__ import annotations

from pytest_queuey.contract.broker_door import BrokerDoor, RawMessage
from pytest_queuey.contract.rabbitmq_surroundings import RabbitMqSurroundings
from pytest_queuey.contract.surroundings import MakeJob, take_one
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig


def get(door: BrokerDoor, queue: str) -> RawMessage:
    """Take a message that must be there."""
    message = door.get(queue)
    assert message is not None, f"queue '{queue}' has nothing"
    return message


class MessagesOnTheBroker(RabbitMqSurroundings):
    """Properties and headers say what a tool needs without decoding the body."""

    def test_a_live_message_carries_its_properties_and_no_expiration(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        job = new_job({"n": 1}, attempt=2, deferrals=3, priority=4, correlation_id="c", job_type="send_email")
        backend.publish(job)
        message = get(door, queue.name)
        properties = message.properties
        assert message.body == job.to_bytes()
        assert dict(message.headers) == {"x-attempt": 2, "x-deferrals": 3}
        assert properties.content_type == "application/json"
        assert properties.delivery_mode == 2
        assert properties.message_id == str(job.job_id)
        assert properties.type == "send_email"
        assert properties.priority == 4
        assert properties.expiration is None
        assert properties.correlation_id is None

    def test_a_priority_of_zero_is_written_too(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job())
        assert get(door, queue.name).properties.priority == 0

    def test_a_job_type_too_long_for_a_property_is_cut_there_and_whole_in_the_body(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        job = new_job(job_type="é" * 400)
        backend.publish(job)
        message = get(door, queue.name)
        assert message.properties.type == "é" * 127
        assert message.body == job.to_bytes()

    def test_a_retried_message_counts_its_attempts_and_loses_its_priority(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job(priority=4, deferrals=1))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.retry(delivery.envelope.next_attempt(), 40)
        message = get(door, f"{queue.name}.deferred.40000")
        assert dict(message.headers) == {"x-attempt": 2, "x-deferrals": 1}
        assert message.properties.priority == 0

    def test_a_deferred_message_counts_its_deferrals_and_has_the_top_priority(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job(attempt=2))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.defer(delivery.envelope.deferred(queue.top_priority), 40)
        message = get(door, f"{queue.name}.deferred.40000")
        assert dict(message.headers) == {"x-attempt": 2, "x-deferrals": 1}
        assert message.properties.priority == 10

    def test_a_dead_letter_carries_what_a_drain_tool_needs(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        job = new_job({"n": 1}, attempt=5, deferrals=2, priority=3, job_type="send_email")
        backend.publish(job)
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter("mailbox unknown")
        message = get(door, f"{queue.name}.dead")
        properties = message.properties
        assert message.body == job.to_bytes()
        assert dict(message.headers) == {
            "x-attempt": 5,
            "x-deferrals": 2,
            "x-death-reason": "mailbox unknown",
            "x-original-queue": queue.name,
            "x-attempts": 5,
        }
        assert properties.message_id == str(job.job_id)
        assert properties.type == "send_email"
        assert properties.content_type == "application/json"
        assert properties.delivery_mode == 2
        assert properties.priority == 3
        assert properties.expiration is None

    def test_what_the_broker_noted_while_a_job_waited_is_not_published_again(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        # A republished x-death would make the broker cut a cycle that is none, and drop the job.
        backend.publish(new_job(), delay=0.1)
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.retry(delivery.envelope.next_attempt(), 40)
        message = get(door, f"{queue.name}.deferred.40000")
        assert dict(message.headers) == {"x-attempt": 2, "x-deferrals": 0}
