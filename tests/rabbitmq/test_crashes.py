"""A private broker that stands still, or is killed: what was confirmed, and what is held, is there afterwards."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_queuey.options import read_settings
from pytest_queuey.sources.local import LocalProgress, LocalServer, find_server
from pytest_queuey.sources.server import SourceError, wait_until_ready
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.reconnect import ReconnectPolicy

QUEUE = QueueConfig("crashes", prefetch=100)
OPTIONS = RabbitMqOptions(
    deferred_granularity=0.01, hold_lease_margin=20, reconnect=ReconnectPolicy(base=0.05, max_delay=0.5)
)
JOBS = 200
STANDS_STILL_S = 5
PATIENCE_S = 60


def wait(server: LocalServer) -> None:
    assert server.server.folder is not None
    wait_until_ready(server.server, LocalProgress(Path(server.server.folder)))


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """A server of this module's own."""
    try:
        server = LocalServer.start(find_server(read_settings(request.config).rabbitmq_server))
    except SourceError as error:
        pytest.skip(f"only a server that this test starts can be stopped and killed: {error}")
    wait(server)
    yield server
    server.close()


@pytest.fixture
def backend(server: LocalServer) -> Iterator[RabbitMqBackend]:
    with RabbitMqBackend.with_options(server.server.url, OPTIONS) as backend:
        backend.declare([QUEUE])
        yield backend


def new_job(backend: RabbitMqBackend, payload: int) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="job", queue=QUEUE.name, enqueued_at_ms=backend.now_ms(), payload=payload
    )


def take_all(backend: RabbitMqBackend) -> set[object]:
    """Take jobs until all have come, or none does any more."""
    taken: set[object] = set()
    deadline = time.monotonic() + PATIENCE_S
    with backend.consume(QUEUE) as deliveries:
        while len(taken) < JOBS and time.monotonic() < deadline:
            delivery = deliveries.get(timeout=PATIENCE_S / 4)
            if delivery is None:
                break
            taken.add(delivery.envelope.payload)
            delivery.ack()
    return taken


def test_what_is_held_comes_though_the_broker_stood_still_for_longer_than_it_waits(
    server: LocalServer, backend: RabbitMqBackend
) -> None:
    # Each job has a hold queue of its own. Each delay is over meanwhile, and so is twice each: without the margin, a
    # few queues in a hundred went before they gave back what they held, on a busy machine.
    held = [backend.defer_nowait(new_job(backend, number), 0.5 + number / 100) for number in range(JOBS)]
    for future in held:
        future.result(PATIENCE_S)
    server.send_signal(signal.SIGSTOP)
    time.sleep(STANDS_STILL_S)
    server.send_signal(signal.SIGCONT)
    assert take_all(backend) == set(range(JOBS))


def test_what_was_confirmed_and_what_still_waits_is_there_after_the_broker_was_killed(
    server: LocalServer, backend: RabbitMqBackend
) -> None:
    for number in range(JOBS):
        if number % 2:
            backend.publish(new_job(backend, number))
        else:
            backend.defer(new_job(backend, number), 10)
    server.kill()
    server.start_again()
    wait(server)
    assert take_all(backend) == set(range(JOBS))
