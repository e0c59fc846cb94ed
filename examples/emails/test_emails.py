"""The application's tests. They run on the RabbitMQ in memory, and unchanged on a real one (--queuey-broker=all)."""

import uuid
from dataclasses import replace

import pytest
from emails import EMAILS, AddressRefused, ApiUnavailable, SendEmail, TooManyRequests, enqueue, handle

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions, RetryPolicy, topology


class Api:
    """Gives the answers it was made with, one for each email, and keeps what it sent."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []

    def send(self, email: SendEmail) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.sent.append(email.to)


@pytest.fixture
def queue(queuey_broker: BrokerUnderTest) -> QueueConfig:
    return replace(EMAILS, name=queuey_broker.name(EMAILS.name), retry=RetryPolicy.fixed(2, 0.2))


@pytest.fixture
def backend(queuey_broker: BrokerUnderTest, queue: QueueConfig) -> RabbitMqBackend:
    """Return a backend whose waits may be short, for what these tests wait on a real broker."""
    backend = queuey_broker.backend(RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1))
    backend.declare([queue])
    return backend


def handle_one(backend: RabbitMqBackend, api: Api, queue: QueueConfig) -> Envelope:
    """Handle the next email as a worker does, and return its job."""
    with backend.consume(queue) as deliveries:
        delivery = deliveries.get(timeout=5)
        assert delivery is not None, "no email came"
        handle(delivery, api, queue=queue)
        return delivery.envelope


def is_empty(backend: RabbitMqBackend, queue: QueueConfig) -> bool:
    with backend.consume(queue) as deliveries:
        return deliveries.get(timeout=0.1) is None


def dead_letter(backend: RabbitMqBackend, queue: QueueConfig) -> tuple[Envelope, str]:
    """Take the next dead letter, with its reason."""
    with backend.consume(QueueConfig(topology.dead_queue_name(queue.name, ".dead"))) as dead_letters:
        delivery = dead_letters.get(timeout=5)
        assert delivery is not None, "no dead letter came"
        delivery.ack()
        return delivery.envelope, str((delivery.properties.headers or {})[topology.HEADER_DEATH_REASON])


def test_an_email_is_sent_once_and_leaves_the_queue(backend: RabbitMqBackend, queue: QueueConfig) -> None:
    enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
    api = Api()
    handle_one(backend, api, queue)
    assert api.sent == ["ada"]
    assert is_empty(backend, queue)


def test_a_429_costs_no_attempt_and_returns_ahead_of_the_backlog(
    backend: RabbitMqBackend, queue: QueueConfig, queuey_clock: QueueyClock
) -> None:
    api = Api(TooManyRequests(retry_after=0.2))
    enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
    handle_one(backend, api, queue)
    enqueue(backend, SendEmail("grace", "Welcome"), queue=queue)
    enqueue(backend, SendEmail("alan", "Welcome"), queue=queue)

    queuey_clock.advance(0.3)
    job = handle_one(backend, api, queue)
    assert (job.attempt, job.deferrals) == (1, 1)
    handle_one(backend, api, queue)
    handle_one(backend, api, queue)
    assert api.sent == ["ada", "grace", "alan"]


@pytest.mark.queuey_broker("fake")  # nobody waits 30 s for a test
def test_an_email_is_never_sent_before_its_retry_after(
    backend: RabbitMqBackend, queue: QueueConfig, queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
    handle_one(backend, Api(TooManyRequests(retry_after=30)), queue)

    queuey_clock.advance(29.999)
    waiting = queuey_broker.queue(queue.name)
    assert waiting is not None
    assert waiting.ready == 0
    queuey_clock.advance(0.001)
    back = queuey_broker.queue(queue.name)
    assert back is not None
    assert back.ready == 1


def test_a_503_is_retried_after_the_backoff(backend: RabbitMqBackend, queue: QueueConfig) -> None:
    api = Api(ApiUnavailable("503"))
    enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
    handle_one(backend, api, queue)
    failed_at_ms = backend.now_ms()

    job = handle_one(backend, api, queue)
    assert job.attempt == 2
    assert backend.now_ms() - failed_at_ms >= 190  # 200 ms by the broker's clock; ours is read a little later
    assert api.sent == ["ada"]


def test_the_last_503_makes_a_dead_letter_that_says_so(backend: RabbitMqBackend, queue: QueueConfig) -> None:
    api = Api(ApiUnavailable("503"), ApiUnavailable("503"))
    enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
    handle_one(backend, api, queue)
    handle_one(backend, api, queue)

    job, reason = dead_letter(backend, queue)
    assert job.decode(SendEmail).to == "ada"
    assert reason == "gave up after attempt 2: the API answered 503"


def test_a_refused_address_is_not_tried_again(backend: RabbitMqBackend, queue: QueueConfig) -> None:
    enqueue(backend, SendEmail("nobody", "Welcome"), queue=queue)
    handle_one(backend, Api(AddressRefused("400 no such mailbox")), queue)
    job, reason = dead_letter(backend, queue)
    assert (job.attempt, reason) == (1, "the API answered 400 no such mailbox")
    assert is_empty(backend, queue)


@pytest.mark.parametrize(
    ("job_type", "payload", "reason"),
    [
        ("send_letter", {"to": "ada", "subject": "Welcome"}, "no handler for job type 'send_letter'"),
        ("send_email", {"to": "ada"}, "missing required field `subject`"),
    ],
)
def test_a_job_that_is_no_email_is_moved_aside(
    backend: RabbitMqBackend, queue: QueueConfig, job_type: str, payload: dict[str, str], reason: str
) -> None:
    backend.publish(
        Envelope(
            job_id=uuid.uuid4(),
            job_type=job_type,
            queue=queue.name,
            enqueued_at_ms=backend.now_ms(),
            payload=payload,
        )
    )
    api = Api()
    handle_one(backend, api, queue)
    assert reason in dead_letter(backend, queue)[1]
    assert api.sent == []
