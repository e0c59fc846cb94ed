"""Owns the contract's chapter on brokers that say nothing, or that they are too busy: every call ends in time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_queuey.contract.surroundings import (
    ContractClock,
    MakeJob,
    take_one,
    work_off,
)
from pytest_queuey.contract.with_faults import (
    HURRIED,
    OUTCOMES_THAT_PUBLISH,
    Settle,
    WithFaults,
    ending_in_time,
    error_of,
    ready,
)
from queuey_rabbitmq.core.errors import (
    ConnectError,
    DeadlineExceededError,
    QueueyError,
)
from queuey_rabbitmq.core.queue_config import QueueConfig

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from queuey_rabbitmq.backend import RabbitMqBackend


class SilentBrokers(WithFaults):
    """Nothing waits longer than its deadline for a broker that says nothing, or says that it is too busy."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda backend, job, _: backend.publish(job),
            lambda backend, job, _: backend.publish(job, delay=0.1),
            lambda backend, job, _: backend.defer(job, 0.1),
            lambda backend, _, queue: backend.declare([queue]),
            lambda backend, _, queue: backend.consume(queue),
        ],
        ids=["publish", "delayed publish", "defer", "declare", "consume"],
    )
    def test_a_call_ends_at_its_deadline(
        self,
        faults: Faults,
        hurried: RabbitMqBackend,
        clock: ContractClock,
        queue: QueueConfig,
        new_job: MakeJob,
        call: Callable[[RabbitMqBackend, Any, QueueConfig], None],
    ) -> None:
        hurried.publish(new_job("before"))
        with faults.hang(), ending_in_time(clock), pytest.raises(DeadlineExceededError):
            call(hurried, new_job(), queue)
        hurried.publish(new_job("after"))

    @OUTCOMES_THAT_PUBLISH
    def test_an_outcome_ends_at_its_deadline_and_another_may_be_chosen(
        self,
        faults: Faults,
        hurried: RabbitMqBackend,
        clock: ContractClock,
        queue: QueueConfig,
        new_job: MakeJob,
        settle: Settle,
    ) -> None:
        hurried.publish(new_job())
        with hurried.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with faults.hang(), ending_in_time(clock), pytest.raises(DeadlineExceededError):
                settle(delivery)
            delivery.ack()

    def test_an_ack_waits_for_nobody(
        self, faults: Faults, hurried: RabbitMqBackend, clock: ContractClock, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        hurried.publish(new_job())
        with hurried.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with faults.hang(), ending_in_time(clock):
                delivery.ack()
            assert deliveries.get(timeout=0.2) is None

    @pytest.mark.parametrize("what", ["consumer", "backend"])
    def test_closing_ends_at_its_deadline(
        self, faults: Faults, hurried: RabbitMqBackend, clock: ContractClock, queue: QueueConfig, what: str
    ) -> None:
        deliveries = hurried.consume(queue)
        with faults.hang(), ending_in_time(clock), suppress(DeadlineExceededError):
            deliveries.close() if what == "consumer" else hurried.close()

    def test_connecting_ends_at_its_deadline_and_says_how_far_it_came(
        self, faults: Faults, clock: ContractClock, backend_factory: Callable[..., Any]
    ) -> None:
        with faults.hang(), ending_in_time(clock), pytest.raises(ConnectError, match="waiting for an AMQP answer"):
            backend_factory(HURRIED)

    def test_a_slow_network_slows_calls_and_breaks_none(
        self, faults: Faults, resilient: RabbitMqBackend, clock: ContractClock, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        faults.delay(0.1)
        started_ms = clock.now_ms()
        resilient.publish(new_job("slow"))
        assert clock.now_ms() - started_ms >= 200
        with resilient.consume(queue) as deliveries:
            take_one(deliveries).retry(new_job("slow again"), 0.1)
            assert work_off(deliveries, 1) == ["slow again"]

    def test_a_blocked_broker_slows_producers_and_its_words_are_in_their_errors(
        self,
        faults: Faults,
        connect: Callable[..., RabbitMqBackend],
        clock: ContractClock,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        backend = connect(HURRIED.replace(max_in_flight=3))
        faults.block("low on memory")
        in_flight = [backend.publish_nowait(new_job(number)) for number in range(3)]
        with ending_in_time(clock), pytest.raises(DeadlineExceededError, match="low on memory"):
            backend.publish(new_job("one too many"))
        assert all(isinstance(error_of(future, clock), DeadlineExceededError) for future in in_flight)
        assert ready(queuey_broker, queue) == 0
        faults.unblock()
        for number in range(6):
            backend.publish(new_job(number))

    def test_acks_reach_a_broker_that_blocks_publishers(
        self,
        faults: Faults,
        hurried: RabbitMqBackend,
        clock: ContractClock,
        queuey_broker: BrokerUnderTest,
        queue: QueueConfig,
        new_job: MakeJob,
    ) -> None:
        for number in range(3):
            hurried.publish(new_job(number))
        faults.block()
        with pytest.raises(DeadlineExceededError):
            hurried.publish(new_job("not now"))
        with hurried.consume(queue) as deliveries:
            assert work_off(deliveries, 3) == [0, 1, 2]
        assert ready(queuey_broker, queue) == 0

    def test_closing_a_blocked_backend_ends_in_time(
        self, faults: Faults, hurried: RabbitMqBackend, clock: ContractClock, new_job: MakeJob
    ) -> None:
        faults.block()
        waiting = hurried.publish_nowait(new_job())
        with ending_in_time(clock):
            hurried.close()
        assert isinstance(error_of(waiting, clock), QueueyError)
