"""Dead letters on each kind of broker: in memory in virtual time, and on a real one (--queuey-broker=all)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import DeadLetters, Envelope, QueueConfig, RabbitMqBackend


@pytest.fixture
def letters(queuey_backend: RabbitMqBackend, emails: QueueConfig) -> DeadLetters:
    return DeadLetters(queuey_backend, emails)


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
