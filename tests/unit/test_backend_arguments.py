"""What is handed to a backend and can never work is refused in words, before anything has happened."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import DeadLetters, Envelope, QueueConfig, RabbitMqBackend, RabbitMqDelivery, RabbitMqOptions
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
        (lambda backend: backend.publish("ada", delay=5), "publishing a job with a delay: expected Envelope"),
        (lambda backend: backend.defer("ada", 5), "deferring a job: expected Envelope, got 'ada'"),
        (lambda backend: backend.consume("emails"), "consuming: expected QueueConfig, got 'emails'"),
        (lambda backend: backend.consume(EMAILS, "sms"), "consuming: expected QueueConfig, got 'sms'"),
        (lambda backend: DeadLetters(backend, 5), "dead letters: expected a queue's name, .* got 5"),
        (lambda backend: type(backend).with_options("amqp://a", None), "connecting: expected RabbitMqOptions"),
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


@pytest.mark.parametrize("retry_suffix", [None, ".retry"])
@pytest.mark.parametrize(
    ("settle", "said"),
    [
        (lambda delivery: delivery.retry(5, delivery.envelope), "retrying a job: expected Envelope, got 5"),
        (lambda delivery: delivery.retry_nowait("ada", 5), "retrying a job: expected Envelope, got 'ada'"),
        (lambda delivery: delivery.defer(None, 5), "deferring a job: expected Envelope, got None"),
        (lambda delivery: delivery.dead_letter(KeyError("to")), "dead-lettering a job: reason: expected str, got KeyE"),
    ],
)
def test_an_outcome_of_the_wrong_kind_is_refused_and_another_may_be_chosen(
    broker: FakeBroker, settle: Callable[[RabbitMqDelivery], Any], said: str, retry_suffix: str | None
) -> None:
    with broker.backend(RabbitMqOptions(retry_suffix=retry_suffix)) as backend:
        backend.declare([EMAILS])
        backend.publish(
            Envelope(job_id=uuid.uuid4(), job_type="t", queue="emails", enqueued_at_ms=0, payload={"to": "ada"})
        )
        with backend.consume(EMAILS) as deliveries:
            delivery = deliveries.get(timeout=1)
            assert delivery is not None
            with pytest.raises(InvalidConfigError, match=said):
                settle(delivery)
            delivery.ack()
        assert [queue.ready for queue in broker.queues()] == [0] * len(broker.queues())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("emails.dead", {}),
        ("emails-gone", {"dead_suffix": "-gone"}),
        ("emails.deferred.1000", {}),
        ("emails.retry", {"retry_suffix": ".retry"}),
    ],
)
def test_a_work_queue_with_the_name_of_anothers_queue_is_refused(
    broker: FakeBroker, name: str, options: dict[str, Any]
) -> None:
    with broker.backend(RabbitMqOptions(**options)) as backend:
        with pytest.raises(InvalidConfigError, match=f"'{name}' is the name of a queue that belongs to 'emails'"):
            backend.declare([QueueConfig(name), EMAILS])
        assert broker.queues() == []
        backend.declare([QueueConfig(name, max_priority=0)])  # alone, as by who looks after dead letters


def test_names_that_only_look_like_those_of_other_queues_are_fine(broker: FakeBroker) -> None:
    options = RabbitMqOptions(declare_dead_letter_queues=False)
    with broker.backend(options) as backend:
        backend.declare([EMAILS, *map(QueueConfig, ("emails.dead", "emails.retry", "emails.deferred.soon", "dead"))])
    assert len(broker.queues()) == 5
