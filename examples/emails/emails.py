"""An application: emails sent through an API that limits how often it may be called.

Owns the job, its queue, and what follows from each answer of the API. Knows no broker: it is handed a backend, which
keeps jobs on a real RabbitMQ or, in tests, on the one in memory.
"""

from __future__ import annotations

import logging
from typing import Protocol

from queuey_rabbitmq import Deferred, Fatal, Job, JobContext, Producer, Queue, QueueSet, Retryable, RetryPolicy, job

log = logging.getLogger("emails")


class Emails(QueueSet, prefix="myapp"):
    """The application's queues."""

    emails = Queue(prefetch=1, retry=RetryPolicy.exponential(3, base=5))
    """Three attempts, the second after up to 5 s, the third after up to 10 s more (drawn at random: "full jitter").

    With prefetch 1 a worker holds one email at a time. With prefetch N it holds up to N of the backlog already, and an
    email that comes back from a deferral is first among what is still on the queue.
    """


@job(Emails.emails)
class SendEmail(Job[Emails]):
    """The job: one email to one address."""

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


def welcome(producer: Producer[Emails], address: str) -> None:
    """Queue an email; when this returns, the broker has it. Whoever looks at the job later sees whose it is."""
    producer.enqueue(SendEmail(to=address, subject="Welcome"), correlation_id=address)


class EmailSender:
    """Handles the jobs: what it raises says what is to become of one."""

    def __init__(self, api: EmailApi) -> None:
        self._api = api

    def handle(self, email: SendEmail, context: JobContext) -> None:
        """Send an email. What the API answers says it all: the worker's log needs no traceback."""
        try:
            self._api.send(email)
        except TooManyRequests as answer:
            # Not a failure: the attempt does not count, and at the top priority it returns ahead of the backlog.
            raise Deferred(answer.retry_after, f"the API answered {answer}") from None
        except ApiUnavailable as answer:
            raise Retryable(f"the API answered {answer}") from None
        except AddressRefused as answer:
            raise Fatal(f"the API answered {answer}") from None
        after = ", after a deferral" if context.deferrals else ""
        log.info("%s: sent on attempt %d%s", email.to, context.attempt, after)
