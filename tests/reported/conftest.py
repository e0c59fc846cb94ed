"""A broker in memory of its own clock, jobs, and a channel of pika past the backend."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest

from queuey_fake import FakeBroker, ManualClock
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend

START = datetime(2030, 1, 1, tzinfo=UTC)
EMAILS = QueueConfig("emails")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(clock=ManualClock(START)) as broker:
        yield broker


@pytest.fixture
def emails() -> QueueConfig:
    return EMAILS


@pytest.fixture
def backend(broker: FakeBroker) -> RabbitMqBackend:
    backend = broker.backend()
    backend.declare([EMAILS])
    return backend


@pytest.fixture
def new_job() -> Callable[..., Envelope]:
    def make(payload: Any = None, **fields: Any) -> Envelope:
        new = {"job_id": uuid.uuid4(), "job_type": "send", "queue": "emails", "enqueued_at_ms": 0}
        return Envelope(payload=payload, **(new | fields))

    return make


@pytest.fixture
def channel(broker: FakeBroker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


@pytest.fixture
def elapsed_s(broker: FakeBroker) -> Callable[[], float]:
    """How far time has moved since the test began, in seconds."""
    began_ms = broker.now_ms()
    return lambda: (broker.now_ms() - began_ms) / 1000
