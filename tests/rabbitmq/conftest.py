"""The lane that needs a real RabbitMQ, whose queues may be used: the one that --queuey-broker=rabbitmq gives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import pika
import pytest

from pytest_queuey.real_broker import ReadyBroker
from pytest_queuey.sources.local import find_server
from pytest_queuey.sources.server import SourceError
from queuey_rabbitmq import amqp
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink
from tests.rabbitmq.private_broker import PrivateBroker

HERE = Path(__file__).parent
TIMEOUT_S = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.rabbitmq)


@pytest.fixture(scope="session")
def rabbitmq_url(queuey_rabbitmq_server: ReadyBroker) -> str:
    """The URL of the real RabbitMQ of the run, whichever source it comes from."""
    return queuey_rabbitmq_server.server.url


@pytest.fixture(scope="session")
def executable(pytestconfig: pytest.Config) -> str:
    """The rabbitmq-server that private servers of these tests are started with."""
    try:
        return str(find_server(pytestconfig.getoption("queuey_rabbitmq_server")))
    except SourceError as error:
        reason = f"the private server cannot be tested: {error}"
    if pytestconfig.getoption("queuey_rabbitmq_url") or pytestconfig.getoption("queuey_broker") == "auto":
        pytest.skip(reason)
    pytest.fail(reason)


@pytest.fixture(scope="session")
def private_broker(executable: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    broker = PrivateBroker(executable, tmp_path_factory.mktemp("private"))
    try:
        broker.wait_until_ready()
        yield broker
    finally:
        broker.close()


class Probe:
    """The smallest session: one connection, whose events a test takes one by one."""

    def __init__(self, link: PikaLink) -> None:
        self.link = link
        self.events: SimpleQueue[amqp.Event] = SimpleQueue()
        self.turns: list[list[amqp.Event]] = [[]]
        self.connection: amqp.Connection
        self.channels = 0
        link.attach(self)

    def end_of_turn(self) -> None:
        self.turns.append([])

    def next_deadline_ms(self) -> int | None:
        return None

    def on_time(self) -> None:
        raise AssertionError("there is no deadline")

    def abandon(self, error: BaseException) -> None:
        self.death = error

    def on_event(self, event: amqp.Event) -> None:
        self.turns[-1].append(event)
        self.events.put(event)

    def in_turn(self, function: Callable[..., Any], *args: Any) -> Any:
        future: Future[Any] = Future()

        def step() -> None:
            self.link.resolve(future, function(*args))

        self.link.run(step)
        return self.link.wait(future, self.link.monotonic_ms() + TIMEOUT_S * 1000)

    def connect(self) -> amqp.Event:
        self.connection = self.in_turn(self.link.open, "probe", self.on_event)
        return self.next()

    def send(self, *commands: amqp.Command) -> None:
        self.in_turn(self.connection.send, commands)

    def open_channel(self, *, confirms: bool = True) -> int:
        self.channels += 1
        self.send(amqp.OpenChannel(self.channels, confirms))
        assert self.next() == amqp.ChannelOpened(self.channels)
        return self.channels

    def next(self) -> amqp.Event:
        return self.events.get(timeout=TIMEOUT_S)

    def nothing_comes(self) -> bool:
        """Whether all is quiet once the broker has answered everything before a round trip on a new channel."""
        self.open_channel()
        try:
            raise AssertionError(f"came: {self.events.get_nowait()}")
        except Empty:
            return True


@pytest.fixture
def make_probe(rabbitmq_url: str) -> Iterator[Callable[..., Probe]]:
    probes = []

    def make(url: str = rabbitmq_url, **settings: Any) -> Probe:
        probes.append(Probe(PikaLink(LinkSettings(url=url, **settings))))
        return probes[-1]

    yield make
    for probe in probes:
        probe.link.close(2_000)


@pytest.fixture
def probe(make_probe: Callable[..., Probe]) -> Probe:
    """A probe whose connection is open."""
    probe = make_probe()
    assert isinstance(probe.connect(), amqp.ConnectionOpened)
    return probe


@pytest.fixture
def operator(rabbitmq_url: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """A channel beside the link, to look and to interfere."""
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    yield connection.channel()
    connection.close()


class BlackHole:
    """A way to the broker in which, once it `swallows`, everything is lost without a sign; and which can be closed."""

    def __init__(self, host: str, port: int, stack: contextlib.ExitStack) -> None:
        self.swallows = threading.Event()
        self._target = (host, port)
        self._stack = stack
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.callback(self.close)
        self._ends: list[socket.socket] = []
        self.port = self._server.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Cut every connection, and refuse those to come."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)  # what was accepted last is cut too
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._stack.callback(near.close)
                far = socket.create_connection(self._target)
                self._ends += [near, far]
                self._stack.callback(far.close)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if not self.swallows.is_set():
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def make_black_hole(rabbitmq_url: str) -> Iterator[Callable[[], BlackHole]]:
    parameters = pika.URLParameters(rabbitmq_url)
    with contextlib.ExitStack() as stack:
        yield lambda: BlackHole(parameters.host, parameters.port, stack)


@pytest.fixture
def black_hole(make_black_hole: Callable[[], BlackHole]) -> BlackHole:
    return make_black_hole()


@pytest.fixture
def queue(operator: pika.adapters.blocking_connection.BlockingChannel) -> Iterator[str]:
    """A durable queue of this test's own."""
    name = f"queuey-test-{uuid4()}"
    operator.queue_declare(name, durable=True)
    yield name
    operator.queue_delete(name)
