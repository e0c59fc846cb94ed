"""A session that only records, and links to ports on which no broker is."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink

PASSWORD = "sw0rdfish-in-the-url"


class Recorder:
    """The smallest session: it records events, and runs what a test gives it in turns."""

    def __init__(self, link: PikaLink) -> None:
        self.link = link
        self.events: SimpleQueue[amqp.Event] = SimpleQueue()
        self.abandoned: SimpleQueue[BaseException] = SimpleQueue()
        self.turns = 0
        self.connection: amqp.Connection
        self.deadline_ms: int | None = None
        self.times: SimpleQueue[int] = SimpleQueue()
        link.attach(self)

    def end_of_turn(self) -> None:
        self.turns += 1

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_time(self) -> None:
        self.times.put(self.link.monotonic_ms())
        self.deadline_ms = None

    def abandon(self, error: BaseException) -> None:
        self.abandoned.put(error)

    def in_turn(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a turn, and return its result."""
        future: Future[Any] = Future()

        def step() -> None:
            self.link.resolve(future, function(*args))

        self.link.run(step)
        return self.link.wait(future, self.link.monotonic_ms() + 5_000)

    def connect(self) -> amqp.Event:
        """Open a connection, and return its first event."""
        self.connection = self.in_turn(self.link.open, "test", self.events.put)
        return self.events.get(timeout=5)


@pytest.fixture
def make_link() -> Iterator[Callable[..., PikaLink]]:
    links = []

    def make(url: str | list[str], **settings: Any) -> PikaLink:
        links.append(PikaLink(LinkSettings(url=url, **settings)))
        return links[-1]

    yield make
    for link in links:
        link.close(1_000)


@pytest.fixture
def recorder(make_link: Callable[..., PikaLink]) -> Recorder:
    """A recorder on a link that never connects."""
    return Recorder(make_link("amqp://127.0.0.1:1"))


@pytest.fixture
def record(make_link: Callable[..., PikaLink]) -> Callable[..., Recorder]:
    """Make a recorder on a link to a port of this machine, with a password in its URL."""

    def record(port: int, *, scheme: str = "amqp", host: str = "127.0.0.1", **settings: Any) -> Recorder:
        return Recorder(make_link(f"{scheme}://user:{PASSWORD}@{host}:{port}/%2f", **settings))

    return record


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Serve the connections to a port with a function, each in a thread; return the port."""
    peers: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [peer.close() for peer in peers])

        def serve(behave: Callable[[socket.socket], None]) -> int:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        peer, _ = server.accept()
                        peers.append(peer)
                        Thread(target=handle, args=(peer,), daemon=True).start()

            def handle(peer: socket.socket) -> None:
                with contextlib.suppress(OSError):
                    behave(peer)

            accepting = Thread(target=accept, daemon=True)
            accepting.start()
            stack.callback(accepting.join, 5)  # who is accepted last is closed too
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            return int(server.getsockname()[1])

        yield serve
