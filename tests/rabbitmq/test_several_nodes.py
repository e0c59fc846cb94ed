"""A broker that is reached over several addresses: the next one serves where one is dead, from the start and later."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from queuey_rabbitmq import ConnectError, Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from tests.rabbitmq.conftest import BlackHole

MESSAGES = 3_000


@pytest.fixture
def url_of(rabbitmq_url: str) -> Callable[..., str]:
    """The broker's URL with other nodes."""

    def url_of(*ports: int) -> str:
        split = urlsplit(rabbitmq_url)
        nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        return urlunsplit(split._replace(netloc=f"{split.username}:{split.password}@{nodes}"))

    return url_of


@pytest.fixture
def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def emails(operator: Any) -> Iterator[QueueConfig]:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=50)
    yield config
    for suffix in ("", ".dead"):
        operator.queue_delete(f"{config.name}{suffix}")


def job(backend: RabbitMqBackend, emails: QueueConfig) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="x", queue=emails.name, enqueued_at_ms=backend.now_ms(), payload={"n": 1}
    )


def test_the_second_node_serves_where_the_first_is_dead(
    url_of: Callable[..., str], dead_port: int, make_black_hole: Callable[[], BlackHole], emails: QueueConfig
) -> None:
    way = make_black_hole()
    for url in (url_of(dead_port, way.port), [url_of(dead_port), url_of(way.port)]):
        with RabbitMqBackend.connect(url) as backend:
            backend.declare([emails])
            backend.publish(job(backend, emails))


def test_a_node_that_dies_under_publishes_and_a_consumer_is_a_pause(
    url_of: Callable[..., str], make_black_hole: Callable[[], BlackHole], emails: QueueConfig
) -> None:
    first, second = make_black_hole(), make_black_hole()
    with (
        RabbitMqBackend.connect(url_of(first.port, second.port)) as backend,
        RabbitMqBackend.connect(url_of(second.port)) as steady,
    ):
        backend.declare([emails])
        jobs = [job(backend, emails) for _ in range(MESSAGES)]
        got = set()
        with backend.consume(emails) as deliveries:
            futures = [backend.publish_nowait(envelope) for envelope in jobs[: MESSAGES // 2]]
            first.close()
            futures += [backend.publish_nowait(envelope) for envelope in jobs[MESSAGES // 2 :]]
            for future in futures:
                future.result(20)
            while len(got) < MESSAGES:
                delivery = deliveries.get(timeout=10)
                assert delivery is not None
                delivery.ack()
                got.add(delivery.envelope.job_id)
        assert got == {envelope.job_id for envelope in jobs}
        assert steady.stale_settlements == 0


def test_a_node_that_falls_silent_leaves_time_for_the_next(
    url_of: Callable[..., str], make_black_hole: Callable[[], BlackHole], emails: QueueConfig
) -> None:
    silent, way = make_black_hole(), make_black_hole()
    silent.swallows.set()
    start = time.monotonic()
    options = RabbitMqOptions(connect_timeout=4)
    with RabbitMqBackend.with_options(url_of(silent.port, way.port), options) as backend:
        assert 1.9 < time.monotonic() - start < 4
        backend.declare([emails])


def test_when_all_are_dead_each_is_named_within_connect_timeout(
    url_of: Callable[..., str], dead_port: int, make_black_hole: Callable[[], BlackHole]
) -> None:
    silent = make_black_hole()
    silent.swallows.set()
    start = time.monotonic()
    with pytest.raises(ConnectError, match="trying every node") as failure:
        RabbitMqBackend.with_options(url_of(dead_port, silent.port), RabbitMqOptions(connect_timeout=1))
    assert time.monotonic() - start < 10
    assert f"127.0.0.1:{dead_port}: Connection refused" in str(failure.value)
    assert f"127.0.0.1:{silent.port} took the connection but gave no AMQP answer within" in str(failure.value)
