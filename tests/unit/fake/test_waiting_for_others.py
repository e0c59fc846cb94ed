"""Before the driving thread moves time, it lets other threads finish what they have in hand at this instant."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from queuey_fake import FakeBroker, ManualClock, real_time
from queuey_fake.engine import WaitGuardError
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend
from queuey_rabbitmq.core.errors import DeadlineExceededError, ShutDownError
from tests.unit.fake.conftest import START

START_MS = 1_893_456_000_000
DAY_S = 86_400
TIMEOUT_S = 5
EMAILS = QueueConfig("emails", prefetch=1)


def job(backend: RabbitMqBackend, number: int = 0) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=number
    )


def test_a_job_that_puts_itself_off_in_another_thread_runs_on_each_day_of_one_jump(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    ran_at: list[float] = []
    consuming = threading.Event()

    def consume() -> None:
        with backend.consume(EMAILS) as deliveries:
            consuming.set()
            for _ in range(5):
                delivery = next(deliveries)
                threading.Event().wait(0.01)  # it takes a while, in which time must stand still
                ran_at.append((broker.now_ms() - START_MS) / 1000 / DAY_S)
                delivery.defer(delivery.envelope, DAY_S)

    backend.defer(job(backend), DAY_S)
    consumer = threading.Thread(target=consume)
    consumer.start()
    assert consuming.wait(TIMEOUT_S)
    broker.advance(5 * DAY_S)
    consumer.join(TIMEOUT_S)
    assert ran_at == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("steps_s", [[20], [4, 16], [1] * 20])
def test_a_wait_of_another_thread_ends_at_its_deadline_however_far_time_is_moved(
    broker: FakeBroker, backend: RabbitMqBackend, steps_s: list[float]
) -> None:
    taken: list[object] = []

    def consume() -> None:
        with backend.consume(EMAILS) as deliveries:
            taken.append(deliveries.get(timeout=5))

    backend.defer(job(backend), 10)
    consumer = threading.Thread(target=consume)
    consumer.start()
    while consumer.is_alive() and not broker.waiting_threads():
        threading.Event().wait(0.001)
    for seconds in steps_s:
        broker.advance(seconds)
    consumer.join(TIMEOUT_S)
    assert taken == [None]


def test_a_thread_that_never_settles_is_named_when_the_guard_is_over() -> None:
    broker = FakeBroker(clock=ManualClock(START), wait_guard=0.2)
    backend = broker.backend()
    backend.declare([EMAILS])
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with backend.consume(EMAILS) as deliveries:
            next(deliveries)
            taken.set()
            release.wait(TIMEOUT_S)

    backend.publish(job(backend))
    holder = threading.Thread(target=hold, name="holder")
    holder.start()
    assert taken.wait(TIMEOUT_S)
    with pytest.raises(WaitGuardError, match="thread 'holder' holds a delivery that it has not settled"):
        broker.advance(1)
    with backend.consume(EMAILS) as deliveries, pytest.raises(DeadlineExceededError, match="'holder' holds a delivery"):
        deliveries.get(timeout=1)
    release.set()
    holder.join(TIMEOUT_S)
    assert broker.now_ms() == START_MS
    broker.close()


def test_a_thread_that_has_opened_a_consumer_is_given_the_time_to_take_from_it(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    seen_at: list[int] = []
    opened = threading.Event()

    def consume() -> None:
        with backend.consume(EMAILS) as deliveries:
            opened.set()
            threading.Event().wait(0.05)  # it is slow to come
            for _ in range(3):
                delivery = next(deliveries)
                seen_at.append(broker.now_ms() - START_MS)
                delivery.ack()

    for delay in (1, 2, 3):
        backend.defer(job(backend), delay)
    consumer = threading.Thread(target=consume)
    consumer.start()
    assert opened.wait(TIMEOUT_S)
    broker.advance(10)
    consumer.join(TIMEOUT_S)
    assert seen_at == [1000, 2000, 3000]


def test_a_thread_that_opens_a_consumer_and_does_something_else_is_not_waited_for_long(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    opened, release = threading.Event(), threading.Event()

    def open_only() -> None:
        with backend.consume(EMAILS):
            opened.set()
            release.wait(TIMEOUT_S)

    backend.publish(job(backend))
    opener = threading.Thread(target=open_only)
    opener.start()
    assert opened.wait(TIMEOUT_S)
    began_s = real_time.monotonic_s()
    for _ in range(100):
        broker.advance(1)
    assert real_time.monotonic_s() - began_s < TIMEOUT_S
    release.set()
    opener.join(TIMEOUT_S)


def test_a_thread_that_holds_one_delivery_and_waits_for_more_holds_up_nothing(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    got: list[object] = []
    taken = threading.Event()
    batch = QueueConfig("emails", prefetch=10)

    def collect() -> None:
        with backend.consume(batch) as deliveries:
            first = next(deliveries)
            taken.set()
            got.append(deliveries.get(timeout=60))
            first.ack()

    backend.publish(job(backend))
    collector = threading.Thread(target=collect)
    collector.start()
    assert taken.wait(TIMEOUT_S)
    broker.advance(60)
    collector.join(TIMEOUT_S)
    assert got == [None]


def test_a_delivery_that_a_pool_has_fetched_for_the_driving_thread_holds_up_nothing(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    backend.publish(job(backend))
    with ThreadPoolExecutor(1) as pool, backend.consume(EMAILS) as deliveries:
        delivery = pool.submit(deliveries.get, timeout=1).result(TIMEOUT_S)
        broker.advance(60)
        assert delivery is not None
        delivery.ack()
    assert broker.now_ms() == START_MS + 60_000


def test_a_delivery_of_a_thread_that_has_ended_holds_up_nothing(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    with backend.consume(EMAILS) as deliveries:
        fetcher = threading.Thread(target=deliveries.get)
        fetcher.start()
        fetcher.join(TIMEOUT_S)
        broker.advance(60)
    assert broker.now_ms() == START_MS + 60_000


def test_a_delivery_that_is_taken_when_its_consumer_has_been_closed_holds_up_nothing(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    told, release = threading.Event(), threading.Event()

    def take_too_late() -> None:
        with pytest.raises(ShutDownError):
            deliveries.get()
        told.set()
        release.wait(TIMEOUT_S)

    backend.publish(job(backend))
    deliveries = backend.consume(EMAILS)
    deliveries.close()
    taker = threading.Thread(target=take_too_late)
    taker.start()
    assert told.wait(TIMEOUT_S)
    assert not broker.is_another_thread_at_work()
    release.set()
    taker.join(TIMEOUT_S)


def test_the_driving_thread_waits_for_nobody_with_what_it_holds_itself(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    backend.publish(job(backend))
    with backend.consume(EMAILS) as deliveries:
        delivery = next(deliveries)
        broker.advance(60)
        delivery.ack()
    assert broker.now_ms() == START_MS + 60_000


def test_what_another_thread_makes_ready_meanwhile_is_got_without_moving_time(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    other = QueueConfig("other")
    backend.declare([other])
    taken = threading.Event()

    def pass_on() -> None:
        with backend.consume(EMAILS) as deliveries:
            delivery = next(deliveries)
            taken.set()
            threading.Event().wait(0.05)
            backend.publish(
                Envelope(job_id=uuid.uuid4(), job_type="send", queue="other", enqueued_at_ms=0, payload=None)
            )
            delivery.ack()

    backend.publish(job(backend))
    passing = threading.Thread(target=pass_on)
    passing.start()
    assert taken.wait(TIMEOUT_S)
    with backend.consume(other) as deliveries:
        assert deliveries.get(timeout=3600) is not None
    passing.join(TIMEOUT_S)
    assert broker.now_ms() == START_MS


def test_several_threads_of_one_consumer_get_each_job_once(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    wide = QueueConfig("emails", prefetch=50)
    seen: list[object] = []

    def consume() -> None:
        while (delivery := deliveries.get(timeout=60)) is not None:
            seen.append(delivery.envelope.payload)
            delivery.ack()

    with backend.consume(wide) as deliveries:
        consumers = [threading.Thread(target=consume) for _ in range(4)]
        for consumer in consumers:
            consumer.start()
        for number in range(200):
            backend.defer(job(backend, number), 1 + number % 7)
        broker.advance(100)
        for consumer in consumers:
            while consumer.is_alive():  # one that came late to its last wait waits for 60 s of its own
                broker.advance(60)
                consumer.join(0.01)
    assert sorted(seen) == list(range(200))  # type: ignore[type-var]  # the payloads are numbers
