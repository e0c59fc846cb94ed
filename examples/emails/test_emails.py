"""The application's tests. They run on the RabbitMQ in memory, and unchanged on a real one (--queuey-broker=all)."""

import uuid

import pytest
from emails import AddressRefused, ApiUnavailable, Emails, EmailSender, SendEmail, TooManyRequests, welcome

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    DeadLetter,
    DeadLetters,
    Deferred,
    Envelope,
    JobContext,
    Producer,
    RabbitMqBackend,
    RabbitMqOptions,
    RetryPolicy,
    Worker,
)


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
def backend(queuey_broker: BrokerUnderTest) -> RabbitMqBackend:
    """Return a backend whose waits may be short, for what these tests wait on a real broker."""
    return queuey_broker.backend(RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1))


@pytest.fixture
def producer(backend: RabbitMqBackend) -> Producer[Emails]:
    return Producer(backend, Emails)


def handle(backend: RabbitMqBackend, api: Api, *, jobs: int = 1) -> None:
    """Handle the next emails as a worker does that tries each twice."""
    with Worker(backend, Emails, retry={Emails.emails: RetryPolicy.fixed(2, 0.2)}) as worker:
        worker.register(SendEmail, EmailSender(api))
        for _ in range(jobs):
            assert worker.step(timeout=5), "no email came"


def dead_letters(backend: RabbitMqBackend) -> list[DeadLetter]:
    return list(DeadLetters(backend, Emails.emails))


def test_an_email_is_sent_once_and_leaves_the_queue(
    backend: RabbitMqBackend, producer: Producer[Emails], queuey_broker: BrokerUnderTest
) -> None:
    api = Api()
    welcome(producer, "ada")
    handle(backend, api)
    assert api.sent == ["ada"]
    queue = queuey_broker.queue(Emails.emails.name)
    assert queue is not None
    assert queue.ready == 0


def test_a_429_defers_by_what_the_api_asks_for() -> None:
    """A handler is a function: where only its answer matters, no broker is needed."""
    sender = EmailSender(Api(TooManyRequests(retry_after=30)))
    with pytest.raises(Deferred, match="the API answered 429, Retry-After: 30") as deferred:
        sender.handle(SendEmail("ada", "Welcome"), JobContext(attempt=1))
    assert deferred.value.delay == 30


def test_a_429_costs_no_attempt_and_returns_ahead_of_the_backlog(
    backend: RabbitMqBackend,
    producer: Producer[Emails],
    queuey_clock: QueueyClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "emails")
    api = Api(TooManyRequests(retry_after=0.2))
    welcome(producer, "ada")
    handle(backend, api)
    welcome(producer, "grace")
    welcome(producer, "alan")

    queuey_clock.advance(0.3)
    handle(backend, api, jobs=3)
    assert api.sent == ["ada", "grace", "alan"]
    assert "ada: sent on attempt 1, after a deferral" in caplog.text


@pytest.mark.queuey_broker("fake")  # nobody waits 30 s for a test
def test_an_email_is_never_sent_before_its_retry_after(
    backend: RabbitMqBackend, producer: Producer[Emails], queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    welcome(producer, "ada")
    handle(backend, Api(TooManyRequests(retry_after=30)))

    queuey_clock.advance(29.999)
    waiting = queuey_broker.queue(Emails.emails.name)
    assert waiting is not None
    assert waiting.ready == 0
    queuey_clock.advance(0.001)
    back = queuey_broker.queue(Emails.emails.name)
    assert back is not None
    assert back.ready == 1


def test_a_503_is_retried_after_the_backoff(
    backend: RabbitMqBackend, producer: Producer[Emails], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "emails")
    api = Api(ApiUnavailable("503"))
    welcome(producer, "ada")
    handle(backend, api)
    failed_at_ms = backend.now_ms()

    handle(backend, api)
    assert backend.now_ms() - failed_at_ms >= 190  # 200 ms by the broker's clock; ours is read a little later
    assert api.sent == ["ada"]
    assert "ada: sent on attempt 2" in caplog.text


def test_the_last_503_makes_a_dead_letter_that_says_so(backend: RabbitMqBackend, producer: Producer[Emails]) -> None:
    welcome(producer, "ada")
    handle(backend, Api(ApiUnavailable("503"), ApiUnavailable("503")), jobs=2)

    [letter] = dead_letters(backend)
    assert letter.decode(SendEmail) == SendEmail("ada", "Welcome")
    assert letter.reason == "gave up after attempt 2 of 2: Retryable: the API answered 503"


def test_a_refused_address_is_not_tried_again(backend: RabbitMqBackend, producer: Producer[Emails]) -> None:
    welcome(producer, "nobody")
    handle(backend, Api(AddressRefused("400 no such mailbox")))
    [letter] = dead_letters(backend)
    assert (letter.attempts, letter.reason) == (1, "fatal: the API answered 400 no such mailbox")


@pytest.mark.parametrize(
    ("job_type", "payload", "reason"),
    [
        ("send_letter", {"to": "ada", "subject": "Welcome"}, "no handler for job type 'send_letter'"),
        ("send_email", {"to": "ada"}, "missing required field `subject`"),
    ],
)
def test_a_job_that_is_no_email_is_moved_aside(
    backend: RabbitMqBackend, producer: Producer[Emails], job_type: str, payload: dict[str, str], reason: str
) -> None:
    del producer  # it has declared the queue
    backend.publish(
        Envelope(
            job_id=uuid.uuid4(),
            job_type=job_type,
            queue=Emails.emails.name,
            enqueued_at_ms=backend.now_ms(),
            payload=payload,
        )
    )
    api = Api()
    handle(backend, api)
    [letter] = dead_letters(backend)
    assert reason in str(letter.reason)
    assert api.sent == []
