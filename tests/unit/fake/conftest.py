"""A broker in memory at a known instant, and a backend on it that has declared one queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from queuey_fake import FakeBroker, ManualClock
from queuey_rabbitmq import QueueConfig, RabbitMqBackend

START = datetime(2030, 1, 1, tzinfo=UTC)
EMAILS = QueueConfig("emails")


@pytest.fixture
def clock() -> ManualClock:
    """The broker's clock."""
    return ManualClock(START)


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[FakeBroker]:
    """A broker of the test's own."""
    with FakeBroker(clock=clock) as broker:
        yield broker


@pytest.fixture
def backend(broker: FakeBroker) -> RabbitMqBackend:
    """A backend that has declared the queue."""
    backend = broker.backend()
    backend.declare([EMAILS])
    return backend
