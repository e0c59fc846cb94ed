"""Declarations, on a broker that does not answer all of them."""

from __future__ import annotations

from queuey_rabbitmq import amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.declaring import DeclareChannel
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import DeclareOperation, QueueDeclaration
from tests.unit.session.conftest import Broker


def declare(*queues: str) -> DeclareOperation:
    return DeclareOperation([QueueDeclaration(queue, True) for queue in queues], deadline_ms=100, timeout_ms=100)


def last_declared(played: Broker) -> amqp.DeclareQueue:
    return [command for command in played.sent if isinstance(command, amqp.DeclareQueue)][-1]


def test_what_is_not_answered_until_its_deadline_keeps_nothing_that_follows_from_being_declared(
    played: Broker, connection: SessionConnection, endings: Endings
) -> None:
    channel = DeclareChannel(connection, endings)
    unanswered, next_one, later = declare("on a node that is down"), declare("emails"), declare("letters")
    channel.declare(unanswered)
    played.answer_channels()
    channel.declare(next_one)
    asked = last_declared(played)
    endings.overdue(unanswered, None)
    channel.forget_finished()
    played.answer_channels()
    assert last_declared(played).queue == "emails"
    played.say(amqp.QueueDeclared(asked.channel, asked.queue, 0, 0))
    assert not next_one.finished
    played.say(amqp.QueueDeclared(last_declared(played).channel, "emails", 0, 0))
    assert next_one.finished
    channel.declare(later)
    assert last_declared(played).queue == "letters"
