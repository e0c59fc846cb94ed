"""Declaring again what was declared before, on a broker that does not answer all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import DeclareOperation, QueueDeclaration
from queuey_rabbitmq.session.recovery import LOOK_EVERY_MS, Replay
from tests.unit.session.conftest import Broker, Timers

TIMEOUT_MS = 30_000


class Session:
    """What a replay needs of its session; a test lets the time pass."""

    def __init__(self, timers: Timers, connection: SessionConnection, endings: Endings) -> None:
        self.later = timers.later
        self.declared: list[DeclareOperation] = []
        self.resumed = 0
        self._connection = connection
        self._endings = endings

    def declaring(
        self, declarations: list[QueueDeclaration], ended: Callable[[BaseException | None], None]
    ) -> DeclareOperation:
        operation = DeclareOperation(declarations, deadline_ms=TIMEOUT_MS, timeout_ms=TIMEOUT_MS, ended=ended)
        self.declared.append(operation)
        return operation

    def resume(self, _connection: SessionConnection) -> None:
        self.resumed += 1

    def replay(self, *queues: str) -> None:
        declarations = [QueueDeclaration(queue, True) for queue in queues]
        Replay(self._connection, self, self._endings, declarations, lambda: self.resume(self._connection)).begin()


@pytest.fixture
def session(timers: Timers, connection: SessionConnection, endings: Endings) -> Session:
    connection.is_ready = False
    return Session(timers, connection, endings)


def declared(played: Broker) -> list[str]:
    return [command.queue for command in played.sent if isinstance(command, amqp.DeclareQueue)]


def answer(played: Broker, queue: str) -> None:
    command = next(one for one in played.sent if isinstance(one, amqp.DeclareQueue) and one.queue == queue)
    played.sent.remove(command)
    played.say(amqp.QueueDeclared(command.channel, queue, 0, 0))


def test_one_queue_is_declared_after_the_other_where_each_is_answered(played: Broker, session: Session) -> None:
    session.replay("a", "b")
    played.open_channels()
    assert declared(played) == ["a"]
    answer(played, "a")
    assert declared(played) == ["b"]
    assert session.resumed == 0
    answer(played, "b")
    assert session.resumed == 1


def test_a_queue_of_which_there_is_no_answer_keeps_no_other_from_being_declared(
    played: Broker, timers: Timers, session: Session
) -> None:
    session.replay("down", "a", "down too", "b")
    played.open_channels()
    timers.pass_by(LOOK_EVERY_MS)
    assert declared(played) == ["down"]
    timers.pass_by(LOOK_EVERY_MS)
    played.open_channels()
    assert declared(played) == ["down", "a", "down too", "b"]
    answer(played, "a")
    answer(played, "b")
    timers.pass_by(LOOK_EVERY_MS)
    assert session.resumed == 0
    timers.pass_by(LOOK_EVERY_MS)
    assert session.resumed == 1
    answer(played, "down")
    answer(played, "down too")
    timers.pass_by(LOOK_EVERY_MS)
    assert session.resumed == 1


def test_a_connection_that_opens_no_channel_is_lost_and_one_that_leaves_a_queue_without_an_answer_is_not(
    played: Broker, timers: Timers, session: Session, endings: Endings, connection: SessionConnection
) -> None:
    session.replay("down")
    played.open_channels()
    endings.overdue(session.declared[0], None)
    assert connection.state == "open"
    assert session.resumed == 1
    session.replay("a")
    for _ in range(10):
        timers.pass_by(LOOK_EVERY_MS)
    assert session.resumed == 1
    endings.overdue(session.declared[1], None)
    assert connection.state == "closing"


def test_a_replay_ends_with_its_connection_though_its_channel_was_not_open(
    played: Broker, session: Session, connection: SessionConnection, timers: Timers
) -> None:
    session.replay("a", "b")
    played.say(amqp.ConnectionLost("open", 0, "cut", None))
    assert session.declared[0].finished
    connection.open()
    timers.pass_by(LOOK_EVERY_MS)
    assert len(session.declared) == 1
    assert session.resumed == 0
