"""Consumers end, whatever has become of the broker or of the backend, and what came too late is counted once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    ConnectionLostError,
    DeadlineExceededError,
    DeliveryLost,
    QueueConfig,
    RabbitMqBackend,
    RabbitMqOptions,
    ReconnectPolicy,
    ShutDownError,
)
from tests.unit.session.conftest import job

EMAILS, LETTERS = QueueConfig("emails"), QueueConfig("letters")


def test_a_consumer_of_a_backend_that_has_ended_is_closed_already(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(reconnect=None))
    backend.declare([EMAILS, LETTERS])
    deliveries = backend.consume(EMAILS, LETTERS)
    broker.faults.drop_connections()
    deliveries.close()


def test_a_consumer_that_is_not_answered_keeps_no_other_from_being_closed(broker: FakeBroker) -> None:
    backend = broker.backend()
    backend.declare([EMAILS, LETTERS])
    deliveries = backend.consume(EMAILS, LETTERS)
    with broker.faults.hang(), pytest.raises(DeadlineExceededError, match="closing the consumer of queue 'emails'"):
        deliveries.close()
    assert [queue.consumers for queue in broker.queues() if queue.name in ("emails", "letters")] == [0, 0]


def test_what_came_too_late_is_counted_once_however_often_its_consumer_is_closed(broker: FakeBroker) -> None:
    backend = broker.backend()
    backend.declare([EMAILS])
    backend.publish(job())
    deliveries = backend.consume(EMAILS)
    early, late = deliveries.get(timeout=1), None
    assert early is not None
    early.give_back(after=5)
    broker.faults.drop_connections()
    late = deliveries.get(timeout=1)
    assert late is not None
    broker.advance(10)
    deliveries.close()
    deliveries.close()
    with pytest.raises(DeliveryLost):
        late.ack()
    assert backend.stale_settlements == 2


def test_a_consumer_says_which_connection_the_backend_has_ended_with(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(reconnect=None))
    backend.declare([EMAILS])
    model = broker._engine.model
    with backend.consume(EMAILS) as deliveries:
        [publishing] = [connection for connection in model.connections if connection.name == "publish"]
        broker._engine.run(publishing.lose)
        with pytest.raises(ConnectionLostError, match=r"consuming queue 'emails': the publish connection .* is gone"):
            deliveries.get(timeout=1)


@pytest.mark.parametrize(
    "connect", [lambda broker: broker.backend, lambda broker: partial(RabbitMqBackend.with_options, broker.url)]
)
def test_a_consumer_that_the_broker_has_cancelled_takes_no_more_as_soon_as_it_is_asked(
    broker: FakeBroker, connect: Callable[[FakeBroker], Callable[[RabbitMqOptions], RabbitMqBackend]]
) -> None:
    with connect(broker)(RabbitMqOptions(reconnect=ReconnectPolicy(base=60, max_delay=60))) as backend:
        backend.declare([EMAILS])
        deliveries = backend.consume(EMAILS)
        broker.faults.cancel_consumers(EMAILS.name)
        assert deliveries.get(timeout=0.2) is None
        deliveries.stop()
        with pytest.raises(ShutDownError, match="was asked to take no more"):
            deliveries.get(timeout=5)
