"""Owns the contract's chapter on priorities, and on where deferred jobs come back: ahead of the backlog."""

from __future__ import annotations

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import (
    ContractClock,
    MakeBackend,
    MakeJob,
    Surroundings,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig


@needs("priorities")
class Priorities(Surroundings):
    """Urgent jobs go first, equal ones in order, and what a consumer holds already is not taken back."""

    def test_urgent_jobs_go_first_and_equal_ones_in_order(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for name, priority in [("low 1", 0), ("high 1", 5), ("low 2", 0), ("top", 10), ("high 2", 5)]:
            backend.publish(new_job(name, priority=priority))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 5) == ["top", "high 1", "high 2", "low 1", "low 2"]

    def test_a_priority_above_the_highest_counts_as_the_highest(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, max_priority=3)
        backend.declare([queue])
        backend.publish(new_job("at the top", priority=3))
        backend.publish(new_job("far above", priority=255))
        with backend.consume(queue) as deliveries:
            first, second = take_one(deliveries).envelope, take_one(deliveries).envelope
        assert (first.payload, second.payload) == ("at the top", "far above")
        assert second.priority == 255

    @needs("holds")
    def test_a_deferred_job_is_consumed_before_the_backlog_which_follows_in_order(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.publish(new_job("deferred"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.defer(delivery.envelope.deferred(queue.top_priority), 0.1)
        for number in range(4):
            backend.publish(new_job(f"backlog {number}"))
        clock.advance(0.4)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 5) == ["deferred", "backlog 0", "backlog 1", "backlog 2", "backlog 3"]

    @needs("holds")
    def test_a_deferred_job_comes_right_after_what_its_consumer_holds_already(
        self, backend: Backend, queue_name: str, new_job: MakeJob, clock: ContractClock
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        backend.publish(new_job("deferred"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            for number in range(3):
                backend.publish(new_job(f"backlog {number}"))
            delivery.defer(delivery.envelope.deferred(queue.top_priority), 0.1)
            held = take_one(deliveries)
            assert held.envelope.payload == "backlog 0"
            clock.advance(0.4)
            held.ack()
            assert work_off(deliveries, 3) == ["deferred", "backlog 1", "backlog 2"]

    @needs("holds")
    def test_a_retried_job_comes_behind_the_backlog(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend.publish(new_job("failed", priority=10))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.retry(delivery.envelope.next_attempt(), 0.1)
        backend.publish(new_job("backlog"))
        clock.advance(0.4)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 2) == ["backlog", "failed"]

    @needs("holds")
    def test_a_retry_and_a_deferral_that_wait_together_come_back_each_at_its_own_priority(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        for name in ("retried", "deferred"):
            backend.publish(new_job(name))
        with backend.consume(queue) as deliveries:
            first, second = take_one(deliveries), take_one(deliveries)
            first.retry(first.envelope.next_attempt(), 0.2)
            second.defer(second.envelope.deferred(queue.top_priority), 0.2)
        clock.advance(0.5)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 2) == ["deferred", "retried"]

    @needs("holds")
    def test_without_priorities_a_deferred_job_comes_back_in_its_turn(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, max_priority=0)
        backend.declare([queue])
        backend.publish(new_job("deferred"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            delivery.defer(delivery.envelope.deferred(queue.top_priority), 0.1)
        backend.publish(new_job("backlog"))
        clock.advance(0.4)
        backend.publish(new_job("latest", priority=9))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 3) == ["backlog", "deferred", "latest"]
