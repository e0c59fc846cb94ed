"""What a user writes, and mypy --strict has nothing to say about."""

import uuid
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from queuey_rabbitmq import (
    DeadLetters,
    Deferred,
    Envelope,
    Fatal,
    Hooks,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    Worker,
    WorkQueue,
    handles,
    job,
)
from queuey_rabbitmq.opentelemetry import OpenTelemetryHooks


class Emails(QueueSet, prefix="myapp"):
    outgoing = Queue(prefetch=10, retry=RetryPolicy.exponential(5))
    bulk = Queue("mass", max_priority=None, message_ttl=3600, durable=True, queue_type="quorum")


@job(Emails.outgoing, name="send_email", retry=RetryPolicy.fixed(3, 5), timeout=30)
class SendEmail(Job[Emails]):
    to: str
    subject: str = ""


@job(Emails.outgoing)
@dataclass(frozen=True, slots=True)
class SendLetter(Job[Emails]):
    to: str


@job(Emails.bulk)
class SendDigest(msgspec.Struct, Job[Emails], frozen=True):
    number: int


backend = RabbitMqBackend.connect("amqp://guest:guest@localhost:5672/%2f")
producer = Producer(backend, Emails, hooks=[Hooks()])
undeclared: Producer[Emails] = Producer.new_undeclared(backend, Emails)
job_id: uuid.UUID = producer.enqueue(SendEmail("ada", "Welcome"), priority=3, correlation_id="7")
job_ids: list[uuid.UUID] = producer.enqueue_many([SendEmail("ada"), SendLetter("grace"), SendDigest(1)])
producer.enqueue_after(SendLetter("ada"), 30)
producer.defer(SendDigest(number=1), 30)

queue: WorkQueue[Emails] = Emails.outgoing
to: str = SendEmail("ada").to
worker = Worker(
    backend,
    Emails,
    only=[Emails.outgoing],
    concurrency=8,
    retry={SendEmail: RetryPolicy.none(), Emails.bulk: RetryPolicy.fixed(2, 1)},
)


@worker.handler(SendEmail, retry=lambda email: RetryPolicy.none() if email.to == "nobody" else None, timeout=5)
def send(email: SendEmail, context: JobContext) -> None:
    if context.is_last_attempt:
        raise Fatal(email.subject)
    raise Deferred(30, "429")


@worker.handler(SendLetter)
async def send_letter(letter: SendLetter) -> int:
    raise Retryable(letter.to, delay=3)


@handles(SendDigest)
def send_digest(digest: SendDigest) -> int:
    return digest.number


class Sender:
    def handle(self, letter: SendLetter, context: JobContext) -> None:
        pass

    def retry_policy(self, letter: SendLetter) -> RetryPolicy | None:  # noqa: ARG002 -- as a user writes it
        return None


worker.register(SendLetter, Sender())
worker.register(SendEmail, lambda email: email.to)


# Handlers stay what they are: a test calls them.
send(SendEmail("ada"), JobContext(attempt=3, max_attempts=3))
doubled: int = send_digest(SendDigest(1)) * 2


async def in_an_async_test() -> int:
    await producer.enqueue_async(SendEmail("ada"))
    ids: list[uuid.UUID] = await producer.enqueue_many_async([SendEmail("ada")])
    return await send_letter(SendLetter("ada")) + len(ids)


class Watching(Hooks):
    def enqueuing(self, envelope: Envelope, delay: timedelta | None) -> dict[str, str]:
        return {"tenant": str(envelope.headers.get("tenant")), "held": str(delay)}

    def handler_ended(self, context: JobContext) -> None:
        assert context.headers["tenant"]


Producer(backend, Emails, hooks=[Watching(), OpenTelemetryHooks()])
letters = DeadLetters(backend, Emails.outgoing)
reasons: list[str | None] = [letter.reason for letter in letters if letter.job_type == "send_email"]
gone: int = letters.requeue(reason="timeout", attempt="first", older_than=timedelta(hours=2), limit=10).done

worker.run(burst=True)
worker.run(signals=False, close_backend=True)
handled: bool = worker.step(timeout=0.5)
worker.shutdown(grace=3)
