"""The two brokers of these tests: the one in memory, and one that a test plays itself, below the rules of a session."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import Envelope, amqp
from queuey_rabbitmq.session.connection import SessionConnection
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.in_flight import InFlightBound


def job(queue: str = "emails", *, headers: Mapping[str, Any] | None = None) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="x", queue=queue, enqueued_at_ms=0, payload=None, headers=headers)


class Broker:
    """A link to a broker that opens and closes channels, and answers everything else when a test does."""

    def __init__(self) -> None:
        self.sent: list[amqp.Command] = []
        self.is_ready = True
        self.now_ms = 0
        self.say: Callable[[amqp.Event], None]

    def open(self, _name: str, on_event: Callable[[amqp.Event], None]) -> Broker:
        self.say = on_event
        on_event(amqp.ConnectionOpened({}))
        return self

    def send(self, commands: Sequence[amqp.Command]) -> None:
        self.sent.extend(commands)

    def open_channels(self) -> None:
        for command in list(self.sent):
            if isinstance(command, amqp.OpenChannel):
                self.sent.remove(command)
                self.say(amqp.ChannelOpened(command.channel))

    def answer_channels(self) -> None:
        sent, self.sent = self.sent, []
        for command in sent:
            if isinstance(command, amqp.OpenChannel):
                self.say(amqp.ChannelOpened(command.channel))
            elif isinstance(command, amqp.CloseChannel):
                self.say(amqp.ChannelClosed(command.channel, 200, ""))
            else:
                self.sent.append(command)

    def published_to(self) -> list[str]:
        return [command.routing_key for command in self.sent if isinstance(command, amqp.Publish)]

    def published_on(self) -> list[tuple[int, str]]:
        return [(command.channel, command.routing_key) for command in self.sent if isinstance(command, amqp.Publish)]

    def monotonic_ms(self) -> int:
        return self.now_ms

    def resolve(self, future: Future[Any], result: object) -> None:
        future.set_result(result)

    def fail(self, future: Future[Any], error: BaseException) -> None:
        future.set_exception(error)

    def connection_opened(self, _connection: SessionConnection) -> None:
        pass

    def abort(self) -> None:
        pass

    def comes_back(self, _connection: SessionConnection, _event: amqp.ConnectionLost) -> bool:
        return True

    def connection_lost(self, _connection: SessionConnection, _event: amqp.ConnectionLost) -> None:
        pass


class Timers:
    """What is to be done later; a test lets the time pass."""

    def __init__(self, played: Broker) -> None:
        self._played = played
        self._due: list[tuple[int, Callable[[], object]]] = []

    def later(self, delay_ms: int, step: Callable[[], object]) -> None:
        self._due.append((self._played.now_ms + delay_ms, step))

    def pass_by(self, ms: int) -> None:
        self._played.now_ms += ms
        due = [step for at_ms, step in self._due if at_ms <= self._played.now_ms]
        self._due = [(at_ms, step) for at_ms, step in self._due if at_ms > self._played.now_ms]
        for step in due:
            step()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def played() -> Broker:
    return Broker()


@pytest.fixture
def timers(played: Broker) -> Timers:
    return Timers(played)


@pytest.fixture
def endings(played: Broker) -> Endings:
    return Endings(played, InFlightBound(messages=10, bytes_=1000))


@pytest.fixture
def connection(played: Broker) -> SessionConnection:
    connection = SessionConnection(played, "publish", played)
    connection.open()
    connection.is_ready = True
    return connection
