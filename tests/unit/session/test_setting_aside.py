"""A message that is no job, when the broker cannot take it into the dead queue: it is in nobody's way, and not lost."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_fake import FakeBroker
from queuey_rabbitmq import QueueConfig, RabbitMqOptions
from tests.unit.session.conftest import job

EMAILS = QueueConfig("emails")


def malform(broker: FakeBroker) -> None:
    with BrokerDoor(broker.url) as door:
        door.publish(EMAILS.name, b"no job")


def test_it_waits_for_a_blocked_broker_without_making_the_stream_wait(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    backend = broker.backend(RabbitMqOptions(max_in_flight=1, operation_timeout=30))
    backend.declare([EMAILS])
    malform(broker)
    broker.faults.block()
    fills_the_bound = backend.publish_nowait(job())
    with backend.consume(EMAILS) as deliveries:
        assert deliveries.get(timeout=10) is None
        broker.advance(25)
        assert isinstance(fills_the_bound.exception(), TimeoutError)
        assert "could not be moved to its dead queue: publishing to queue 'emails.dead': not done within" in caplog.text
        broker.faults.unblock()
        broker.advance(5)
        assert deliveries.get(timeout=1) is not None  # what filled the bound
    moved = broker.queue("emails.dead")
    assert moved is not None
    assert [message.body for message in moved.messages] == [b"no job"]


def test_it_goes_back_after_a_while_where_there_is_no_dead_queue_any_more(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    backend = broker.backend()
    backend.declare([EMAILS])
    malform(broker)
    broker.faults.delete_queue("emails.dead")
    with backend.consume(EMAILS) as deliveries:
        assert deliveries.get(timeout=1) is None
    assert "there is no such queue" in caplog.text
    queue = broker.queue("emails")
    assert queue is not None
    assert queue.ready == 1
