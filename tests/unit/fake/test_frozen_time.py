"""A fake broker without a clock of its own lives by the time that freezegun or time-machine shows."""

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from freezegun import freeze_time

from queuey_fake import FakeBroker, ManualClock
from queuey_fake.clock import epoch_ms
from queuey_rabbitmq import Envelope, RabbitMqBackend
from tests.unit.fake.conftest import EMAILS

T = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    """The clock that FakeBroker makes for itself: it follows what is shown."""
    return ManualClock()


def job(backend: RabbitMqBackend) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=None)


def ready(broker: FakeBroker) -> int:
    queue = broker.queue("emails")
    assert queue is not None
    return queue.ready


def test_a_job_is_stamped_with_frozen_time(backend: RabbitMqBackend) -> None:
    with freeze_time(T):
        assert job(backend).enqueued_at_ms == epoch_ms(T)


def test_a_clock_knows_whose_time_it_last_was() -> None:
    clock, own = ManualClock(), ManualClock(T)
    assert clock.library is None
    with freeze_time(T):
        assert (clock.library, ManualClock().library) == ("freezegun", "freezegun")
    assert clock.library == "freezegun"
    with time_machine.travel(T, tick=False):
        assert (clock.library, ManualClock().library) == ("time-machine", "time-machine")
    assert own.library is None


def test_ticking_fires_what_is_due_and_not_a_moment_before(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with freeze_time(T) as frozen:
        backend.defer(job(backend), 30)
        frozen.tick(timedelta(seconds=29.999))
        assert ready(broker) == 0
        frozen.tick(timedelta(milliseconds=1))
        assert ready(broker) == 1


@pytest.mark.parametrize("ticks_s", [[20], [9.5, 10.5], [1] * 20])
def test_what_is_on_its_way_arrives_at_its_own_instant_however_time_is_ticked(
    broker: FakeBroker, backend: RabbitMqBackend, ticks_s: list[float]
) -> None:
    with freeze_time(T) as frozen:
        broker.faults.delay(1)
        sent = backend.publish_nowait(job(backend))
        for seconds in ticks_s:
            frozen.tick(seconds)
        assert sent.done()
        [life] = broker.journal.lives()
        arrived = next(at_ms for _, at_ms, what, _, _ in life.events if what == "published")
        # Its channel is opened before it, which takes a way there, a way back, and another there.
        assert arrived == epoch_ms(T) + 3000


def test_two_freezes_an_hour_apart_are_an_hour_apart_for_the_broker(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    with freeze_time(T):
        backend.publish(job(backend), delay=3600)
    assert ready(broker) == 0
    with freeze_time(T + timedelta(hours=1)):
        assert ready(broker) == 1


def test_advancing_the_broker_ticks_the_freeze_along(broker: FakeBroker) -> None:
    with freeze_time(T):
        broker.advance(90)
        assert datetime.now(UTC) == T + timedelta(seconds=90)


def test_advancing_the_broker_moves_a_time_machine_along(broker: FakeBroker) -> None:
    with time_machine.travel(T, tick=False):
        assert broker.now_ms() == epoch_ms(T)
        broker.advance(90)
        assert datetime.now(UTC) == T + timedelta(seconds=90)


@pytest.mark.parametrize("show", [freeze_time, lambda instant: time_machine.travel(instant, tick=False)])
def test_what_is_shown_below_a_millisecond_stays_when_time_is_moved(
    broker: FakeBroker, backend: RabbitMqBackend, show: Callable[[datetime], Any]
) -> None:
    began = T + timedelta(microseconds=123_456)
    with show(began), backend.consume(EMAILS) as deliveries:
        backend.defer(job(backend), 30)
        assert deliveries.get(timeout=60) is not None
        assert datetime.now(UTC) == began + timedelta(seconds=30)
        broker.advance(1)
        assert datetime.now(UTC) == began + timedelta(seconds=31)
        broker.manual_clock.move_to(began - timedelta(seconds=0.5))
        assert datetime.now(UTC) == began - timedelta(seconds=0.5)


def test_a_time_machine_that_is_moved_along_stays_in_its_time_zone(broker: FakeBroker) -> None:
    with time_machine.travel(datetime(2030, 1, 1, 12, tzinfo=ZoneInfo("America/New_York")), tick=False):
        broker.advance(3600)
        assert time.localtime().tm_hour == 13


def test_a_time_machine_that_is_shifted_fires_what_is_due(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with time_machine.travel(T, tick=False) as traveller:
        backend.defer(job(backend), 30)
        traveller.shift(29)
        assert ready(broker) == 0
        traveller.shift(1)
        assert ready(broker) == 1


def test_nested_freezes_are_followed_in_and_out(broker: FakeBroker) -> None:
    before = broker.now_ms()
    with freeze_time(T):
        with freeze_time(T + timedelta(days=1)):
            assert broker.now_ms() == epoch_ms(T + timedelta(days=1))
        assert broker.now_ms() == epoch_ms(T)
    assert broker.now_ms() == before


def test_an_auto_ticking_freeze_is_read_without_ticking_it(broker: FakeBroker) -> None:
    with freeze_time(T, auto_tick_seconds=15):
        assert broker.now_ms() == broker.now_ms() == epoch_ms(T)


def test_moving_back_undoes_nothing(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with freeze_time(T) as frozen:
        backend.defer(job(backend), 30)
        frozen.move_to(T + timedelta(seconds=60))
        frozen.move_to(T)
        assert ready(broker) == 1


def test_a_consumer_that_waits_in_another_thread_wakes_when_time_is_ticked(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    with freeze_time(T) as frozen:
        backend.defer(job(backend), 30)
        seen: list[int] = []

        def consume() -> None:
            with backend.consume(EMAILS) as deliveries:
                delivery = deliveries.get(timeout=60)
                assert delivery is not None
                seen.append(broker.now_ms())
                delivery.ack()

        consumer = threading.Thread(target=consume)
        consumer.start()
        while broker.queue("emails").consumers == 0:  # type: ignore[union-attr]  # it was declared
            pass
        frozen.tick(30)
        consumer.join(5)
    assert seen == [epoch_ms(T + timedelta(seconds=30))]


def test_a_clock_with_a_start_of_its_own_does_not_follow() -> None:
    clock = ManualClock(T)
    with freeze_time(T + timedelta(days=1)), FakeBroker(clock=clock) as broker:
        assert broker.now_ms() == epoch_ms(T)


def test_a_wait_of_the_driving_thread_ticks_the_freeze(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with freeze_time(T), backend.consume(EMAILS) as deliveries:
        backend.defer(job(backend), 30)
        delivery = deliveries.get(timeout=3600)
        assert delivery is not None
        assert datetime.now(UTC) == T + timedelta(seconds=30)
