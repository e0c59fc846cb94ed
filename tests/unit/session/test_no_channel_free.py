"""More channels than a connection may have: what needs one fails at once and says so, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import BackendError, QueueConfig, RabbitMqBackend
from tests.unit.session.conftest import job

EMAILS, LETTERS = QueueConfig("emails"), QueueConfig("letters")

Connect = Callable[[int], RabbitMqBackend]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect a backend, each of whose connections may have so many channels."""
    with FakeBroker() as broker:
        broker.backend().declare([EMAILS, LETTERS])
        backends = []

        def connect(channel_max: int) -> RabbitMqBackend:
            backends.append(RabbitMqBackend.connect(f"{broker.url}?channel_max={channel_max}"))
            return backends[-1]

        yield connect
        for backend in backends:
            backend.close()


def test_a_consumer_too_many_is_an_error_that_says_why_and_another_one_follows_when_there_is_room(
    connect: Connect,
) -> None:
    backend = connect(1)
    first = backend.consume(EMAILS)
    with pytest.raises(BackendError, match=r"consuming queue 'letters': no channel .* all 1 channels that channel_max"):
        backend.consume(LETTERS)
    first.close()
    with backend.consume(LETTERS):
        backend.publish(job())


def test_a_declaration_without_a_channel_fails_at_once_and_the_next_one_does_not(connect: Connect) -> None:
    backend = connect(1)
    with backend.consume(EMAILS), pytest.raises(BackendError, match=r"declaring queue 'emails.dead': no channel"):
        backend.declare([EMAILS])
    backend.declare([EMAILS])


def test_holds_go_through_as_many_channels_as_there_are(connect: Connect) -> None:
    backend = connect(2)
    backend.declare([EMAILS])
    held = [backend.defer_nowait(job(), 60 + number) for number in range(20)]
    assert [future.result(timeout=5) for future in held] == [None] * 20


def test_a_publish_without_a_channel_fails_and_leaves_the_backend_alone(connect: Connect) -> None:
    backend = connect(1)
    backend.declare([EMAILS])
    backend.defer(job(), 60)
    for _ in range(2):
        with pytest.raises(BackendError, match=r"publishing to queue 'emails': nothing was sent: no channel"):
            backend.publish(job())
    backend.defer(job(), 60)


def test_a_hold_without_a_channel_fails_and_leaves_the_backend_alone(connect: Connect) -> None:
    backend = connect(1)
    backend.declare([EMAILS])
    backend.publish(job())
    for _ in range(2):
        with pytest.raises(BackendError, match=r"publishing to queue 'emails.deferred.60000': nothing was sent"):
            backend.defer(job(), 60)
    backend.publish(job())
