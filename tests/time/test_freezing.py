"""Under freezegun and time-machine handlers see the frozen time, whoever calls them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pika
import pytest
import time_machine
from freezegun import freeze_time

from pytest_queuey import BrokerUnderTest, QueueyClock
from queuey_fake import FakeBroker, ManualClock, real_time
from queuey_fake.clock import epoch_ms
from queuey_rabbitmq import Job, Producer, Queue, QueueSet, RabbitMqBackend, RetryPolicy, Worker, job

T = datetime(2030, 1, 1, tzinfo=UTC)
TIMEOUT_S = 5


class Mail(QueueSet, prefix="freezing"):
    emails = Queue(prefetch=1, retry=RetryPolicy.fixed(3, 30))


@job(Mail.emails)
class Send(Job[Mail]):
    number: int = 0


@job(Mail.emails)
class Invite(Job[Mail]):
    day: date
    at: datetime


def clocks() -> tuple[float, float, float]:
    """What a handler sees that asks in every way."""
    return time.time(), datetime.now(UTC).timestamp(), time.monotonic()


def ways_to_freeze() -> list[Any]:
    return [
        pytest.param(lambda: freeze_time(T), id="freezegun"),
        pytest.param(lambda: freeze_time(T, auto_tick_seconds=0.000001), id="freezegun-auto-tick"),
        pytest.param(lambda: freeze_time(T, tick=True), id="freezegun-tick"),
    ]


class Seeing:
    """A worker whose handler keeps what it sees."""

    def __init__(self, backend: RabbitMqBackend) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self.worker = Worker(backend, Mail)
        self.handled = threading.Event()

    def start_handling(self) -> Worker[Mail]:
        self.worker.register(Send, self.handle)
        return self.worker

    def handle(self, _job: Send) -> None:
        self.seen.append(clocks())
        self.handled.set()


@pytest.fixture
def seeing(queuey_backend: RabbitMqBackend) -> Seeing:
    return Seeing(queuey_backend)


@pytest.mark.parametrize("freeze", ways_to_freeze())
def test_every_clock_that_a_handler_may_ask_agrees(
    queuey_backend: RabbitMqBackend, seeing: Seeing, freeze: Callable[[], Any]
) -> None:
    with freeze(), seeing.start_handling() as worker:
        Producer(queuey_backend, Mail).enqueue(Send())
        assert worker.step(timeout=1)
    assert seeing.seen[0] == pytest.approx([T.timestamp()] * 3, abs=2)


@pytest.mark.parametrize("show", [lambda: freeze_time(T), lambda: time_machine.travel(T, tick=False)])
def test_dates_that_are_asked_for_in_a_freeze_travel_in_a_job(
    queuey_backend: RabbitMqBackend, show: Callable[[], Any]
) -> None:
    received: list[Invite] = []
    with show(), Worker(queuey_backend, Mail) as worker:
        worker.register(Invite, received.append)
        Producer(queuey_backend, Mail).enqueue(Invite(day=datetime.now(UTC).date(), at=datetime.now(UTC)))
        assert worker.step(timeout=1)
    assert received == [Invite(day=date(2030, 1, 1), at=T)]


def test_a_handler_in_a_thread_of_the_worker_sees_frozen_time(queuey_backend: RabbitMqBackend, seeing: Seeing) -> None:
    with freeze_time(T):
        worker = seeing.start_handling()
        thread = threading.Thread(target=worker.run)
        thread.start()
        Producer(queuey_backend, Mail).enqueue(Send())
        assert seeing.handled.wait(TIMEOUT_S)
        worker.shutdown()
        thread.join(TIMEOUT_S)
    assert seeing.seen == [(T.timestamp(),) * 3]


@pytest.mark.queuey_broker("fake")
def test_a_coroutine_of_the_worker_sees_frozen_time_and_sleeps_in_real_time(queuey_backend: RabbitMqBackend) -> None:
    import asyncio

    worker = Worker(queuey_backend, Mail)
    seen: list[tuple[float, float, float]] = []

    @worker.handler(Send)
    async def handle(_job: Send) -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)

    async def look(_job: Send) -> None:
        seen.append(clocks())

    with freeze_time(T), worker:
        Producer(queuey_backend, Mail).enqueue(Send())
        assert worker.step(timeout=1)
    with freeze_time(T), Worker(queuey_backend, Mail) as looking:
        looking.register(Send, look)
        assert looking.step(timeout=60)
    assert seen == [(T.timestamp() + 30,) * 3]


def test_a_consumer_in_a_thread_of_the_test_sees_frozen_time(queuey_backend: RabbitMqBackend) -> None:
    queuey_backend.declare([Mail.emails.config])
    seen: list[tuple[float, float, float]] = []

    def consume() -> None:
        with queuey_backend.consume(Mail.emails.config) as deliveries:
            next(deliveries).ack()
            seen.append(clocks())

    with freeze_time(T):
        Producer(queuey_backend, Mail).enqueue(Send())
        consumer = threading.Thread(target=consume)
        consumer.start()
        consumer.join(TIMEOUT_S)
    assert seen == [(T.timestamp(),) * 3]


@freeze_time(T)
def test_a_freeze_by_decorator_holds_for_handlers(queuey_backend: RabbitMqBackend, seeing: Seeing) -> None:
    Producer(queuey_backend, Mail).enqueue(Send())
    with seeing.start_handling() as worker:
        worker.step(timeout=1)
    assert seeing.seen == [(T.timestamp(),) * 3]


@freeze_time(T)
class TestFrozenByClassDecorator:
    def test_holds_for_handlers(self, queuey_backend: RabbitMqBackend, seeing: Seeing) -> None:
        Producer(queuey_backend, Mail).enqueue(Send())
        with seeing.start_handling() as worker:
            worker.step(timeout=1)
        assert seeing.seen == [(T.timestamp(),) * 3]


def test_a_handler_in_nested_freezes_sees_the_innermost(queuey_backend: RabbitMqBackend, seeing: Seeing) -> None:
    with freeze_time(T), seeing.start_handling() as worker:
        with freeze_time(T + timedelta(days=1)):
            Producer(queuey_backend, Mail).enqueue(Send())
            worker.step(timeout=1)
        Producer(queuey_backend, Mail).enqueue(Send())
        worker.step(timeout=1)
    assert seeing.seen == [(T.timestamp() + 86400,) * 3, (T.timestamp(),) * 3]


def test_a_handler_sees_where_time_machine_has_travelled(queuey_backend: RabbitMqBackend, seeing: Seeing) -> None:
    with time_machine.travel(T, tick=False), seeing.start_handling() as worker:
        Producer(queuey_backend, Mail).enqueue(Send())
        worker.step(timeout=1)
    assert seeing.seen[0][:2] == (T.timestamp(), T.timestamp())


def test_a_module_that_bound_time_before_the_freeze_sees_frozen_time(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        queue_jobs="""
        from datetime import UTC, datetime
        from time import time

        def seen():
            return time(), datetime.now(UTC).timestamp()
        """,
        test_early="""
        import queue_jobs
        from freezegun import freeze_time
        import queuey_rabbitmq

        def test_early():
            with freeze_time("2030-01-01"):
                assert queue_jobs.seen() == (1893456000.0, 1893456000.0)
        """,
    )
    run_pytest.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_freeze_that_began_before_queuey_was_loaded_is_the_brokers_and_the_handlers(
    run_pytest: pytest.Pytester,
) -> None:
    run_pytest.makepyfile(
        conftest="""
        from freezegun import freeze_time
        freezer = freeze_time("2030-01-01")
        freezer.start()
        """,
        test_late="""
        import time
        from datetime import UTC, datetime
        from conftest import freezer
        from queuey_rabbitmq import Job, Producer, Queue, QueueSet, Worker, job

        class Mail(QueueSet, prefix="late"):
            emails = Queue(prefetch=1)

        @job(Mail.emails)
        class Send(Job[Mail]):
            at: datetime

        def work(backend, handle, **timeout):
            with Worker(backend, Mail) as worker:
                worker.register(Send, handle)
                assert worker.step(**timeout)

        def test_frozen(queuey_broker, queuey_backend):
            seen = []
            producer = Producer(queuey_backend, Mail)
            producer.enqueue_after(Send(datetime.now(UTC)), 30)
            work(queuey_backend, lambda job: seen.extend([job.at, time.time(), datetime.now(UTC)]), timeout=60)
            assert [seen[0].timestamp(), seen[1], seen[2].timestamp()] == [1893456000, 1893456030, 1893456030]

        def test_thawed(queuey_broker, queuey_backend):
            freezer.stop()
            assert abs(queuey_broker.now_ms() - time.time() * 1000) < 5000
            from queuey_fake.engine import real_time
            assert real_time.monotonic_s() < 1e9
        """,
    )
    run_pytest.runpytest_subprocess().assert_outcomes(passed=2)


def test_waits_of_the_standard_library_end_while_time_is_frozen() -> None:
    with FakeBroker(), freeze_time(T), pytest.raises(queue.Empty):
        queue.Queue().get(timeout=0.01)


def test_a_broker_made_under_a_freeze_goes_on_in_the_present_after_it() -> None:
    with freeze_time(T):
        broker = FakeBroker()
        assert broker.now_ms() == epoch_ms(T)
    with time_machine.travel(T):
        travelling = FakeBroker()
    with broker, travelling:
        assert abs(broker.now_ms() - real_time.now_ms()) < 60_000
        assert abs(travelling.now_ms() - real_time.now_ms()) < 60_000


@pytest.mark.queuey_broker("fake")
@pytest.mark.parametrize(
    ("show", "tick"),
    [
        pytest.param(lambda: freeze_time(T), lambda shown, seconds: shown.tick(seconds), id="freezegun"),
        pytest.param(
            lambda: time_machine.travel(T, tick=False), lambda shown, seconds: shown.shift(seconds), id="time-machine"
        ),
    ],
)
def test_what_another_client_has_sent_takes_effect_before_shown_time_moves(
    queuey_broker: BrokerUnderTest, show: Callable[[], Any], tick: Callable[[Any, float], None]
) -> None:
    with show() as shown, pika.BlockingConnection(pika.URLParameters(queuey_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        to_work = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
        channel.queue_declare("hold", durable=True, arguments={"x-message-ttl": 30_000, **to_work})
        channel.basic_publish("", "hold", b"held")
        tick(shown, 29.999)
        assert channel.basic_get("work")[2] is None
        tick(shown, 0.001)
        assert channel.basic_get("work", auto_ack=True)[2] == b"held"


@pytest.mark.queuey_broker("fake")
def test_what_is_put_off_after_a_freeze_or_a_move_back_counts_from_the_time_that_it_is_then(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    with queuey_broker.backend() as backend:
        producer = Producer(backend, Mail)
        with freeze_time(T) as frozen:
            frozen.move_to(T - timedelta(days=365))
            producer.enqueue_after(Send(), 30)
            frozen.tick(29.999)
            assert ready(queuey_broker) == 0
            frozen.tick(0.001)
            assert ready(queuey_broker) == 1
        producer.enqueue_after(Send(), 60)
        queuey_clock.advance(60)
        assert ready(queuey_broker) == 2


def ready(broker: BrokerUnderTest) -> int:
    queue = broker.queue(Mail.emails.config.name)
    assert queue is not None
    return queue.ready


def test_a_worker_waits_in_real_time_for_threads_that_a_frozen_test_shuts_down(queuey_backend: RabbitMqBackend) -> None:
    held = threading.Event()
    began = threading.Event()
    worker = Worker(queuey_backend, Mail)

    @worker.handler(Send)
    def handle(_job: Send) -> None:
        began.set()
        held.wait(TIMEOUT_S)

    with freeze_time(T):
        thread = threading.Thread(target=worker.run)
        thread.start()
        Producer(queuey_backend, Mail).enqueue(Send())
        assert began.wait(TIMEOUT_S)
        worker.shutdown(grace=0.01)
        thread.join(TIMEOUT_S)
        held.set()
    assert not thread.is_alive()


def test_advancing_moves_what_freezegun_shows_on_each_kind_of_broker(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    with freeze_time(T):
        queuey_clock.advance(0.1)
        assert datetime.now(UTC) == T + timedelta(seconds=0.1)
        assert queuey_clock.now_ms() == queuey_broker.backend().now_ms() == epoch_ms(T) + 100


def test_a_clock_of_its_own_is_not_frozen() -> None:
    with freeze_time(T + timedelta(days=1)), FakeBroker(clock=ManualClock(T)) as broker:
        assert broker.now_ms() == epoch_ms(T)
