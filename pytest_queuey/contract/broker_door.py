"""Owns the contract's second way into a broker, past the backend: raw messages and queues, over AMQP.

The suite publishes bodies that no backend would, deletes queues under a backend's feet, and reads what a backend
wrote as a tool of somebody else's would. Refuses to know the backend's names and rules.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from queuey_rabbitmq.amqp import Properties

if TYPE_CHECKING:
    import pika

    from queuey_rabbitmq.amqp import ReadableProperties

_NOT_FOUND: Final = 404
_ANSWERS_WITHIN: Final = 10.0
_LOOK_EVERY: Final = 0.01
_NO_PROPERTIES: Final = Properties()


class DoorRefusedError(Exception):
    """The broker refused what was asked of it; the message is its words."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message as it was in its queue."""

    body: bytes
    properties: ReadableProperties

    @property
    def headers(self) -> Mapping[str, Any]:
        """Return the headers, empty where there are none."""
        return self.properties.headers or {}


class BrokerDoor:
    """What the contract asks of a broker directly, over its AMQP port; everything has happened when a call returns.

    Each operation has a channel of its own, as a refusal closes it.
    """

    def __init__(self, url: str) -> None:
        from pytest_queuey import blocking_connection

        self._connection = blocking_connection.connect(url, name="queuey: a test's own way in", within=_ANSWERS_WITHIN)
        self._declared: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def declare(self, queue: str, *, durable: bool = True, arguments: Mapping[str, Any] | None = None) -> None:
        """Declare a queue. Raises DoorRefusedError where there is one with other properties."""
        with self._channel() as channel:
            channel.queue_declare(queue, durable=durable, arguments=dict(arguments or {}))
            self._declared[queue] = None

    def delete(self, queue: str) -> None:
        """Delete a queue with everything in it; fine where there is none."""
        with self._channel() as channel:
            channel.queue_delete(queue)

    def publish(self, queue: str, body: bytes, properties: Properties = _NO_PROPERTIES) -> None:
        """Put a message on a queue, confirmed. Raises DoorRefusedError where there is no such queue."""
        import pika
        from msgspec.structs import asdict

        with self._channel() as channel:
            channel.confirm_delivery()
            try:
                channel.basic_publish("", queue, body, pika.BasicProperties(**asdict(properties)), mandatory=True)
            except pika.exceptions.UnroutableError as error:
                raise DoorRefusedError(f"publishing to queue '{queue}': unroutable") from error

    def get(self, queue: str) -> RawMessage | None:
        """Take the first message off a queue, or None where it has none ready."""
        with self._channel() as channel:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            return None if method is None else RawMessage(body, properties)

    def depth(self, queue: str) -> int | None:
        """Return how many messages of a queue are ready, None where there is no such queue; renews its lease."""
        try:
            with self._channel() as channel:
                count: int = channel.queue_declare(queue, passive=True).method.message_count
                return count
        except DoorRefusedError as error:
            if _code(error) == _NOT_FOUND:
                return None
            raise

    def comes_to(self, queue: str, ready: int) -> bool:
        """Wait until a queue has so many messages ready; tell whether it came to that. Renews its lease.

        On a real broker what a closed consumer held goes back a moment after the close was answered: a passive
        declaration may be answered ahead of it (seen on 3.10 and 4.3, in 1 of 100 tries on a busy machine).
        """
        ends = time.monotonic() + _ANSWERS_WITHIN
        while self.depth(queue) != ready:
            if time.monotonic() > ends:
                return False
            self._connection.sleep(_LOOK_EVERY)
        return True

    def close(self) -> None:
        """Delete every queue that was declared, and close the connection, if the broker has not."""
        if self._connection.is_open:
            for queue in self._declared:
                self.delete(queue)
            self._connection.close()

    @contextmanager
    def _channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        import pika

        channel = self._connection.channel()
        try:
            yield channel
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as error:
            raise DoorRefusedError(f"{error.reply_code} {error.reply_text}") from error
        channel.close()


def _code(error: DoorRefusedError) -> int:
    return int(str(error).split(" ", 1)[0])
