"""Owns the contract's chapter on quorum queues: what is declared, what priorities mean there, and that none is lost.

What differs between versions is read off `queuey_broker.version`, as the promise does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.rabbitmq_surroundings import MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import ContractClock, MakeJob, take_one, work_off
from queuey_rabbitmq import topology
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import DeclareRefusedError
from queuey_rabbitmq.core.queue_config import QueueConfig

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest

RETURNS: Final = 25
"""More than RabbitMQ's own delivery limit of 20."""
BACKLOG: Final = ["backlog 0", "backlog 1", "backlog 2"]
RETURNS_AT_THE_END: Final = ("3.",)
"""Versions whose quorum queues know no priorities."""


class QuorumQueues(RabbitMqSurroundings):
    """A work queue may be a quorum queue, with its dead queue; what is held waits in classic queues as ever."""

    @pytest.fixture
    def quorum(self, queue_name: str) -> QueueConfig:
        """Return a quorum queue of the test's."""
        return QueueConfig(queue_name, queue_type="quorum")

    @pytest.fixture
    def on_quorum(self, backend_factory: MakeRabbitMqBackend, quorum: QueueConfig) -> Backend:
        """Return a backend that has declared it."""
        backend = backend_factory()
        backend.declare([quorum])
        return backend

    def test_the_dead_queue_is_a_quorum_queue_too_and_no_delivery_limit_drops_a_job(
        self, door: BrokerDoor, on_quorum: Backend, quorum: QueueConfig
    ) -> None:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}
        door.declare(quorum.name, arguments=arguments)
        door.declare(f"{quorum.name}.dead", arguments=arguments)

    def test_hold_queues_are_classic(
        self, door: BrokerDoor, on_quorum: Backend, quorum: QueueConfig, new_job: MakeJob
    ) -> None:
        on_quorum.defer(new_job(), 40)
        arguments = {"x-queue-type": "classic"} | topology.deferred_queue_args(quorum, 40_000)
        door.declare(f"{quorum.name}.deferred.40000", arguments=arguments)

    def test_a_time_to_live_is_kept(
        self, backend_factory: MakeRabbitMqBackend, queue_name: str, door: BrokerDoor
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, queue_type="quorum", message_ttl=60)
        backend.declare([queue])
        door.declare(queue_name, arguments=topology.queue_args(queue))

    def test_a_job_is_delayed_retried_deferred_and_dead_lettered(
        self, on_quorum: Backend, quorum: QueueConfig, new_job: MakeJob, door: BrokerDoor
    ) -> None:
        on_quorum.publish(new_job("a job"), delay=0.1)
        with on_quorum.consume(quorum) as deliveries:
            first = take_one(deliveries)
            first.retry(first.envelope.next_attempt(), 0.1)
            second = take_one(deliveries)
            second.defer(second.envelope.deferred(quorum.top_priority), 0.1)
            third = take_one(deliveries)
            assert (third.envelope.attempt, third.envelope.deferrals) == (2, 1)
            third.dead_letter("for good")
        dead = door.get(f"{quorum.name}.dead")
        assert dead is not None
        assert dead.headers["x-death-reason"] == "for good"

    def test_a_job_that_comes_back_again_and_again_is_never_dropped(
        self, on_quorum: Backend, quorum: QueueConfig, new_job: MakeJob
    ) -> None:
        on_quorum.publish(new_job("a stayer"))
        with on_quorum.consume(quorum) as deliveries:
            for _ in range(RETURNS):
                take_one(deliveries).give_back()
            assert work_off(deliveries, 1) == ["a stayer"]

    def test_a_job_whose_consumer_closes_again_and_again_is_never_dropped(
        self, on_quorum: Backend, quorum: QueueConfig, new_job: MakeJob
    ) -> None:
        on_quorum.publish(new_job("a stayer"))
        for _ in range(RETURNS):
            with on_quorum.consume(quorum) as deliveries:
                take_one(deliveries)
        with on_quorum.consume(quorum) as deliveries:
            assert work_off(deliveries, 1) == ["a stayer"]

    def test_a_deferred_job_returns_where_its_rabbitmq_puts_high_priorities(
        self,
        queuey_broker: BrokerUnderTest,
        on_quorum: Backend,
        quorum: QueueConfig,
        new_job: MakeJob,
        clock: ContractClock,
    ) -> None:
        on_quorum.publish(new_job("deferred"))
        with on_quorum.consume(quorum) as deliveries:
            delivery = take_one(deliveries)
            delivery.defer(delivery.envelope.deferred(quorum.top_priority), 0.1)
        for name in BACKLOG:
            on_quorum.publish(new_job(name))
        clock.advance(0.4)
        at_the_end = queuey_broker.version.startswith(RETURNS_AT_THE_END)
        with on_quorum.consume(QueueConfig(quorum.name, prefetch=1)) as deliveries:
            served = work_off(deliveries, 4)
        assert served == ([*BACKLOG, "deferred"] if at_the_end else ["deferred", *BACKLOG])

    def test_a_classic_queue_is_not_taken_for_a_quorum_queue_and_the_error_says_what_differs(
        self, backend_factory: MakeRabbitMqBackend, quorum: QueueConfig
    ) -> None:
        backend = backend_factory()
        backend.declare([QueueConfig(quorum.name)])
        with pytest.raises(DeclareRefusedError, match="PRECONDITION_FAILED") as raised:
            backend.declare([quorum])
        assert raised.value.text.endswith("received 'quorum' but current is 'classic'")
        assert "'x-queue-type': 'quorum'" in str(raised.value)

    def test_a_quorum_queue_is_not_taken_for_a_classic_queue_and_the_error_says_what_differs(
        self, on_quorum: Backend, backend_factory: MakeRabbitMqBackend, quorum: QueueConfig
    ) -> None:
        with pytest.raises(DeclareRefusedError, match="PRECONDITION_FAILED") as raised:
            backend_factory().declare([QueueConfig(quorum.name)])
        assert raised.value.text.endswith("received 'classic' but current is 'quorum'")
        assert "'x-queue-type': 'classic'" in str(raised.value)
