"""Owns the contract's chapter on time: delayed publishes, retries and deferrals come back, and never early.

Elapsed time is measured by the backend's clock, from before the call, so a slow machine can only make it longer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import (
    ContractClock,
    MakeBackend,
    MakeJob,
    Surroundings,
    payloads,
    take,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.delivery import Delivery
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import DelayTooLongError, UnknownQueueError, UnroutableError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.topology import MAX_DEFERRAL_MS

OVER_THE_CAP = timedelta(milliseconds=MAX_DEFERRAL_MS + 1)
UNDER_THE_CAP = timedelta(days=24)
UNUSUAL_JSON = b'{"z": 1.0,  "a": [1e3, "\\u00e9"], "big": 123456789012345678901234567890}'
"""A payload that does not come through a JSON library as it was."""

PutOff = Callable[[Delivery, timedelta | float], None]
Hold = Callable[[Backend, Envelope, timedelta | float], None]

PUT_OFF: dict[str, PutOff] = {
    "retry": lambda delivery, delay: delivery.retry(delivery.envelope.next_attempt(), delay),
    "defer": lambda delivery, delay: delivery.defer(delivery.envelope.deferred(1), delay),
}
HOLD: dict[str, Hold] = {
    "publish": lambda backend, job, delay: backend.publish(job, delay=delay),
    "publish_nowait": lambda backend, job, delay: backend.publish_nowait(job, delay=delay).result(),
    "defer": lambda backend, job, delay: backend.defer(job, delay),
}

each_way_to_put_off = pytest.mark.parametrize("put_off", [pytest.param(way, id=name) for name, way in PUT_OFF.items()])
each_way_to_hold = pytest.mark.parametrize("hold", [pytest.param(way, id=name) for name, way in HOLD.items()])


@needs("holds")
class Delaying(Surroundings):
    """What waits comes back after its time, whole, and however long something else waits."""

    @each_way_to_hold
    def test_a_held_job_comes_whole_and_never_early(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock, hold: Hold
    ) -> None:
        job = new_job({"n": 1}, correlation_id="c", priority=2, deferrals=3, attempt=4)
        with backend.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            hold(backend, job, 0.2)
            delivery = take_one(deliveries)
            assert clock.now_ms() - start_ms >= 200
        assert delivery.envelope.to_bytes() == job.to_bytes()

    @each_way_to_hold
    def test_a_delay_of_no_whole_number_of_steps_is_rounded_up(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock, hold: Hold
    ) -> None:
        with backend.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            hold(backend, new_job(), 0.151)
            take_one(deliveries)
            assert clock.now_ms() - start_ms >= 151

    @each_way_to_put_off
    def test_a_job_put_off_comes_whole_with_its_payload_byte_for_byte(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        plain = new_job(correlation_id="request 7", job_type="send_email")
        job = Envelope.from_bytes(plain.to_bytes().replace(b'"payload":null', b'"payload":' + UNUSUAL_JSON))
        backend.publish(job)
        with backend.consume(queue) as deliveries:
            put_off(take_one(deliveries), 0.1)
            again = take_one(deliveries).envelope
        assert again.payload_json == UNUSUAL_JSON
        assert (again.job_id, again.job_type, again.correlation_id, again.enqueued_at_ms) == (
            *(job.job_id, job.job_type, job.correlation_id),
            job.enqueued_at_ms,
        )

    def test_a_retried_job_comes_as_its_next_attempt_and_never_early(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.publish(new_job("failed", deferrals=2))
        with backend.consume(queue) as deliveries:
            first = take_one(deliveries)
            start_ms = clock.now_ms()
            first.retry(first.envelope.next_attempt(), 0.2)
            second = take_one(deliveries)
            assert clock.now_ms() - start_ms >= 200
        assert second.envelope == first.envelope.next_attempt()
        assert (second.envelope.attempt, second.envelope.deferrals) == (2, 2)
        assert not second.redelivered

    def test_a_deferred_job_comes_as_the_same_attempt_and_never_early(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.publish(new_job("too many requests", attempt=3))
        with backend.consume(queue) as deliveries:
            first = take_one(deliveries)
            start_ms = clock.now_ms()
            first.defer(first.envelope.deferred(queue.top_priority), timedelta(milliseconds=200))
            second = take_one(deliveries)
            assert clock.now_ms() - start_ms >= 200
        assert second.envelope == first.envelope.deferred(queue.top_priority)
        assert (second.envelope.attempt, second.envelope.deferrals) == (3, 1)

    def test_each_attempt_of_a_job_waits_its_own_time(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.publish(new_job("stubborn"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            for attempt, delay in enumerate([0.1, 0.3, 0.1, 0.2], start=2):
                start_ms = clock.now_ms()
                delivery.retry(delivery.envelope.next_attempt(), delay)
                delivery = take_one(deliveries)
                assert delivery.envelope.attempt == attempt
                assert clock.now_ms() - start_ms >= 1000 * delay

    @each_way_to_put_off
    def test_a_short_wait_is_not_stuck_behind_a_long_one(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock, put_off: PutOff
    ) -> None:
        for name in ("long", "short"):
            backend.publish(new_job(name))
        with backend.consume(queue) as deliveries:
            long, short = take(deliveries, 2)
            start_ms = clock.now_ms()
            put_off(long, 0.5)
            put_off(short, 0.1)
            assert payloads(take(deliveries, 2)) == ["short", "long"]
            assert clock.now_ms() - start_ms >= 500

    def test_jobs_that_wait_equally_long_come_in_order(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for number in range(10):
            backend.publish(new_job(number), delay=0.2)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 10) == list(range(10))

    @pytest.mark.parametrize("delay", [0, -5, 0.001, timedelta(0), timedelta(microseconds=1)], ids=str)
    def test_a_delay_of_next_to_nothing_is_a_short_wait(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, delay: timedelta | float
    ) -> None:
        backend.publish(new_job("published"), delay=delay)
        backend.defer(new_job("deferred"), delay)
        with backend.consume(queue) as deliveries:
            assert sorted(payloads(take(deliveries, 2))) == ["deferred", "published"]

    def test_a_held_job_outlives_the_backend_that_held_it(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.defer(new_job("left behind"), 0.2)
        backend.close()
        with backend_factory().consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "left behind"

    @each_way_to_hold
    def test_holding_for_longer_than_the_cap_is_refused(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        with pytest.raises(DelayTooLongError) as raised:
            hold(backend, new_job(), OVER_THE_CAP)
        assert queue.name in str(raised.value)

    @each_way_to_put_off
    def test_putting_off_for_longer_than_the_cap_leaves_the_delivery_unsettled(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        backend.publish(new_job("kept"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with pytest.raises(DelayTooLongError):
                put_off(delivery, OVER_THE_CAP)
            put_off(delivery, 0.1)
            assert take_one(deliveries).envelope.payload == "kept"

    @each_way_to_hold
    def test_the_longest_waits_under_the_cap_are_kept_waiting(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        hold(backend, new_job("in 24 days"), UNDER_THE_CAP)
        backend.publish(new_job("now"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["now"]
            assert deliveries.get(timeout=0.2) is None

    @each_way_to_hold
    def test_holding_a_job_for_a_queue_that_was_not_declared_is_refused(
        self, backend: Backend, queue_name: str, new_job: MakeJob, hold: Hold
    ) -> None:
        unknown = f"{queue_name}.unknown"
        with pytest.raises(UnknownQueueError) as raised:
            hold(backend, new_job(queue=unknown), 0.1)
        assert f"'{unknown}'" in str(raised.value)
        with pytest.raises(UnroutableError):  # nothing was created for it either
            backend.publish(new_job(queue=unknown))

    @each_way_to_put_off
    def test_a_backend_that_has_not_declared_a_queue_puts_nothing_off_for_it(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        backend.publish(new_job("kept"))
        other = backend_factory()
        with other.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with pytest.raises(UnknownQueueError):
                put_off(delivery, 0.1)
            other.declare([queue])
            put_off(delivery, 0.1)
            assert take_one(deliveries).envelope.payload == "kept"
