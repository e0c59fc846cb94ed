"""Operations that have a channel to themselves, on a broker that does not answer all of them."""

from __future__ import annotations

import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import Message, PublishOperation, QueueDeclaration
from queuey_rabbitmq.session.publishing import UNANSWERED_MS, SoloPool, refusal
from tests.unit.session.conftest import Broker, Timers

CHANNELS = 2


@pytest.fixture
def pool(connection: SessionConnection, endings: Endings, timers: Timers) -> SoloPool:
    return SoloPool(connection, endings, channels=CHANNELS, later=timers.later)


def hold(delay: str) -> PublishOperation:
    queue = f"q.deferred.{delay}"
    message = Message(queue, amqp.Properties(), b"")
    return PublishOperation(message=message, deadline_ms=100, timeout_ms=100, declaration=QueueDeclaration(queue, True))


def test_what_is_not_answered_until_its_deadline_keeps_no_channel_from_what_follows(
    played: Broker, endings: Endings, pool: SoloPool
) -> None:
    unanswered = [hold("1000"), hold("2000")]
    for operation in unanswered:
        pool.perform(operation)
    played.answer_channels()
    assert played.published_to() == ["q.deferred.1000", "q.deferred.2000"]
    pool.perform(hold("3000"))
    assert "q.deferred.3000" not in played.published_to()
    for operation in unanswered:
        endings.overdue(operation, None)
    pool.forget_finished()
    pool.forget_finished()
    assert [type(command) for command in played.sent].count(amqp.CloseChannel) == CHANNELS
    played.answer_channels()
    played.answer_channels()
    assert played.published_to()[-1] == "q.deferred.3000"


def test_channels_whose_close_is_not_answered_either_are_replaced(
    played: Broker, endings: Endings, pool: SoloPool
) -> None:
    unanswered = [hold("1000"), hold("2000")]
    for operation in unanswered:
        pool.perform(operation)
    played.answer_channels()
    for operation in unanswered:
        endings.overdue(operation, None)
    pool.forget_finished()
    played.open_channels()
    pool.perform(hold("3000"))
    played.open_channels()
    assert played.published_to()[-1] == "q.deferred.3000"


def test_what_waits_goes_out_when_none_of_the_channels_was_answered_for_a_second(
    played: Broker, pool: SoloPool, timers: Timers
) -> None:
    for delay in ("1000", "2000", "3000"):
        pool.perform(hold(delay))
    played.answer_channels()
    timers.pass_by(UNANSWERED_MS - 1)
    assert "q.deferred.3000" not in played.published_to()
    timers.pass_by(1)
    played.open_channels()
    assert played.published_to()[-1] == "q.deferred.3000"


def test_a_channel_that_was_put_by_is_closed_once_it_is_answered(
    played: Broker, pool: SoloPool, timers: Timers
) -> None:
    late = hold("1000")
    pool.perform(late)
    for delay in ("2000", "3000"):
        pool.perform(hold(delay))
    played.answer_channels()
    number = next(command.channel for command in played.sent if isinstance(command, amqp.Publish))
    timers.pass_by(UNANSWERED_MS)
    played.say(amqp.QueueDeclared(number, "q.deferred.1000", 0, 0))
    played.say(amqp.Confirmed(number, 1, False))
    assert late.future.done()
    assert late.future.exception() is None
    assert amqp.CloseChannel(number) in played.sent


def test_what_is_for_a_queue_without_an_answer_waits_for_that_and_keeps_no_channel_from_others(
    played: Broker, pool: SoloPool, timers: Timers
) -> None:
    for delay in ("1000", "2000", "1000", "1000", "2000", "3000"):
        pool.perform(hold(delay))
    played.answer_channels()
    first = next(command.channel for command in played.sent if isinstance(command, amqp.Publish))
    timers.pass_by(UNANSWERED_MS)
    played.open_channels()
    assert played.published_to() == ["q.deferred.1000", "q.deferred.2000", "q.deferred.3000"]
    played.say(amqp.QueueDeclared(first, "q.deferred.1000", 0, 0))
    played.say(amqp.Confirmed(first, 1, False))
    played.open_channels()
    assert played.published_to()[3:] == ["q.deferred.1000"]


def test_no_more_channels_are_opened_where_those_that_were_opened_instead_are_not(
    played: Broker, pool: SoloPool, timers: Timers
) -> None:
    for delay in range(1, 10):
        pool.perform(hold(f"{delay}000"))
    played.answer_channels()
    for _ in range(5):
        timers.pass_by(UNANSWERED_MS)
    assert [type(command) for command in played.sent].count(amqp.OpenChannel) == CHANNELS


def test_a_hold_queue_whose_node_is_down_is_no_queue_to_delete() -> None:
    error = refusal(hold("1000"), 404, "NOT_FOUND - home node 'a@b' of durable queue is down", is_declared=False)
    assert "on a node that is down" in str(error)
    assert "delete" not in str(error)


def test_a_confirm_that_crosses_the_close_of_its_channel_gives_nothing_to_a_channel_that_closes(
    played: Broker, endings: Endings, pool: SoloPool
) -> None:
    late, elsewhere, next_one = hold("1000"), hold("2000"), hold("3000")
    pool.perform(late)
    pool.perform(elsewhere)
    played.answer_channels()
    number = next(command.channel for command in played.sent if isinstance(command, amqp.Publish))
    endings.overdue(late, None)
    pool.forget_finished()
    played.say(amqp.QueueDeclared(number, "q.deferred.1000", 0, 0))
    played.say(amqp.Confirmed(number, 1, False))
    pool.perform(next_one)
    played.answer_channels()
    assert not next_one.finished
    played.answer_channels()
    assert played.published_to()[-1] == "q.deferred.3000"
