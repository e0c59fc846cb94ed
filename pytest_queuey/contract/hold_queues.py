"""Owns the contract's chapter on hold queues: who shares one, how long one lives, and what a foreign one breaks.

That a job waited in a hold queue is read off the job itself when it is back, in the broker's own x-death header: no
look at the right moment is needed.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor, RawMessage
from pytest_queuey.contract.delaying import HOLD, PUT_OFF, Hold, PutOff, each_way_to_hold, each_way_to_put_off
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import PATIENCE, ContractClock, MakeJob, payloads, take, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import DeclareRefusedError, DelayTooLongError, UnknownQueueError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.topology import MAX_DEFERRAL_MS, deferred_queue_args

FOREIGN = {"x-message-ttl": 60_000}
"""Arguments that a hold queue of 200 ms does not have."""


def back_from(door: BrokerDoor, queue: QueueConfig) -> RawMessage:
    """Take the next job off its queue past the backend; fail where there is none."""
    message = door.get(queue.name)
    assert message is not None, f"nothing came back to '{queue.name}'"
    return message


def last_waited_in(message: RawMessage) -> tuple[str, str]:
    """Return the queue that a message waited in last, and why it left it."""
    latest = message.headers["x-death"][0]
    return latest["queue"], latest["reason"]


class HoldQueues(RabbitMqSurroundings):
    """Each delay has one queue, declared right before each publish into it, and gone when nobody needs it."""

    @each_way_to_hold
    def test_a_held_job_waits_in_the_hold_queue_of_its_delay_without_an_expiration(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        hold(backend, new_job({"n": 1}), 40)
        assert door.depth(queue.name) == 0
        waiting = door.get(f"{queue.name}.deferred.40000")
        assert waiting is not None
        assert waiting.properties.expiration is None

    def test_a_hold_queue_lives_longer_by_the_margin_that_is_asked_for(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(hold_lease_margin=20))
        backend.declare([queue])
        backend.defer(new_job(), 40)
        arguments = deferred_queue_args(queue, 40_000, lease_margin_ms=20_000)
        assert arguments["x-expires"] == 100_000
        door.declare(f"{queue.name}.deferred.40000", arguments=arguments)

    @each_way_to_put_off
    def test_a_job_put_off_waits_in_the_hold_queue_of_its_delay_without_an_expiration(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        backend.publish(new_job())
        with backend.consume(queue) as deliveries:
            put_off(take_one(deliveries), timedelta(seconds=40))
        waiting = door.get(f"{queue.name}.deferred.40000")
        assert waiting is not None
        assert waiting.properties.expiration is None

    def test_a_retry_and_a_deferral_share_the_hold_queue_of_their_delay(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for name in ("retried", "deferred"):
            backend.publish(new_job(name))
        with backend.consume(queue) as deliveries:
            retried, deferred = take(deliveries, 2)
            PUT_OFF["retry"](retried, 40)
            PUT_OFF["defer"](deferred, 40)
        assert door.depth(f"{queue.name}.deferred.40000") == 2

    def test_a_job_comes_back_from_its_hold_queue_because_it_expired_there(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.defer(new_job("back"), 0.2)
        clock.advance(0.5)
        message = back_from(door, queue)
        assert last_waited_in(message) == (f"{queue.name}.deferred.200", "expired")

    @pytest.mark.parametrize(
        ("delay", "retry_ms", "deferral_ms"),
        [
            (0.1, 100, 30_000),
            (30, 30_000, 30_000),
            (30.0001, 30_100, 60_000),
            (29.95, 30_000, 30_000),
            (0, 100, 30_000),
        ],
    )  # fmt: skip -- one row is one example
    def test_retries_and_deferrals_round_up_each_to_its_own_granularity(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
        delay: float,
        retry_ms: int,
        deferral_ms: int,
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_granularity=0.1, deferred_granularity=30))
        backend.declare([queue])
        backend.publish(new_job("retried"))
        with backend.consume(queue) as deliveries:
            PUT_OFF["retry"](take_one(deliveries), delay)
        assert door.depth(f"{queue.name}.deferred.{retry_ms}") is not None
        backend.publish(new_job("deferred"))
        with backend.consume(QueueConfig(queue.name, prefetch=1)) as deliveries:
            PUT_OFF["defer"](take_one(deliveries), delay)
        assert door.depth(f"{queue.name}.deferred.{deferral_ms}") is not None

    @each_way_to_hold
    @pytest.mark.parametrize("delay", [0, -1, 0.001, 40], ids=str)
    def test_every_delay_however_small_waits_a_whole_step(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        queue: QueueConfig,
        new_job: MakeJob,
        hold: Hold,
        delay: float,
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_granularity=40, deferred_granularity=40))
        backend.declare([queue])
        hold(backend, new_job(), delay)
        assert [door.depth(queue.name), door.depth(f"{queue.name}.deferred.40000")] == [0, 1]

    def test_a_delayed_publish_rounds_up_like_a_retry(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_granularity=7, deferred_granularity=30))
        backend.declare([queue])
        backend.publish(new_job(), delay=8)
        backend.defer(new_job(), 8)
        assert [door.depth(f"{queue.name}.deferred.{ms}") for ms in (14_000, 30_000)] == [1, 1]

    @each_way_to_hold
    def test_holding_for_an_undeclared_queue_creates_nothing(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        backend: Backend,
        queue: QueueConfig,
        new_job: MakeJob,
        hold: Hold,
    ) -> None:  # fmt: skip -- fixtures
        with pytest.raises(UnknownQueueError):
            hold(backend_factory(), new_job(), 40)
        assert door.depth(f"{queue.name}.deferred.40000") is None

    @each_way_to_put_off
    def test_putting_off_for_an_undeclared_queue_creates_nothing(
        self,
        door: BrokerDoor,
        backend_factory: MakeRabbitMqBackend,
        backend: Backend,
        queue: QueueConfig,
        new_job: MakeJob,
        put_off: PutOff,
    ) -> None:  # fmt: skip -- fixtures
        backend.publish(new_job("kept"))
        with backend_factory().consume(queue) as deliveries, pytest.raises(UnknownQueueError):
            put_off(take_one(deliveries), 40)
        assert door.comes_to(queue.name, 1)
        assert door.depth(f"{queue.name}.deferred.40000") is None

    @each_way_to_hold
    def test_a_delay_over_the_cap_creates_nothing(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        # Just under the cap, but not in whole steps of 100 ms: rounding up makes it too long.
        with pytest.raises(DelayTooLongError):
            hold(backend, new_job(), timedelta(milliseconds=MAX_DEFERRAL_MS))
        steps_ms = (MAX_DEFERRAL_MS // 100 * 100, MAX_DEFERRAL_MS, (MAX_DEFERRAL_MS // 100 + 1) * 100)
        assert [door.depth(f"{queue.name}.deferred.{ms}") for ms in steps_ms] == [None] * 3

    def test_a_hold_queue_is_gone_when_it_was_idle_for_twice_its_delay(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        with backend.consume(queue) as deliveries:
            backend.defer(new_job("short"), 0.1)
            backend.defer(new_job("long"), 40)
            assert take_one(deliveries).envelope.payload == "short"
        clock.advance(0.4)
        hold_queues = [f"{queue.name}.deferred.{ms}" for ms in (100, 40_000)]
        assert [door.depth(name) for name in hold_queues] == [None, 1]

    def test_each_deferral_renews_the_lease_of_its_hold_queue(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        # Each is published when more than half of the last one's lease is over: on a lease that were not renewed
        # right before the publish, the queue would go while the job is in it, and take it along.
        with backend.consume(queue) as deliveries:
            for number in range(4):
                backend.defer(new_job(number), 0.3)
                clock.advance(0.4)
            assert work_off(deliveries, 4) == [0, 1, 2, 3]

    def test_a_hold_queue_that_is_gone_is_made_again(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.defer(new_job("goes with its queue"), 0.2)
        door.delete(f"{queue.name}.deferred.200")
        backend.defer(new_job("held"), 0.2)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["held"]

    @each_way_to_hold
    def test_a_foreign_hold_queue_makes_exactly_that_publish_fail_and_says_what_differs(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        foreign = f"{queue.name}.deferred.200"
        door.declare(foreign, arguments=FOREIGN)
        with pytest.raises(DeclareRefusedError, match="PRECONDITION_FAILED") as raised:
            hold(backend, new_job("refused"), 0.2)
        assert f"hold queue '{foreign}'" in str(raised.value)
        assert "x-message-ttl" in raised.value.text or "x-expires" in raised.value.text
        assert door.depth(foreign) == 0
        hold(backend, new_job("held"), 0.1)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["held"]

    @each_way_to_put_off
    def test_a_foreign_hold_queue_leaves_the_delivery_unsettled_and_another_outcome_open(
        self, door: BrokerDoor, backend: Backend, queue_name: str, new_job: MakeJob, put_off: PutOff
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        door.declare(f"{queue_name}.deferred.200", arguments=FOREIGN)
        backend.publish(new_job("first"))
        backend.publish(new_job("second"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with pytest.raises(DeclareRefusedError):
                put_off(delivery, 0.2)
            assert deliveries.get(timeout=0.2) is None, "the delivery was settled: it made room for another"
            put_off(delivery, 0.1)
            assert payloads([take_one(deliveries)]) == ["second"]

    @each_way_to_put_off
    def test_a_job_that_could_not_be_put_off_goes_back_when_its_consumer_closes(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        door.declare(f"{queue.name}.deferred.200", arguments=FOREIGN)
        backend.publish(new_job("kept"))
        with backend.consume(queue) as deliveries:
            first = take_one(deliveries)
            with pytest.raises(DeclareRefusedError):
                put_off(first, 0.2)
        with backend.consume(queue) as deliveries:
            again = take_one(deliveries)
        assert again.envelope == first.envelope
        assert again.redelivered

    def test_a_foreign_hold_queue_touches_nothing_else_in_flight(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        door.declare(f"{queue.name}.deferred.200", arguments=FOREIGN)
        futures = []
        for number in range(30):
            futures.append(backend.publish_nowait(new_job(f"now {number}")))
            futures.append(backend.publish_nowait(new_job(f"held {number}"), delay=0.1))
            futures.append(backend.publish_nowait(new_job(f"refused {number}"), delay=0.2))
        failures = [future.exception(PATIENCE) for future in futures]
        assert [type(failure) for failure in failures] == [type(None), type(None), DeclareRefusedError] * 30
        with backend.consume(queue) as deliveries:
            arrived = work_off(deliveries, 60)
        assert sorted(arrived) == sorted(f"{kind} {number}" for kind in ("now", "held") for number in range(30))

    @pytest.mark.parametrize("way", sorted(HOLD))
    def test_many_jobs_held_at_once_come_back_once_each(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, way: str
    ) -> None:
        for number in range(20):
            HOLD[way](backend, new_job(number), 0.1 * (1 + number % 3))
        with backend.consume(queue) as deliveries:
            assert sorted(work_off(deliveries, 20)) == list(range(20))
            backend.publish(new_job("last"))
            assert work_off(deliveries, 1) == ["last"]
