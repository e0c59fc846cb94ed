"""Commands of the port as the tests of the pika link write them, and waiting for what a real broker shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from queuey_rabbitmq.amqp import (
    Confirmed,
    Consume,
    DeclareQueue,
    Properties,
    Publish,
)


def publish(channel: int, queue: str, body: bytes = b"{}", **properties: Any) -> Publish:
    return Publish(channel, queue, Properties(**properties), body)


def declare(channel: int, queue: str, **arguments: Any) -> DeclareQueue:
    return DeclareQueue(channel=channel, queue=queue, arguments=arguments)


def consume(channel: int, queue: str, prefetch: int = 10) -> Consume:
    return Consume(channel=channel, queue=queue, consumer_tag="tag", prefetch=prefetch)


def confirmed(probe: Any, channel: int, last: int) -> None:
    """Take confirms until publish number `last` is covered; return the numbers as the broker's frames gave them."""
    open_numbers = set(range(1, last + 1))
    while open_numbers:
        event = probe.next()
        assert isinstance(event, Confirmed)
        assert event.channel == channel
        covered = {n for n in open_numbers if n == event.delivery_tag or (event.multiple and n < event.delivery_tag)}
        assert covered
        open_numbers -= covered


def count(operator: Any, queue: str) -> int:
    return operator.queue_declare(queue, passive=True).method.message_count


def soon(look: Callable[[], int], expected: int) -> bool:
    """Whether the broker shows a number within its time: what ends on one channel is seen a little later on others."""
    deadline = time.monotonic() + 10
    while look() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return look() == expected


def with_url(url: str, **parts: Any) -> str:
    split = urlsplit(url)
    user, password = parts.pop("login", (split.username, split.password))
    port = parts.pop("port", split.port)
    return urlunsplit(split._replace(netloc=f"{user}:{password}@{split.hostname}:{port}", **parts))


# --------------------------------------------------------------------------------------------------- connecting
