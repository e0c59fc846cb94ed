"""What mypy --strict finds: an error on each line that ends in `# refused`, and on no other."""

from datetime import timedelta

import msgspec

from queuey_rabbitmq import (
    DeadLetters,
    Envelope,
    Hooks,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    RetryPolicy,
    Worker,
    handles,
    job,
)


class Emails(QueueSet, prefix="myapp"):
    outgoing = Queue(prefetch=10)


class Reports(QueueSet):
    daily = Queue(prefech=10)  # refused
    weekly = Queue(prefetch="10")  # refused
    monthly = Queue(retry=3)  # refused


class Misspelt(QueueSet, prefx="myapp"):  # refused
    queue = Queue()


@job(Emails.outgoing)
class SendEmail(Job[Emails]):
    to: str


@job(Reports.daily)
class MakeReport(msgspec.Struct, Job[Reports]):
    day: int


@job(Reports.daily)  # refused
class OfAnotherSet(Job[Emails]):
    to: str


@job(Emails)  # refused
class OnASet(Job[Emails]):
    to: str


@job(Emails.outgoing, retries=3)  # refused
class WithAnUnknownOption(Job[Emails]):
    to: str


class NeverDeclared:
    to: str


backend = RabbitMqBackend.connect("amqp://guest:guest@localhost:5672/%2f")
producer = Producer(backend, Emails)
Producer(backend, Emails.outgoing)  # refused
Producer(backend, SendEmail)  # refused
producer.enqueue(MakeReport(1))  # refused
producer.enqueue(NeverDeclared())  # refused
producer.enqueue(SendEmail)  # refused
producer.enqueue(SendEmail(1))  # refused
producer.enqueue(SendEmail("ada"), priority="high")  # refused
producer.enqueue_many([SendEmail("ada"), MakeReport(1)])  # refused
producer.enqueue_after(MakeReport(1), 3)  # refused
producer.enqueue_after(SendEmail("ada"), "3 s")  # refused
producer.defer(MakeReport(1), 3)  # refused
SendEmail("ada").to = "grace"  # refused


async def in_a_route() -> None:
    await producer.enqueue_async(MakeReport(1))  # refused
    await producer.enqueue_many_async([SendEmail("ada"), MakeReport(1)])  # refused
    await producer.enqueue_after_async(SendEmail("ada"), None)  # refused
    await producer.defer_async(MakeReport(1), 3)  # refused


class Watching(Hooks):
    def started(self, context: int) -> None: ...  # refused

    def enqueuing(self, envelope: Envelope, delay: timedelta | None) -> int: ...  # refused


letters = DeadLetters(RabbitMqBackend.connect("amqp://localhost"), Emails.outgoing)
letters.requeue(job_type=SendEmail)  # refused
letters.requeue(attempt="second")  # refused
letters.purge(raison="timeout")  # refused

worker = Worker(backend, Emails)
Worker(backend, Emails, only=[Reports.weekly])  # refused
Worker(backend, Emails, only=Emails.outgoing)  # refused
Worker(backend, Emails, hooks=[Hooks])  # refused
Worker(backend, Emails, retry={SendEmail: 3})  # refused
Worker(backend, Emails, retry={MakeReport: RetryPolicy.none()})  # refused


@worker.handler(SendEmail)  # refused
def takes_another_job(report: MakeReport) -> None: ...


@worker.handler(SendEmail)  # refused
def takes_too_much(email: SendEmail, context: JobContext, more: int) -> None: ...


@worker.handler(SendEmail)  # refused
def takes_another_context(email: SendEmail, context: int) -> None: ...


@worker.handler(MakeReport)  # refused
def of_another_set(report: MakeReport) -> None: ...


@handles(SendEmail)  # refused
def takes_text(email: str) -> None: ...


@worker.handler(SendEmail, retry=lambda email: email.subject)  # refused
def chooses_by_what_is_not_there(email: SendEmail) -> None: ...


@worker.handler(SendEmail, retry=RetryPolicy.none())  # refused
def has_a_policy_for_a_choice(email: SendEmail) -> None: ...


@worker.handler(SendEmail)
def send(email: SendEmail, context: JobContext) -> None: ...


send(SendEmail("ada"))  # refused
worker.register(SendEmail, print_report := MakeReport(1))  # refused
