"""Workers are driven through a stretch of time in due order, in the test's own thread."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from pytest_queuey import BrokerUnderTest, QueueyClock
from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    Deferred,
    Envelope,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueConfig,
    QueueSet,
    RabbitMqBackend,
    RabbitMqOptions,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)
from queuey_rabbitmq.core.errors import DeadlineExceededError, NothingPending

T = datetime(2030, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
on_the_fake = pytest.mark.queuey_broker("fake")


class Work(QueueSet, prefix="running-along"):
    daily = Queue(prefetch=1)
    quick = Queue(prefetch=1, retry=RetryPolicy.fixed(5, 0.1))
    slow = Queue(prefetch=1)


@job(Work.daily)
class Daily(Job[Work]):
    pass


@job(Work.quick)
class Quick(Job[Work]):
    number: int = 0


@job(Work.slow)
class Slow(Job[Work]):
    number: int = 0


@pytest.fixture
def backend(queuey_broker: BrokerUnderTest) -> RabbitMqBackend:
    return queuey_broker.backend(RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1))


@on_the_fake
def test_a_job_that_puts_itself_off_by_a_day_runs_on_each_day(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()
    ran_on: list[float] = []
    with Worker(backend, Work) as worker:

        @worker.handler(Daily)
        def handle(_job: Daily) -> None:
            ran_on.append((queuey_clock.now_ms() - began_ms) / DAY_MS)
            raise Deferred(timedelta(days=1))

        Producer(backend, Work).enqueue(Daily())
        assert queuey_clock.run(worker, days=5) == 6
    assert ran_on == [0, 1, 2, 3, 4, 5]
    assert queuey_clock.now_ms() == began_ms + 5 * DAY_MS


@on_the_fake
@pytest.mark.parametrize(
    "show", [freeze_time(T), time_machine.travel(T, tick=False)], ids=["freezegun", "time-machine"]
)
def test_handlers_see_the_due_instant_in_what_the_library_shows(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, show: Any
) -> None:
    seen: list[tuple[datetime, float, int]] = []
    with show, Worker(backend, Work) as worker:

        @worker.handler(Quick)
        def handle(_job: Quick, context: JobContext) -> None:
            seen.append((datetime.now(UTC), time.time(), context.attempt))
            raise Retryable("again")

        Producer(backend, Work).enqueue(Quick())
        queuey_clock.run(worker, seconds=0.2)
    tenth = timedelta(seconds=0.1)
    assert seen == [(T + n * tenth, (T + n * tenth).timestamp(), n + 1) for n in range(3)]


def test_in_the_time_that_is_shown_no_attempt_comes_before_its_time(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    seen: list[float] = []
    with freeze_time(T), Worker(backend, Work) as worker:

        @worker.handler(Quick)
        def handle(_job: Quick) -> None:
            seen.append(time.time())
            raise Retryable("again")

        Producer(backend, Work).enqueue(Quick())
        queuey_clock.run(worker, until=lambda: len(seen) == 5, seconds=2)
    assert all(later - earlier >= 0.099 for earlier, later in pairwise(seen)), seen


def test_a_stretch_ends_at_its_end_and_no_job_comes_before_its_time(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    seen: list[int] = []
    with Worker(backend, Work) as worker:
        worker.register(Quick, lambda job: seen.append(job.number))
        producer = Producer(backend, Work)
        for number, delay in enumerate((0.3, 0.1, 60)):
            producer.enqueue_after(Quick(number), delay)
        began_ms = queuey_clock.now_ms()
        assert queuey_clock.run(worker, seconds=0.5) == 2
    assert seen == [1, 0]
    assert 500 <= queuey_clock.now_ms() - began_ms < 5000


def test_a_condition_ends_a_stretch_as_soon_as_it_is_met(backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    seen: list[int] = []
    with Worker(backend, Work) as worker:
        worker.register(Quick, lambda job: seen.append(job.number))
        producer = Producer(backend, Work)
        for number in range(3):
            producer.enqueue_after(Quick(number), 0.1 + number / 10)
        queuey_clock.run(worker, until=lambda: len(seen) == 2)
        assert seen == [0, 1]
        queuey_clock.run(worker, until=lambda: len(seen) == 3, seconds=1)
    assert seen == [0, 1, 2]


def test_a_condition_that_is_not_met_in_time_is_an_error(backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    with Worker(backend, Work) as worker, pytest.raises(DeadlineExceededError, match=r"not met within 0\.\d+ s"):
        queuey_clock.run(worker, until=lambda: False, seconds=0.1)


@on_the_fake
def test_a_condition_that_nothing_can_meet_any_more_is_an_error_that_says_what_is_held(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    Producer(backend, Work).enqueue(Slow())
    with Worker(backend, Work, only=[Work.quick]) as worker, pytest.raises(NothingPending) as refused:
        queuey_clock.run(worker, until=lambda: False)
    assert "'running-along.slow': 1 message ready, no consumer" in str(refused.value)


@on_the_fake
def test_several_workers_of_several_backends_work_in_due_order(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()
    seen: list[tuple[str, int, int]] = []
    backends = [queuey_broker.backend(), queuey_broker.backend()]
    workers = [
        Worker(backend, Work, only=[queue]) for backend, queue in zip(backends, (Work.quick, Work.slow), strict=True)
    ]
    for worker in workers:
        worker.register(Quick, lambda job: seen.append(("quick", job.number, queuey_clock.now_ms() - began_ms)))
        worker.register(Slow, lambda job: seen.append(("slow", job.number, queuey_clock.now_ms() - began_ms)))
    producer = Producer(backends[0], Work)
    for number in (3, 1, 5):
        producer.enqueue_after(Quick(number), number)
    for number in (4, 2, 5):
        producer.enqueue_after(Slow(number), number)
    queuey_clock.run(*workers, minutes=1)
    for worker in workers:
        worker.close()
    assert seen == [
        ("quick", 1, 1000),
        ("slow", 2, 2000),
        ("quick", 3, 3000),
        ("slow", 4, 4000),
        ("quick", 5, 5000),
        ("slow", 5, 5000),
    ]


@on_the_fake
def test_workers_on_two_brokers_of_one_clock_work_in_due_order(queuey_broker: BrokerUnderTest) -> None:
    assert queuey_broker.fake is not None
    clock = QueueyClock(queuey_broker)
    began_ms = clock.now_ms()
    seen: list[int] = []
    with FakeBroker(clock=queuey_broker.fake.clock) as other:
        workers = []
        for backend, delays in ((queuey_broker.backend(), (1, 3)), (other.backend(), (2, 4))):
            worker = Worker(backend, Work)
            worker.register(Quick, lambda _job: seen.append(clock.now_ms() - began_ms))
            workers.append(worker)
            for delay in delays:
                Producer(backend, Work).enqueue_after(Quick(), delay)
        clock.run(*workers, seconds=10)
        for worker in workers:
            worker.close()
    assert seen == [1000, 2000, 3000, 4000]


def test_a_function_may_be_the_consumer(backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    queue = QueueConfig("running-along.plain")
    backend.declare([queue])
    seen: list[object] = []
    with backend.consume(queue) as deliveries:

        def consume() -> bool:
            delivery = deliveries.get(timeout=0)
            if delivery is None:
                return False
            seen.append(delivery.envelope.payload)
            delivery.ack()
            return True

        for number, delay in enumerate((0.3, 0.1)):
            envelope = Envelope(
                job_id=uuid.uuid4(),
                job_type="plain",
                queue=queue.name,
                enqueued_at_ms=backend.now_ms(),
                payload=number,
            )
            backend.publish(envelope, delay=delay)
        assert queuey_clock.run(consume, seconds=0.5) == 2
    assert seen == [1, 0]


@on_the_fake
def test_a_stretch_may_end_at_an_instant(backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    with freeze_time(T), Worker(backend, Work) as worker:
        queuey_clock.run(worker, until=T + timedelta(days=1))
        assert datetime.now(UTC) == T + timedelta(days=1)


@on_the_fake
def test_jobs_that_another_thread_passes_on_are_worked_off_at_their_instant(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()
    seen: list[int] = []
    producer = Producer(backend, Work)
    front = Worker(backend, Work, only=[Work.slow])
    is_running = threading.Event()

    def pass_on(job: Slow) -> None:
        if job.number == 0:
            is_running.set()  # only who waits already is waited for
        else:
            producer.enqueue(Quick(job.number))

    front.register(Slow, pass_on)
    thread = threading.Thread(target=front.run)
    thread.start()
    producer.enqueue(Slow(0))
    assert is_running.wait(10)
    for number in (1, 2, 3):
        producer.enqueue_after(Slow(number), number)
    with Worker(backend, Work, only=[Work.quick]) as back:
        back.register(Quick, lambda _job: seen.append(queuey_clock.now_ms() - began_ms))
        queuey_clock.run(back, seconds=10)
    front.shutdown()
    thread.join(5)
    assert seen == [1000, 2000, 3000]


def test_a_stretch_needs_something_to_run_and_goes_forwards(queuey_clock: QueueyClock) -> None:
    with pytest.raises(ValueError, match="needs something to run"):
        queuey_clock.run(seconds=1)
    with pytest.raises(ValueError, match="forwards"):
        queuey_clock.run(lambda: False, seconds=-1)
    with pytest.raises(ValueError, match="in the past"):
        queuey_clock.run(lambda: False, until=datetime(1990, 1, 1, tzinfo=UTC))
