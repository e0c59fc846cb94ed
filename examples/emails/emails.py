"""An application: emails sent through an API that limits how often it may be called.

Owns the job, its queue, and what follows from each answer of the API. Knows no broker: it is handed a backend, which
keeps jobs on a real RabbitMQ or, in tests, on the one in memory.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import ClassVar, Protocol

from queuey_rabbitmq import Backend, Delivery, Envelope, QueueConfig, RetryPolicy, SerializationError

log = logging.getLogger("emails")

EMAILS = QueueConfig("myapp.emails", prefetch=1, retry=RetryPolicy.exponential(3, base=5))
"""Three attempts, the second after up to 5 s, the third after up to 10 s more (drawn at random: "full jitter").

With prefetch 1 a worker holds one email at a time. With prefetch N it holds up to N of the backlog already, and an
email that comes back from a deferral is first among what is still on the queue.
"""


@dataclass(frozen=True, slots=True)
class SendEmail:
    """The job: one email to one address."""

    NAME: ClassVar[str] = "send_email"
    to: str
    subject: str


class EmailApi(Protocol):
    """Whoever really sends emails, over HTTP."""

    def send(self, email: SendEmail) -> None:
        """Send an email; raises TooManyRequests, ApiUnavailable or AddressRefused."""


class TooManyRequests(Exception):  # noqa: N818 -- the name of HTTP status 429
    """The API answered 429: nothing is wrong with the email, it is only too early."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"429, Retry-After: {retry_after:g}")
        self.retry_after = retry_after
        """Seconds."""


class ApiUnavailable(Exception):  # noqa: N818 -- the name of HTTP status 503
    """The API answered 503: it may work next time."""


class AddressRefused(Exception):  # noqa: N818 -- what the API says of the address
    """The API answered 400: it will never work."""


def enqueue(backend: Backend, email: SendEmail, *, queue: QueueConfig = EMAILS) -> None:
    """Queue an email; when this returns, the broker has it."""
    backend.publish(
        Envelope(
            job_id=uuid.uuid4(),
            job_type=SendEmail.NAME,
            queue=queue.name,
            enqueued_at_ms=backend.now_ms(),
            payload=email,
        )
    )


def handle(delivery: Delivery, api: EmailApi, *, queue: QueueConfig = EMAILS) -> None:
    """Send the email of a delivery, and settle it by what the API answered."""
    job = delivery.envelope
    if job.job_type != SendEmail.NAME:
        delivery.dead_letter(f"no handler for job type {job.job_type!r}")
        return
    try:
        email = job.decode(SendEmail)
    except SerializationError as error:
        delivery.dead_letter(str(error))
        return
    try:
        api.send(email)
    except TooManyRequests as answer:
        # Not a failure: the attempt does not count, and at the top priority it returns ahead of the backlog.
        delivery.defer(job.deferred(queue.top_priority), answer.retry_after)
        log.info(
            "%s: the API answered %s. Deferred by %g s, still attempt %d",
            email.to,
            answer,
            answer.retry_after,
            job.attempt,
        )
    except ApiUnavailable as answer:
        retry_or_give_up(delivery, email, answer, queue=queue)
    except AddressRefused as answer:
        delivery.dead_letter(f"the API answered {answer}")
        log.info("%s: the API answered %s. That will never work: moved to the dead queue", email.to, answer)
    else:
        delivery.ack()
        log.info("%s: sent on attempt %d%s", email.to, job.attempt, ", after a deferral" if job.deferrals else "")


def retry_or_give_up(delivery: Delivery, email: SendEmail, answer: ApiUnavailable, *, queue: QueueConfig) -> None:
    """Try again later, as often as the queue's retry policy allows."""
    job = delivery.envelope
    decision = queue.retry.decide(job.attempt)
    if decision.delay is None:
        delivery.dead_letter(f"gave up after attempt {job.attempt}: the API answered {answer}")
        log.info("%s: the API answered %s. Gave up after attempt %d", email.to, answer, job.attempt)
        return
    delivery.retry(job.next_attempt(), decision.delay)
    seconds = decision.delay.total_seconds()
    log.info("%s: the API answered %s. Attempt %d follows in %g s", email.to, answer, job.attempt + 1, seconds)
