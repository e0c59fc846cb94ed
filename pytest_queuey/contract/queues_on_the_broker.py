"""Owns the contract's chapter on the queues that a backend makes on RabbitMQ: their names, arguments and flags.

The broker is the judge: it takes a second declaration only where it equals the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_queuey.broker_under_test import NotOnThisBrokerError
from pytest_queuey.contract.broker_door import BrokerDoor, DoorRefusedError
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import MakeJob
from queuey_rabbitmq import topology
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest

ArgumentsOf = Callable[[str], dict[str, Any]]


class QueuesOnTheBroker(RabbitMqSurroundings):
    """Queues are exactly as `topology` says, of the classic type, and durable together."""

    @pytest.fixture
    def arguments_of(self, queuey_broker: BrokerUnderTest) -> ArgumentsOf:
        """Look at a queue's arguments as the broker keeps them; skip where the broker cannot be looked into."""

        def look(name: str) -> dict[str, Any]:
            try:
                queue = queuey_broker.queue(name)
                assert queue is not None, f"there is no queue '{name}'"
                return dict(queue.arguments)
            except NotOnThisBrokerError as error:
                pytest.skip(str(error))

        return look

    @pytest.fixture
    def transient(self, door: BrokerDoor, queue_name: str) -> QueueConfig:
        """Return the test's queue, not durable; skip where the broker takes no such queues, as 4.3 does not."""
        try:
            door.declare(f"{queue_name}.transient", durable=False)
        except DoorRefusedError as error:
            pytest.skip(f"this broker takes no transient queues: {error}")
        return QueueConfig(queue_name, durable=False)

    @pytest.mark.parametrize(
        "queue_settings",
        [{}, {"max_priority": 0}, {"max_priority": 255}, {"message_ttl": 60}, {"message_ttl": 0.0001}],
        ids=str,
    )
    def test_a_queue_and_its_dead_queue_are_declared_as_topology_says(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue_name: str, queue_settings: dict[str, Any]
    ) -> None:
        queue = QueueConfig(queue_name, **queue_settings)
        backend_factory().declare([queue])
        assert door.depth(queue_name) == door.depth(f"{queue_name}.dead") == 0
        door.declare(queue_name, arguments=topology.queue_args(queue))
        door.declare(f"{queue_name}.dead", arguments=topology.dead_queue_args(queue))

    def test_a_hold_queue_is_declared_as_topology_says(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.defer(new_job(), 40)
        name = topology.deferred_queue_name(queue.name, topology.DEFAULT_DEFERRED_SUFFIX, 40_000)
        assert name == f"{queue.name}.deferred.40000"
        assert door.depth(name) == 1
        door.declare(name, arguments=topology.deferred_queue_args(queue, 40_000))

    def test_a_broker_that_has_a_queue_already_takes_the_declaration_of_an_older_worker_for_the_same(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        door.declare(queue.name, arguments={"x-max-priority": 10})
        door.declare(f"{queue.name}.dead")
        door.declare(
            f"{queue.name}.deferred.40000",
            arguments={
                "x-message-ttl": 40_000,
                "x-expires": 80_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": queue.name,
            },
        )
        backend = backend_factory()
        backend.declare([queue])
        backend.defer(new_job(), 40)
        assert door.depth(f"{queue.name}.deferred.40000") == 1

    def test_every_queue_asks_for_the_classic_type(
        self, arguments_of: ArgumentsOf, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_suffix=".retry"))
        backend.declare([queue])
        backend.defer(new_job(), 40)
        names = [queue.name, *(f"{queue.name}{suffix}" for suffix in (".dead", ".retry", ".deferred.40000"))]
        assert [arguments_of(name)["x-queue-type"] for name in names] == ["classic"] * 4

    def test_a_durable_queue_has_durable_companions(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_suffix=".retry"))
        backend.declare([queue])
        backend.defer(new_job(), 40)
        for suffix in ("", ".dead", ".retry", ".deferred.40000"):
            with pytest.raises(DoorRefusedError, match="inequivalent arg 'durable'"):
                door.declare(f"{queue.name}{suffix}", durable=False)

    def test_the_companions_of_a_transient_queue_are_transient_but_for_the_dead_queue(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, transient: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(retry_suffix=".retry"))
        backend.declare([transient])
        backend.defer(new_job(), 40)
        for suffix in ("", ".retry", ".deferred.40000"):
            with pytest.raises(DoorRefusedError, match="inequivalent arg 'durable'"):
                door.declare(f"{transient.name}{suffix}", durable=True)
        door.declare(f"{transient.name}.dead", durable=True)

    def test_queues_outlive_the_backend_that_declared_them(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.defer(new_job(), 40)
        with backend.consume(queue) as deliveries:
            assert deliveries.get(timeout=0) is None
        backend.close()
        assert [door.depth(f"{queue.name}{suffix}") for suffix in ("", ".dead", ".deferred.40000")] == [0, 0, 1]

    def test_suffixes_are_as_the_options_say(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend = backend_factory(QUICK.replace(dead_suffix="-failed", deferred_suffix="-later"))
        backend.declare([queue])
        backend.defer(new_job(), 40)
        names = [f"{queue.name}{suffix}" for suffix in ("-failed", "-later.40000", ".dead", ".deferred.40000")]
        assert [door.depth(name) for name in names] == [0, 1, None, None]

    def test_without_dead_letter_queues_none_is_declared(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig
    ) -> None:
        backend_factory(QUICK.replace(declare_dead_letter_queues=False)).declare([queue])
        assert [door.depth(queue.name), door.depth(f"{queue.name}.dead")] == [0, None]
