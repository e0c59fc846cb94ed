"""Owns the contract's chapter on what RabbitMQ or AMQP cannot have: clear errors, nothing half done or poisoned."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor, DoorRefusedError
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import PATIENCE, MakeJob, in_thread, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import (
    ChannelClosedError,
    DeclareRefusedError,
    QueueNameTooLongError,
    UnroutableError,
)
from queuey_rabbitmq.core.queue_config import QueueConfig

LONGEST_HOLD_SUFFIX = ".deferred.2147483647"
MAX_NAME_BYTES = 255
IN_FLIGHT = 500


class Refusals(RabbitMqSurroundings):
    """A declaration that is refused says what differs, and hurts nothing but itself."""

    def test_redeclaring_with_another_max_priority_names_the_argument_and_what_is_there(
        self, backend: Backend, backend_factory: MakeRabbitMqBackend, queue: QueueConfig
    ) -> None:
        with pytest.raises(DeclareRefusedError, match="PRECONDITION_FAILED") as raised:
            backend_factory().declare([QueueConfig(queue.name, max_priority=5)])
        assert f"inequivalent arg 'x-max-priority' for queue '{queue.name}'" in raised.value.text
        assert "received '5' but current is '10'" in raised.value.text
        assert raised.value.code == 406
        assert f"declaring queue '{queue.name}'" in str(raised.value)

    def test_after_a_refused_declaration_both_backends_work_on(
        self, backend: Backend, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        other = backend_factory()
        with backend.consume(queue) as deliveries, other.consume(queue) as other_deliveries:
            with pytest.raises(DeclareRefusedError):
                other.declare([QueueConfig(queue.name, max_priority=5)])
            other.declare([queue])
            backend.publish(new_job("one"))
            other.publish(new_job("two"), delay=0.1)
            arrived = {take_one(each).envelope.payload for each in (deliveries, other_deliveries)}
        assert arrived == {"one", "two"}

    def test_consuming_a_queue_that_is_not_there_says_to_declare_it(self, backend: Backend, queue_name: str) -> None:
        missing = f"{queue_name}.missing"
        with pytest.raises(ChannelClosedError, match=rf"'{missing}'.*NOT_FOUND.*\. Declare it first") as raised:
            backend.consume(QueueConfig(missing))
        assert raised.value.code == 404

    def test_a_queue_from_before_priorities_is_refused_as_it_is_and_taken_without_priorities(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        door.declare(queue.name)
        backend = backend_factory()
        with pytest.raises(DeclareRefusedError, match="x-max-priority"):
            backend.declare([queue])
        backend.declare([QueueConfig(queue.name, max_priority=0)])
        backend.publish(new_job("served"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["served"]

    def test_of_several_queues_those_before_the_refused_one_are_declared_and_usable(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        before, refused, after = (QueueConfig(f"{queue_name}.{name}") for name in ("before", "refused", "after"))
        door.declare(refused.name)
        backend = backend_factory()
        with pytest.raises(DeclareRefusedError, match=f"declaring queue '{refused.name}'"):
            backend.declare([before, refused, after])
        assert door.depth(after.name) is None
        backend.publish(new_job("held", queue=before.name), delay=0.1)
        with backend.consume(before) as deliveries:
            assert take_one(deliveries).envelope.payload == "held"

    def test_a_dead_queue_that_is_somebody_elses_is_named_in_the_refusal(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue: QueueConfig
    ) -> None:
        door.declare(f"{queue.name}.dead", arguments={"x-message-ttl": 60_000})
        with pytest.raises(DeclareRefusedError, match=f"declaring queue '{queue.name}.dead'") as raised:
            backend_factory().declare([queue])
        assert "x-message-ttl" in raised.value.text

    @pytest.mark.parametrize("letter", ["x", "é"])
    def test_a_name_is_refused_when_its_longest_hold_queue_would_not_fit_before_anything_exists(
        self, door: BrokerDoor, backend_factory: MakeRabbitMqBackend, queue_name: str, letter: str
    ) -> None:
        longest = MAX_NAME_BYTES - len(LONGEST_HOLD_SUFFIX)
        letters = (longest - len(queue_name)) // len(letter.encode())
        too_long = QueueConfig(queue_name + letter * letters + "xx")
        innocent = QueueConfig(f"{queue_name}.innocent")
        with pytest.raises(QueueNameTooLongError, match="255") as raised:
            backend_factory().declare([innocent, too_long])
        assert too_long.name in str(raised.value)
        for name in (innocent.name, f"{innocent.name}.dead", too_long.name, f"{too_long.name}.dead"):
            # Published to, for a passive declare of such a name is 541 INTERNAL_ERROR: the reply text is cut in the
            # middle of a letter (seen on 4.0.5).
            with pytest.raises(DoorRefusedError, match="unroutable"):
                door.publish(name, b"")

    def test_the_longest_name_that_fits_can_be_held_for(
        self, backend_factory: MakeRabbitMqBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        queue = QueueConfig(queue_name.ljust(MAX_NAME_BYTES - len(LONGEST_HOLD_SUFFIX), "x"))
        backend = backend_factory()
        backend.declare([queue])
        backend.defer(new_job("for weeks", queue=queue.name), 24 * 24 * 3600)
        backend.defer(new_job("for a moment", queue=queue.name), 0.1)
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["for a moment"]

    def test_a_long_suffix_counts_too(self, backend_factory: MakeRabbitMqBackend, queue_name: str) -> None:
        backend = backend_factory(QUICK.replace(dead_suffix="." + "d" * 240))
        with pytest.raises(QueueNameTooLongError, match=r"d{240}"):
            backend.declare([QueueConfig(queue_name.ljust(20, "x"))])

    def test_publishes_in_flight_fail_from_the_moment_on_that_their_queue_is_deleted(
        self, door: BrokerDoor, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        futures = [backend.publish_nowait(new_job(number)) for number in range(IN_FLIGHT)]
        deletion = in_thread(door.delete, queue.name)
        futures += [backend.publish_nowait(new_job(number)) for number in range(IN_FLIGHT)]
        deletion.result(PATIENCE)
        futures += [backend.publish_nowait(new_job(number)) for number in range(10)]
        failures = [type(future.exception(PATIENCE)) for future in futures]
        arrived = failures.index(UnroutableError)
        assert failures == [type(None)] * arrived + [UnroutableError] * (len(futures) - arrived)
