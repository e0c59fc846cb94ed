"""A connection to a real broker lives through whatever a test does to the time it shows."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from pytest_queuey import BrokerUnderTest
from queuey_fake import real_time
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions

pytestmark = [pytest.mark.rabbitmq, pytest.mark.queuey_broker("rabbitmq")]

T = datetime(2030, 1, 1, tzinfo=UTC)
HEARTBEAT_S = 2
DROPPED_AFTER_S = 2 * HEARTBEAT_S + 2
"""A broker that hears nothing for two heartbeats ends the connection."""
EMAILS = QueueConfig("frozen-emails")
TIMEOUT_S = 5


@pytest.fixture
def backend(queuey_broker: BrokerUnderTest) -> Iterator[RabbitMqBackend]:
    """One that does not come back by itself: a connection that dies is noticed."""
    backend = queuey_broker.backend(RabbitMqOptions(heartbeat=HEARTBEAT_S, reconnect=None))
    backend.declare([EMAILS])
    yield backend
    works(backend)


def works(backend: RabbitMqBackend) -> None:
    """A job makes its way."""
    envelope = Envelope(
        job_id=uuid.uuid4(), job_type="send", queue=EMAILS.name, enqueued_at_ms=backend.now_ms(), payload=None
    )
    backend.publish(envelope)
    with backend.consume(EMAILS) as deliveries:
        delivery = deliveries.get(timeout=TIMEOUT_S)
        assert delivery is not None
        assert delivery.envelope.job_id == envelope.job_id
        delivery.ack()


def live_for(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_it_outlives_a_freeze_longer_than_its_heartbeat_and_the_end_of_the_freeze(backend: RabbitMqBackend) -> None:
    with freeze_time(T):
        live_for(DROPPED_AFTER_S)
        works(backend)
    live_for(DROPPED_AFTER_S)
    works(backend)


def test_it_outlives_ticks_of_hours_and_going_back(backend: RabbitMqBackend) -> None:
    with freeze_time(T) as frozen:
        for _ in range(16):
            frozen.tick(timedelta(hours=1))
            live_for(0.05)
            works(backend)
        frozen.move_to("1990-01-01")
        works(backend)
        live_for(DROPPED_AFTER_S)
        works(backend)


def test_waits_end_at_their_time_while_time_is_frozen(backend: RabbitMqBackend) -> None:
    with freeze_time(T), backend.consume(EMAILS) as deliveries:
        began = real_time.monotonic_s()
        assert deliveries.get(timeout=0.1) is None
        assert 0.1 <= real_time.monotonic_s() - began < TIMEOUT_S


def test_a_connection_that_is_made_while_time_is_frozen_lives_on(queuey_broker: BrokerUnderTest) -> None:
    with freeze_time(T):
        backend = queuey_broker.backend(RabbitMqOptions(heartbeat=HEARTBEAT_S, reconnect=None))
        backend.declare([EMAILS])
        works(backend)
    live_for(DROPPED_AFTER_S)
    works(backend)


def test_its_jobs_are_stamped_with_frozen_time_and_its_handlers_see_it(backend: RabbitMqBackend) -> None:
    with freeze_time(T):
        assert backend.now_ms() == T.timestamp() * 1000
        works(backend)
        assert time.time() == datetime.now(UTC).timestamp() == T.timestamp()
