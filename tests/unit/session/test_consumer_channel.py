"""A consumer, on a broker that a test plays itself."""

from __future__ import annotations

from typing import Any

from queuey_rabbitmq import BackendError, ShutDownError, amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.consuming import ConsumerChannel, Ended
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import Step
from tests.unit.session.conftest import Broker


class Around:
    """What is around a consumer: its mailbox, and who looks after it."""

    def __init__(self) -> None:
        self.items: list[tuple[ConsumerChannel, Any]] = []
        self.lost: list[BackendError] = []

    def put(self, item: tuple[ConsumerChannel, Any]) -> None:
        self.items.append(item)

    def get(self, timeout_ms: int | None) -> None:
        del timeout_ms

    def consumer_lost(self, _consumer: ConsumerChannel, error: BackendError) -> None:
        self.lost.append(error)

    def consumer_ended(self, consumer: ConsumerChannel) -> None:
        pass

    def settled_too_late(self) -> None:
        pass


def consuming(played: Broker, connection: SessionConnection, endings: Endings, around: Around) -> ConsumerChannel:
    consumer = ConsumerChannel(
        connection, endings, queue="emails", tag="tag", prefetch=9, mailbox=around, keeper=around
    )
    consumer.start(Step("consuming", deadline_ms=100, timeout_ms=100))
    played.answer_channels()
    played.say(amqp.ConsumeStarted(1, "tag"))
    return consumer


def test_a_cancel_of_the_broker_that_crosses_its_own_ends_it_as_it_was_asked(
    played: Broker, connection: SessionConnection, endings: Endings
) -> None:
    around = Around()
    consumer = consuming(played, connection, endings, around)
    consumer.drain()
    played.say(amqp.ConsumerCancelled(1, "tag", by_broker=True))
    assert around.lost == []
    [(_, ended)] = around.items
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, ShutDownError)


def test_a_cancelled_consumer_that_is_closed_gives_back_what_is_unsettled_before_its_channel_closes(
    played: Broker, connection: SessionConnection, endings: Endings
) -> None:
    around = Around()
    consumer = consuming(played, connection, endings, around)
    for tag in range(1, 5):
        played.say(amqp.Delivered(1, "tag", tag, False, "", "emails", amqp.Properties(), b""))
    consumer.drain()
    consumer.settle(1, 4, "ack")  # which no `multiple` may stand at any more
    played.sent.clear()
    consumer.stop(Step("closing", deadline_ms=100, timeout_ms=100))
    assert played.sent == [amqp.Ack(1, 4), amqp.Nack(1, 3, requeue=True, multiple=True), amqp.CloseChannel(1)]
