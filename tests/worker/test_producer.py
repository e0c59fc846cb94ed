"""Enqueuing: what a job looks like on its queue, and what is refused."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    DelayTooLongError,
    Envelope,
    Hooks,
    InvalidConfigError,
    Job,
    JobsNotConfirmedError,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    SerializationError,
    UnknownQueueError,
    UnroutableError,
    Worker,
    job,
)


class Mail(QueueSet, prefix="producing"):
    outgoing = Queue(max_priority=7)
    bulk = Queue(max_priority=None)


@job(Mail.outgoing, name="send_email")
class SendEmail(Job[Mail]):
    to: str


@job(Mail.bulk)
class Digest(msgspec.Struct, Job[Mail], frozen=True):
    number: int


class Other(QueueSet):
    queue = Queue()


@job(Other.queue)
class OtherJob(Job[Other]):
    number: int


def take(backend: RabbitMqBackend, queue: Any, count: int = 1) -> list[Envelope]:
    taken = []
    with backend.consume(queue.config) as deliveries:
        for _ in range(count):
            delivery = deliveries.get(timeout=5)
            assert delivery is not None
            delivery.ack()
            taken.append(delivery.envelope)
    return taken


def test_a_job_is_on_its_queue_under_its_name_when_enqueue_returns_its_id(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    producer = Producer(backend, Mail)
    job_id = producer.enqueue(SendEmail("ada"), priority=3, correlation_id="request 7")
    [envelope] = take(backend, Mail.outgoing)
    assert (envelope.job_id, envelope.job_type, envelope.queue) == (job_id, "send_email", "producing.outgoing")
    assert (envelope.attempt, envelope.deferrals, envelope.priority) == (1, 0, 3)
    assert envelope.correlation_id == "request 7"
    assert envelope.decode(SendEmail) == SendEmail("ada")
    assert abs(envelope.enqueued_at_ms - queuey_clock.now_ms()) < 60_000


def test_the_producer_takes_ids_from_where_it_is_told(backend: RabbitMqBackend) -> None:
    ids = [uuid.UUID(int=1), uuid.UUID(int=2)]
    producer = Producer(backend, Mail, new_job_id=iter(ids).__next__)
    assert producer.enqueue_many([SendEmail("ada"), Digest(1)]) == ids


def test_enqueue_after_waits_like_a_retry_and_comes_at_priority_0(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, door: BrokerDoor
) -> None:
    Producer(backend, Mail).enqueue_after(SendEmail("ada"), 0.1)
    assert door.depth(Mail.outgoing.name) == 0
    queuey_clock.advance(0.15)
    [envelope] = take(backend, Mail.outgoing)
    assert (envelope.attempt, envelope.deferrals, envelope.priority) == (1, 0, 0)


@pytest.mark.parametrize(("held", "queue", "top"), [(SendEmail("ada"), Mail.outgoing, 7), (Digest(1), Mail.bulk, 0)])
def test_defer_holds_a_job_that_comes_at_the_top_priority_with_no_deferral_counted(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, held: Any, queue: Any, top: int
) -> None:
    Producer(backend, Mail).defer(held, 0.1)
    queuey_clock.advance(0.15)
    [envelope] = take(backend, queue)
    assert (envelope.attempt, envelope.deferrals, envelope.priority) == (1, 0, top)


def test_enqueue_many_keeps_the_order_and_returns_the_ids_in_it(backend: RabbitMqBackend) -> None:
    job_ids = Producer(backend, Mail).enqueue_many(SendEmail(str(n)) for n in range(300))
    envelopes = take(backend, Mail.outgoing, 300)
    assert [envelope.job_id for envelope in envelopes] == job_ids
    assert [envelope.decode(SendEmail).to for envelope in envelopes] == [str(n) for n in range(300)]


def test_enqueue_many_says_exactly_which_jobs_were_not_confirmed(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(backend, Mail)
    door.delete(Mail.bulk.name)
    with pytest.raises(JobsNotConfirmedError, match=r"2 of 4 jobs were not confirmed; the first is number 1") as raised:
        producer.enqueue_many([SendEmail("a"), Digest(1), SendEmail("b"), Digest(2)])
    assert {place: type(error) for place, error in raised.value.errors.items()} == {
        1: UnroutableError,
        3: UnroutableError,
    }
    envelopes = take(backend, Mail.outgoing, 2)
    assert [envelope.job_id for envelope in envelopes] == [raised.value.job_ids[0], raised.value.job_ids[2]]


def test_enqueue_many_checks_every_job_before_it_sends_one(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(backend, Mail)
    with pytest.raises(InvalidConfigError, match="OtherJob"):
        producer.enqueue_many([SendEmail("ada"), OtherJob(1)])  # type: ignore[list-item] -- that is the test
    assert door.depth(Mail.outgoing.name) == 0


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (OtherJob(1), "ing OtherJob: it is a job of Other, and this is for Mail"),
        ("text", "str is not declared as a job; decorate the class with @job"),
        (SendEmail, r"SendEmail: expected a job, such as SendEmail\(\.\.\.\), got the class itself"),
    ],
)
def test_what_is_no_job_of_the_set_is_refused_before_anything_is_sent(
    backend: RabbitMqBackend, refused: Any, message: str
) -> None:
    producer = Producer(backend, Mail)
    for enqueue in (
        producer.enqueue,
        lambda job: producer.enqueue_after(job, 1),
        lambda job: producer.defer(job, 1),
    ):
        with pytest.raises(InvalidConfigError, match=message):
            enqueue(refused)


@pytest.mark.parametrize("no_backend", [None, Mail, "amqp://localhost"])
@pytest.mark.parametrize("make", [Producer, Producer.new_undeclared, Worker])
def test_what_is_no_backend_is_refused_with_what_it_lacks(make: Any, no_backend: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"(Producer|Worker): expected a backend, .* has no `now_ms`"):
        make(no_backend, Mail)


def test_one_job_where_several_belong_is_refused_before_anything_is_sent(
    backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    producer = Producer(backend, Mail)
    one: Any = Digest(1)
    with pytest.raises(InvalidConfigError, match=r"expected several, such as \[Digest\(\.\.\.\)\]"):
        producer.enqueue_many(one)
    with pytest.raises(InvalidConfigError, match=r"expected several"):
        asyncio.run(producer.enqueue_many_async(one))
    assert door.get(Mail.bulk.name) is None


def test_a_delay_that_is_none_is_refused_and_not_taken_for_no_delay(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(backend, Mail)
    none: Any = None
    with pytest.raises(InvalidConfigError, match="SendEmail: delay: expected a timedelta"):
        producer.enqueue_after(SendEmail("ada"), none)
    with pytest.raises(InvalidConfigError, match="SendEmail: delay: expected a timedelta"):
        asyncio.run(producer.enqueue_after_async(SendEmail("ada"), none))
    with pytest.raises(InvalidConfigError, match="deferring SendEmail: delay: expected a timedelta"):
        producer.defer(SendEmail("ada"), none)
    assert door.depth(Mail.outgoing.name) == 0


@pytest.mark.parametrize("delay", [1e15, 10**15], ids=str)
def test_a_delay_that_no_timedelta_can_say_is_refused_as_too_long_and_hooks_hear_of_that(
    backend: RabbitMqBackend, delay: float
) -> None:
    told: list[object] = []

    class Told(Hooks):
        def enqueuing(self, envelope: Envelope, delay: timedelta | None) -> None:
            told.append((envelope.job_type, delay))

        def enqueue_failed(self, envelope: Envelope, error: BaseException) -> None:
            told.append((envelope.job_type, type(error)))

    producer = Producer(backend, Mail, hooks=[Told()])
    for hold in (producer.enqueue_after, producer.defer):
        with pytest.raises(DelayTooLongError):
            hold(SendEmail("ada"), delay)
    assert told == [("send_email", timedelta.max), ("send_email", DelayTooLongError)] * 2


@pytest.mark.parametrize("priority", [8, -1, 1.5])
def test_a_priority_that_the_queue_does_not_have_is_refused(backend: RabbitMqBackend, priority: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"SendEmail: priority: expected an integer from 0 to 7"):
        Producer(backend, Mail).enqueue(SendEmail("ada"), priority=priority)


def test_a_payload_that_json_cannot_hold_is_refused(backend: RabbitMqBackend) -> None:
    with pytest.raises(SerializationError):
        Producer(backend, Mail).enqueue(SendEmail(object()))  # type: ignore[arg-type] -- that is the test


def test_an_undeclared_producer_declares_nothing(
    backend: RabbitMqBackend, queuey_broker: BrokerUnderTest, door: BrokerDoor
) -> None:
    producer = Producer.new_undeclared(backend, Mail)
    assert door.depth(Mail.outgoing.name) is None
    with pytest.raises(UnroutableError):
        producer.enqueue(SendEmail("ada"))
    queuey_broker.backend().declare([Mail.outgoing.config])
    producer.enqueue(SendEmail("ada"))
    for hold in (producer.enqueue_after, producer.defer):
        with pytest.raises(UnknownQueueError):
            hold(SendEmail("ada"), 1)
    assert door.depth(Mail.outgoing.name) == 1


def test_asyncio_code_enqueues_in_every_way(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, door: BrokerDoor
) -> None:
    producer = Producer(backend, Mail)

    async def enqueue() -> list[uuid.UUID]:
        first = await producer.enqueue_async(SendEmail("1"), priority=1)
        many = await producer.enqueue_many_async([SendEmail("2"), SendEmail("3")])
        after = await producer.enqueue_after_async(SendEmail("4"), 0.1)
        deferred = await producer.defer_async(SendEmail("5"), 0.1)
        return [deferred, first, *many, after]

    job_ids = asyncio.run(enqueue())
    queuey_clock.advance(0.2)
    assert [envelope.job_id for envelope in take(backend, Mail.outgoing, 5)] == job_ids


def test_asyncio_code_sees_the_errors(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(backend, Mail)
    door.delete(Mail.outgoing.name)
    with pytest.raises(UnroutableError):
        asyncio.run(producer.enqueue_async(SendEmail("ada")))


def test_many_tasks_enqueue_at_the_same_time(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(backend, Mail)

    async def enqueue() -> set[uuid.UUID]:
        return set(await asyncio.gather(*(producer.enqueue_async(SendEmail(str(n))) for n in range(100))))

    assert len(asyncio.run(enqueue())) == 100
    assert door.depth(Mail.outgoing.name) == 100
