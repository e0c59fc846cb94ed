"""Another channel after a nack: a quorum queue's old one may nack everything, as RabbitMQ 3.10 has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queuey_rabbitmq import PublishRefusedError, amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import Message, PublishOperation
from queuey_rabbitmq.session.publishing import RENEWED_EVERY_MS, PublishChannel, SoloPool
from tests.unit.session.conftest import Broker

Publish = Callable[[str], PublishOperation]


@pytest.fixture
def channel(connection: SessionConnection, endings: Endings) -> PublishChannel:
    return PublishChannel(connection, endings)


@pytest.fixture
def publish(played: Broker, channel: PublishChannel) -> Publish:
    """Publish a message to a queue, and answer the channel that is opened for it."""

    def publish(queue: str) -> PublishOperation:
        operation = message(queue)
        channel.publish(operation)
        played.answer_channels()
        return operation

    return publish


def message(queue: str) -> PublishOperation:
    return PublishOperation(message=Message(queue, amqp.Properties(), b""), deadline_ms=100, timeout_ms=100)


def test_what_follows_a_nack_is_published_on_another_channel(played: Broker, publish: Publish) -> None:
    refused = publish("a")
    played.say(amqp.Nacked(1, 1, False))
    assert isinstance(refused.future.exception(), PublishRefusedError)
    assert played.sent[-1] == amqp.CloseChannel(1)
    publish("b")
    assert played.published_on() == [(1, "a"), (2, "b")]


def test_what_is_in_flight_when_a_nack_comes_is_answered_where_it_was_published(
    played: Broker, publish: Publish
) -> None:
    in_flight = [publish(queue) for queue in "abc"]
    played.say(amqp.Nacked(1, 1, False))
    later = publish("d")
    assert amqp.CloseChannel(1) not in played.sent
    played.say(amqp.Confirmed(2, 1, False))
    assert [operation.finished for operation in (*in_flight, later)] == [True, False, False, True]
    played.say(amqp.Confirmed(1, 3, True))
    assert [operation.future.exception() for operation in in_flight[1:]] == [None, None]
    assert played.sent[-1] == amqp.CloseChannel(1)


def test_a_channel_that_leaves_a_message_without_an_answer_is_closed_at_the_deadline(
    played: Broker, endings: Endings, channel: PublishChannel, publish: Publish
) -> None:
    publish("a")
    unanswered = publish("b")
    played.say(amqp.Nacked(1, 1, False))
    endings.overdue(unanswered, None)
    channel.forget_finished()
    assert played.sent[-1] == amqp.CloseChannel(1)


def test_what_is_in_flight_on_both_channels_when_the_connection_is_lost_is_sent_again_in_order(
    played: Broker, connection: SessionConnection, channel: PublishChannel, publish: Publish
) -> None:
    for queue in "abc":
        publish(queue)
    played.say(amqp.Nacked(1, 1, False))
    publish("d")
    connection.republishes = True
    played.sent.clear()
    played.say(amqp.ConnectionLost("open", 0, "gone", None))
    connection.open()
    connection.is_ready = True
    channel.resume()
    played.answer_channels()
    assert played.published_to() == ["b", "c", "d"]


def test_a_queue_that_refuses_everything_costs_few_channels(played: Broker, publish: Publish) -> None:
    publish("a")
    played.say(amqp.Nacked(1, 1, False))
    for number in (1, 2, 3):
        publish("a")
        played.say(amqp.Nacked(2, number, False))
    played.now_ms += RENEWED_EVERY_MS
    publish("a")
    played.say(amqp.Nacked(2, 4, False))
    publish("a")
    assert [number for number, _ in played.published_on()] == [1, 2, 2, 2, 2, 3]


def test_a_large_message_that_follows_a_nack_has_another_channel(
    played: Broker, connection: SessionConnection, endings: Endings
) -> None:
    pool = SoloPool(connection, endings, channels=1, later=lambda _delay_ms, _step: None)
    pool.perform(message("a"))
    played.answer_channels()
    played.say(amqp.Nacked(1, 1, False))
    pool.perform(message("b"))
    played.answer_channels()
    played.answer_channels()
    assert played.published_on() == [(1, "a"), (2, "b")]
