"""A broker that is stopped, unreachable or out of memory: every call ends in time, and what can go on goes on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuey_rabbitmq import (
    ConnectError,
    DeadlineExceededError,
    Envelope,
    OutcomeUnknownError,
    QueueConfig,
    QueueyError,
    RabbitMqBackend,
    RabbitMqOptions,
    ReconnectPolicy,
)
from tests.rabbitmq.private_broker import PrivateBroker
from tests.rabbitmq.speaking import with_url

HURRIED = RabbitMqOptions(operation_timeout=1.5, connect_timeout=3, close_timeout=1)
PAGE = os.sysconf("SC_PAGE_SIZE")
MEBIBYTE = 1024 * 1024
ALARM = 'vm_memory_monitor:set_vm_memory_high_watermark({}), <<"set">>'
CONNECTIONS = """
io_lib:format("~p", [lists:sort(rabbit_networking:connection_info_all([pid]))])
"""


def job(config: QueueConfig, payload: Any = None) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="x", queue=config.name, enqueued_at_ms=0, payload=payload)


@contextlib.contextmanager
def ending_within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.fixture
def emails(private_broker: PrivateBroker) -> Iterator[QueueConfig]:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=10)
    with RabbitMqBackend.connect(private_broker.url) as backend:
        backend.declare([config])
        yield config


def test_every_call_to_a_stopped_broker_ends_at_its_deadline_and_works_when_it_goes_on(
    private_broker: PrivateBroker, emails: QueueConfig
) -> None:
    with RabbitMqBackend.with_options(private_broker.url, HURRIED) as backend:
        backend.declare([emails])
        for _ in range(3):
            backend.publish(job(emails))
        with backend.consume(emails) as deliveries:
            first, second, third = (deliveries.get(timeout=5) for _ in range(3))
            assert first is not None
            assert second is not None
            assert third is not None
            calls: list[Callable[[], object]] = [
                lambda: backend.publish(job(emails)),
                lambda: backend.publish(job(emails), delay=1),
                lambda: backend.publish_nowait(job(emails)).result(10),
                lambda: backend.declare([emails]),
                lambda: backend.consume(emails),
                lambda: first.retry(first.envelope.next_attempt(), 1),
            ]
            with private_broker.stopped():
                for call in calls:
                    with ending_within(8), pytest.raises(DeadlineExceededError, match=r"not done within 1\.5 s"):
                        call()
                with ending_within(10), pytest.raises(ConnectError, match=r"gave no AMQP answer within 3 s"):
                    RabbitMqBackend.with_options(private_broker.url, HURRIED)
                with ending_within(0.4):
                    second.ack()
                with ending_within(8):
                    assert deliveries.get(timeout=0.2) is None
            first.ack()
            third.ack()
            backend.publish(job(emails))
        assert backend.stale_settlements == 0


def test_closing_before_a_stopped_broker_ends_in_time_and_says_what_was_pending(
    private_broker: PrivateBroker, emails: QueueConfig, caplog: pytest.LogCaptureFixture
) -> None:
    patient = HURRIED.replace(operation_timeout=60)
    backend = RabbitMqBackend.with_options(private_broker.url, patient)
    backend.publish(job(emails))
    deliveries = backend.consume(emails)
    with private_broker.stopped():
        futures = [backend.publish_nowait(job(emails)) for _ in range(7)]
        with ending_within(8):
            backend.close()
        assert {type(future.exception(0)) for future in futures} == {OutcomeUnknownError}
        with pytest.raises(QueueyError):
            deliveries.get(timeout=0)
    assert f"7 operations had not ended: publishing to queue '{emails.name}' (7)" in caplog.text


def test_a_handler_may_take_longer_than_heartbeats_may_be_missed(
    private_broker: PrivateBroker, emails: QueueConfig
) -> None:
    """RabbitMQ drops a client that it has not heard for two heartbeats, 4 seconds here (rabbit_heartbeat)."""
    with RabbitMqBackend.with_options(private_broker.url, RabbitMqOptions(heartbeat=2)) as backend:
        backend.publish(job(emails))
        with backend.consume(emails) as deliveries:
            delivery = deliveries.get(timeout=5)
            assert delivery is not None
            connections = private_broker.evaluate(CONNECTIONS)
            time.sleep(11)
            assert private_broker.evaluate(CONNECTIONS) == connections
            delivery.ack()
            assert deliveries.get(timeout=0.2) is None
        assert backend.stale_settlements == 0


def test_a_peer_that_is_gone_without_a_word_is_noticed_by_heartbeats_and_publishes_go_the_other_way(
    rabbitmq_url: str, make_black_hole: Callable[[], Any], operator: Any
) -> None:
    """pika looks every heartbeat + 5 seconds, so that the second look finds it: 12 seconds here."""
    gone, way = make_black_hole(), make_black_hole()
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=10)
    url = [with_url(rabbitmq_url, port=port) for port in (gone.port, way.port)]
    options = RabbitMqOptions(heartbeat=1, reconnect=ReconnectPolicy(base=0.05))
    with RabbitMqBackend.with_options(url, options) as backend:
        backend.declare([config])
        with backend.consume(config) as deliveries:
            gone.swallows.set()
            with ending_within(20):
                backend.publish(job(config))
                delivery = deliveries.get(timeout=15)
            assert delivery is not None
            delivery.ack()
    for suffix in ("", ".dead"):
        operator.queue_delete(f"{config.name}{suffix}")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_an_alarm_slows_producers_for_as_long_as_it_lasts_and_their_memory_stays(
    private_broker: PrivateBroker, emails: QueueConfig
) -> None:
    """48 MB are to be published by 8 threads, of which 4 MiB may be in flight; heartbeats are not missed meanwhile."""
    options = RabbitMqOptions(heartbeat=1, max_in_flight_bytes=4 * MEBIBYTE)
    with RabbitMqBackend.with_options(private_broker.url, options) as backend:
        done = []

        def produce() -> None:
            for _ in range(60):
                backend.publish(job(emails, "x" * 100_000))
                done.append(1)

        threads = [threading.Thread(target=produce) for _ in range(8)]
        private_broker.evaluate(ALARM.format("0.0"))
        try:
            before = resident_bytes()
            connections = private_broker.evaluate(CONNECTIONS)
            for thread in threads:
                thread.start()
            time.sleep(5)
            assert len(done) == 0
            assert resident_bytes() - before < 24 * MEBIBYTE
            with RabbitMqBackend.with_options(private_broker.url, HURRIED) as other:
                with ending_within(8), pytest.raises(DeadlineExceededError, match="The broker blocks publishers: low"):
                    other.publish(job(emails))
                with other.consume(emails) as deliveries, ending_within(8):
                    assert deliveries.get(timeout=0) is None
        finally:
            private_broker.evaluate(ALARM.format("0.6"))
        for thread in threads:
            thread.join(30)
        assert len(done) == 480
        assert set(connections.split("pid")) <= set(private_broker.evaluate(CONNECTIONS).split("pid"))
