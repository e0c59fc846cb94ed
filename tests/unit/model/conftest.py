"""A client of the broker model that says in one word what a test wants done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuey_fake.model import events
from queuey_fake.model.broker import Broker
from queuey_fake.model.channel import Channel
from queuey_fake.model.fields import table_from_python, table_to_python
from queuey_fake.model.properties import Properties

NEWEST = "4.3"
TRANSIENT = {"transient_nonexcl_queues"}


class Client:
    """One channel of one connection; `arguments` and `headers` are plain values, bodies are text."""

    def __init__(self, broker: Broker, channel: Channel) -> None:
        self.broker = broker
        self.channel = channel

    def another(self, number: int) -> Client:
        """A second channel of the same connection."""
        channel = self.channel.connection.open_channel(number)
        self.heard()
        return Client(self.broker, channel)

    def stranger(self) -> Client:
        """A channel of another connection."""
        channel = self.broker.connect().open_channel(1)
        channel.connection.outbox.clear()
        return Client(self.broker, channel)

    def heard(self) -> list[events.Event]:
        """What the broker said to the connection since the last look."""
        said = list(self.channel.connection.outbox)
        self.channel.connection.outbox.clear()
        return said

    def declare(self, queue: str, *, durable: bool = True, **options: Any) -> Any:
        arguments = options.pop("arguments", {})
        self.channel.queue_declare(queue, durable=durable, arguments=table_from_python(arguments), **options)
        return self.heard()[-1]

    def publish(self, queue: str, *bodies: str, mandatory: bool = False, exchange: str = "", **properties: Any) -> None:
        if "headers" in properties:
            properties["headers"] = table_from_python(properties["headers"])
        for body in bodies:
            self.channel.basic_publish(exchange, queue, Properties(**properties), body.encode(), mandatory=mandatory)

    def get(self, queue: str, *, ack: bool = True) -> Any:
        """The next message as an event, acknowledged on the way unless `ack` is False; None when there is none."""
        self.channel.basic_get(queue, no_ack=ack)
        said = self.heard()[-1]
        return said if isinstance(said, events.GetOk) else None

    def drain(self, queue: str) -> list[str]:
        """The bodies of all ready messages, taken out."""
        bodies = []
        while (got := self.get(queue)) is not None:
            bodies.append(got.body.decode())
        return bodies

    def consume(self, queue: str, tag: str, *, prefetch: int = 0, **options: Any) -> None:
        arguments = options.pop("arguments", {})
        self.channel.basic_qos(prefetch)
        self.channel.basic_consume(queue, tag, arguments=table_from_python(arguments), **options)

    def delivered(self) -> list[tuple[str, str]]:
        """(consumer tag, body) of what was delivered on the connection since the last look."""
        return [(said.consumer_tag, said.body.decode()) for said in self.heard() if isinstance(said, events.Deliver)]

    def wait(self, ms: int) -> None:
        self.broker.run_due(self.broker.now_ms + ms)

    def ready(self, queue: str) -> list[str]:
        """The bodies of the ready messages, left where they are."""
        snapshot = self.broker.queue_snapshot(queue)
        return [message.body.decode() for message in snapshot.messages if not message.is_unacked] if snapshot else []

    def exists(self, queue: str) -> bool:
        return self.broker.queue_snapshot(queue) is not None

    def headers(self, got: events.GetOk) -> dict[str, Any]:
        return table_to_python(got.properties.headers or {})


@pytest.fixture
def connect() -> Callable[..., Client]:
    """Open a client of a new broker of the given version."""

    def opened(version: str = NEWEST, *, now_ms: int = 0) -> Client:
        broker = Broker(version=version, permit=TRANSIENT if version == NEWEST else (), now_ms=now_ms)
        channel = broker.connect().open_channel(1)
        channel.connection.outbox.clear()
        return Client(broker, channel)

    return opened


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()
