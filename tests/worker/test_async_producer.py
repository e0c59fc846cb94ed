"""Enqueuing from asyncio code: whatever the broker does, nothing keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor, RawMessage
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    DeadlineExceededError,
    Envelope,
    Hooks,
    InvalidConfigError,
    Job,
    JobsNotConfirmedError,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    RabbitMqOptions,
    ShutDownError,
    UnroutableError,
    job,
)


class Mail(QueueSet, prefix="async"):
    outgoing = Queue()
    gone = Queue()


@job(Mail.outgoing)
class Send(Job[Mail]):
    number: int


@job(Mail.gone)
class SendToNobody(Job[Mail]):
    number: int


SENDS: dict[str, Callable[[Producer[Mail], Send], Awaitable[object]]] = {
    "enqueue": lambda producer, job: producer.enqueue_async(job),
    "enqueue after": lambda producer, job: producer.enqueue_after_async(job, 5),
    "defer": lambda producer, job: producer.defer_async(job, 5),
    "enqueue many": lambda producer, job: producer.enqueue_many_async([job]),
}
each_way = pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)


@pytest.fixture
def narrow(queuey_broker: BrokerUnderTest) -> RabbitMqBackend:
    """A backend that has no more than two jobs in flight, each for five seconds."""
    return queuey_broker.backend(RabbitMqOptions(max_in_flight=2, operation_timeout=5))


def numbered(message: RawMessage | None) -> object:
    return None if message is None else Envelope.from_bytes(message.body).decode(Send).number


async def sent_into_an_alarm(
    broker: BrokerUnderTest, clock: QueueyClock, send: Callable[[Send], Awaitable[object]], seconds: float
) -> list[asyncio.Task[object]]:
    """Let ten jobs be sent to a broker that takes none, and so many seconds pass."""
    broker.faults.block()
    tasks = [asyncio.ensure_future(send(Send(number))) for number in range(10)]
    await clock.wait(seconds)
    return tasks


async def outcomes(*awaited: Awaitable[object]) -> list[type]:
    return [type(outcome) for outcome in await asyncio.gather(*awaited, return_exceptions=True)]


@each_way
@pytest.mark.queuey_broker("fake")
def test_a_job_that_finds_no_place_waits_in_line_and_the_loop_goes_on(
    queuey_broker: BrokerUnderTest, narrow: RabbitMqBackend, queuey_clock: QueueyClock, send: Any
) -> None:
    producer = Producer(narrow, Mail)

    async def live() -> list[type]:
        tasks = await sent_into_an_alarm(queuey_broker, queuey_clock, partial(send, producer), 4.9)
        assert not any(task.done() for task in tasks)
        queuey_broker.faults.unblock()
        return await outcomes(*tasks)

    assert set(asyncio.run(live())) <= {uuid.UUID, list}


@each_way
@pytest.mark.queuey_broker("fake")
def test_all_that_wait_fail_by_their_own_deadline_however_long_the_line(
    queuey_broker: BrokerUnderTest, narrow: RabbitMqBackend, queuey_clock: QueueyClock, send: Any
) -> None:
    producer = Producer(narrow, Mail)

    async def live() -> list[type]:
        tasks = await sent_into_an_alarm(queuey_broker, queuey_clock, partial(send, producer), 5.1)
        assert all(task.done() for task in tasks)
        return await outcomes(*tasks)

    failed = asyncio.run(live())
    assert len(failed) == 10
    assert set(failed) <= {DeadlineExceededError, JobsNotConfirmedError}


@pytest.mark.queuey_broker("fake")
@pytest.mark.parametrize(("outage", "ends"), [(1, uuid.UUID), (600, DeadlineExceededError)])
def test_an_outage_is_a_pause_or_an_error(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock, outage: float, ends: type
) -> None:
    producer = Producer(queuey_broker.backend(RabbitMqOptions(max_in_flight=2, operation_timeout=120)), Mail)

    async def live() -> list[type]:
        queuey_broker.faults.refuse_connections(for_=outage)
        queuey_broker.faults.drop_connections()
        tasks = [asyncio.create_task(producer.enqueue_async(Send(number))) for number in range(5)]
        await queuey_clock.wait(121)
        assert all(task.done() for task in tasks)
        return await outcomes(*tasks)

    assert asyncio.run(live()) == [ends] * 5


@pytest.mark.queuey_broker("fake")
def test_a_job_whose_await_was_cancelled_before_it_was_sent_is_not_sent(
    queuey_broker: BrokerUnderTest, narrow: RabbitMqBackend, queuey_clock: QueueyClock, door: BrokerDoor
) -> None:
    producer = Producer(narrow, Mail)

    async def live() -> list[type]:
        queuey_broker.faults.block()
        single = [asyncio.create_task(producer.enqueue_async(Send(number))) for number in range(5)]
        many = asyncio.create_task(producer.enqueue_many_async([Send(number) for number in range(5)]))
        await queuey_clock.wait(0.01)
        for task in (*single, many):
            task.cancel()
        cancelled = await outcomes(*single, many)
        queuey_broker.faults.unblock()
        await producer.enqueue_async(Send(99))
        return cancelled

    assert asyncio.run(live()) == [asyncio.CancelledError] * 6
    # The broker tells a connection that it is blocked when that publishes: the first job was on its way.
    assert [numbered(door.get(Mail.outgoing.name)) for _ in range(2)] == [0, 99]
    assert door.depth(Mail.outgoing.name) == 0


def test_a_timeout_of_the_callers_own_ends_the_wait(
    queuey_broker: BrokerUnderTest, queuey_backend: RabbitMqBackend, queuey_faults: Any
) -> None:
    producer = Producer(queuey_backend, Mail)

    async def live() -> None:
        queuey_faults.hang()
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.enqueue_async(Send(1)), 0.05)
        finally:
            queuey_faults.resume()

    asyncio.run(live())


def test_many_jobs_let_others_on_the_loop_run_and_come_in_order(
    queuey_backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    producer = Producer(queuey_backend, Mail)

    async def live() -> tuple[int, list[uuid.UUID]]:
        turns = 0
        loop = asyncio.get_running_loop()

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        job_ids = await producer.enqueue_many_async(Send(number) for number in range(120))
        return turns, job_ids

    turns, job_ids = asyncio.run(live())
    assert turns > 2
    taken = []
    while (message := door.get(Mail.outgoing.name)) is not None:
        taken.append(Envelope.from_bytes(message.body).job_id)
    assert taken == job_ids


def test_many_jobs_say_exactly_which_were_not_confirmed(queuey_backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(queuey_backend, Mail)
    door.delete(Mail.gone.name)
    with pytest.raises(JobsNotConfirmedError) as raised:
        asyncio.run(producer.enqueue_many_async([Send(0), SendToNobody(1), Send(2), SendToNobody(3)]))
    failed = {place: type(error) for place, error in raised.value.errors.items()}
    assert failed == {1: UnroutableError, 3: UnroutableError}
    assert door.depth(Mail.outgoing.name) == 2


def test_many_jobs_are_checked_before_one_is_sent(queuey_backend: RabbitMqBackend, door: BrokerDoor) -> None:
    producer = Producer(queuey_backend, Mail)
    with pytest.raises(InvalidConfigError):
        asyncio.run(producer.enqueue_many_async([Send(1), "text"]))  # type: ignore[list-item] -- that is the test
    assert door.depth(Mail.outgoing.name) == 0


@each_way
def test_a_backend_that_is_closed_is_an_error_at_once(queuey_backend: RabbitMqBackend, send: Any) -> None:
    producer = Producer(queuey_backend, Mail)
    queuey_backend.close()
    with pytest.raises((ShutDownError, JobsNotConfirmedError), match="closed"):
        asyncio.run(send(producer, Send(1)))


class Plain:
    """A backend as another program may have it: it only has what `Backend` asks for."""

    def __init__(self, backend: RabbitMqBackend) -> None:
        self.now_ms, self.declare = backend.now_ms, backend.declare
        self.publish, self.publish_nowait, self.publish_many = (
            backend.publish,
            backend.publish_nowait,
            backend.publish_many,
        )
        self.defer, self.defer_nowait = backend.defer, backend.defer_nowait
        self.consume, self.close = backend.consume, backend.close


@each_way
def test_a_backend_without_a_line_sends_from_threads(queuey_backend: RabbitMqBackend, send: Any) -> None:
    seen: list[str] = []

    class See(Hooks):
        def enqueued(self, envelope: Envelope, delay: Any) -> None:
            seen.append(f"{envelope.job_type} {delay}")

    producer = Producer(Plain(queuey_backend), Mail, hooks=[See()])
    assert asyncio.run(outcomes(send(producer, Send(1))))[0] in {uuid.UUID, list}
    assert seen in (["send None"], ["send 0:00:05"])
