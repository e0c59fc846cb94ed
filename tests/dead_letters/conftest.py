"""Dead letters on each kind of broker: in memory in virtual time, and on a real one (--queuey-broker=all)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import DeadLetters, Envelope, QueueConfig, RabbitMqBackend


@pytest.fixture
def door(queuey_broker: BrokerUnderTest) -> Iterator[BrokerDoor]:
    """A way into the broker past the backend."""
    with BrokerDoor(queuey_broker.url) as door:
        yield door


@pytest.fixture
def emails(queuey_broker: BrokerUnderTest, queuey_backend: RabbitMqBackend) -> QueueConfig:
    """A work queue that is declared."""
    config = QueueConfig(queuey_broker.name("emails"))
    queuey_backend.declare([config])
    return config


@pytest.fixture
def letters(queuey_backend: RabbitMqBackend, emails: QueueConfig) -> DeadLetters:
    return DeadLetters(queuey_backend, emails)


@pytest.fixture
def bury(queuey_backend: RabbitMqBackend, emails: QueueConfig) -> Callable[..., Envelope]:
    """Makes a dead letter, as a worker does: from a job with this payload, for a reason."""

    def bury(payload: Any, reason: str = "no use", **fields: Any) -> Envelope:
        known: dict[str, Any] = {"job_id": uuid.uuid4(), "job_type": "send_email", "queue": emails.name}
        known |= {"enqueued_at_ms": queuey_backend.now_ms(), "payload": payload}
        job = Envelope(**(known | fields))
        queuey_backend.publish(job)
        with queuey_backend.consume(emails) as deliveries:
            delivery = deliveries.get(timeout=5)
            assert delivery is not None
            delivery.dead_letter(reason)
        return job

    return bury


@pytest.fixture
def taken(door: BrokerDoor) -> Callable[[str], list[Any]]:
    """Takes everything off a queue: the payloads of jobs, and bodies that are none."""

    def take(queue: str) -> list[Any]:
        found = []
        while (message := door.get(queue)) is not None:
            found.append(payload_or_body(message.body))
        return found

    return take


def payload_or_body(body: bytes) -> Any:
    return Envelope.from_bytes(body).payload if body.startswith(b'{"job_id"') else body
