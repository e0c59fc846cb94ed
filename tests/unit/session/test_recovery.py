"""Coming back, where one thing that is lost stands in the way of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import DeadlineExceededError, DeclareRefusedError, QueueConfig, RabbitMqOptions, ReconnectPolicy
from queuey_rabbitmq.core.reconnect import Attempt
from tests.unit.session.conftest import job

EMAILS, LETTERS = QueueConfig("emails"), QueueConfig("letters")


class Decided(ReconnectPolicy):
    """Waits as a test says, for connections and for consumers."""

    def __init__(self, *, connection: timedelta | float, consumer: timedelta | float) -> None:
        super().__init__()
        object.__setattr__(self, "_delays", {"connection": connection, "consumer": consumer})

    def next_delay(self, attempt: Attempt) -> timedelta | float | None:
        return self._delays[attempt.rebuilding]


@pytest.fixture
def change_behind_its_back(broker: FakeBroker) -> Callable[[QueueConfig], None]:
    """Replace a queue by one with other arguments, as an operator does."""

    def change(queue: QueueConfig) -> None:
        broker.faults.delete_queue(queue.name)
        broker.backend().declare([QueueConfig(queue.name, max_priority=3)])

    return change


def test_a_queue_that_is_another_one_now_keeps_no_consumer_of_the_next_from_resuming(
    broker: FakeBroker, change_behind_its_back: Callable[[QueueConfig], None], caplog: pytest.LogCaptureFixture
) -> None:
    backend = broker.backend()
    backend.declare([EMAILS, LETTERS])
    change_behind_its_back(EMAILS)
    with backend.consume(LETTERS) as deliveries:
        broker.faults.delete_queue(LETTERS.name)
        assert deliveries.get(timeout=1) is None
        backend.publish(job(LETTERS.name))
        delivery = deliveries.get(timeout=1)
        assert delivery is not None
        delivery.ack()
    assert "inequivalent arg 'x-max-priority' for queue 'emails'" in caplog.text


def test_a_queue_that_is_another_one_now_keeps_no_connection_from_coming_back(
    broker: FakeBroker, change_behind_its_back: Callable[[QueueConfig], None], caplog: pytest.LogCaptureFixture
) -> None:
    backend = broker.backend()
    backend.declare([EMAILS, LETTERS])
    change_behind_its_back(EMAILS)
    broker.faults.delete_queue(LETTERS.name)
    broker.faults.drop_connections()
    backend.publish(job(LETTERS.name))
    assert "inequivalent arg 'x-max-priority' for queue 'emails'" in caplog.text


def test_a_consumer_that_has_come_back_with_its_connection_is_not_opened_once_more(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(reconnect=Decided(connection=0, consumer=5)))
    backend.declare([EMAILS])
    with backend.consume(EMAILS) as deliveries:
        broker.faults.cancel_consumers(EMAILS.name)
        broker.faults.drop_connections()
        backend.publish(job(EMAILS.name))
        delivery = deliveries.get(timeout=1)
        assert delivery is not None
        assert deliveries.get(timeout=10) is None
        delivery.ack()
    assert backend.stale_settlements == 0


@pytest.mark.parametrize("now", [-1.0, -math.inf, math.nan])
def test_a_policy_that_waits_for_less_than_nothing_waits_for_nothing(broker: FakeBroker, now: float) -> None:
    backend = broker.backend(RabbitMqOptions(reconnect=Decided(connection=now, consumer=now)))
    backend.declare([EMAILS])
    broker.faults.drop_connections()
    backend.publish(job(EMAILS.name))


def test_a_policy_that_waits_for_ever_leaves_calls_their_deadlines(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(reconnect=Decided(connection=math.inf, consumer=0)))
    backend.declare([EMAILS])
    broker.faults.drop_connections()
    with pytest.raises(DeadlineExceededError, match="There is no connection"):
        backend.publish(job(EMAILS.name))


def test_what_was_declared_before_a_refusal_is_declared_again_too(broker: FakeBroker) -> None:
    other = RabbitMqOptions(declare_dead_letter_queues=False)
    broker.backend(other).declare([QueueConfig(EMAILS.name, max_priority=3), LETTERS])
    backend = broker.backend()
    with pytest.raises(DeclareRefusedError, match="emails"):
        backend.declare([EMAILS])
    broker.faults.delete_queue("emails.dead")
    broker.faults.drop_connections()
    backend.publish(job(LETTERS.name))
    assert "emails.dead" in {queue.name for queue in broker.queues()}


def test_a_policy_may_say_its_delays_as_timedeltas(broker: FakeBroker) -> None:
    second = timedelta(seconds=1)
    backend = broker.backend(RabbitMqOptions(reconnect=Decided(connection=second, consumer=second)))
    backend.declare([EMAILS])
    began_ms = broker.now_ms()
    broker.faults.drop_connections()
    backend.publish(job())
    assert broker.now_ms() - began_ms == 1_000
