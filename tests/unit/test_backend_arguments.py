"""What is handed to a backend and can never work is refused in words, before anything has happened."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import QueueConfig, RabbitMqBackend
from queuey_rabbitmq.core.errors import InvalidConfigError

EMAILS = QueueConfig("emails")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda backend: backend.declare(EMAILS), r"declaring queues: expected several, such as \[QueueConfig"),
        (lambda backend: backend.declare("emails"), "declaring queues: expected several"),
        (lambda backend: backend.declare([EMAILS, "sms"]), "declaring queues: expected QueueConfig, got 'sms'"),
        (lambda backend: backend.publish({"to": "ada"}), "publishing a job: expected Envelope, got {'to': 'ada'}"),
        (lambda backend: backend.publish_nowait(b"{}"), "publishing a job: expected Envelope"),
        (lambda backend: backend.publish_in_line(None), "publishing a job: expected Envelope"),
        (lambda backend: backend.publish("ada", delay=5), "publishing a job: expected Envelope"),
        (lambda backend: backend.defer("ada", 5), "deferring a job: expected Envelope, got 'ada'"),
        (lambda backend: backend.consume("emails"), "consuming: expected QueueConfig, got 'emails'"),
        (lambda backend: backend.consume(EMAILS, "sms"), "consuming: expected QueueConfig, got 'sms'"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(
    broker: FakeBroker, use: Callable[[RabbitMqBackend], Any], said: str
) -> None:
    with broker.backend() as backend, pytest.raises(InvalidConfigError, match=said):
        use(backend)
    assert broker.queues() == []


def test_of_many_jobs_only_those_of_the_wrong_kind_and_what_follows_are_refused(broker: FakeBroker) -> None:
    with broker.backend() as backend:
        errors = backend.publish_many(["ada"])  # type: ignore[list-item]  # that is what is tested
    assert [str(error) for error in errors.values()] == [
        "publishing a job: expected Envelope, got 'ada'; nothing was done"
    ]
