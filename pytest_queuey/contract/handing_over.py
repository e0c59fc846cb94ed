"""Owns the contract's chapter on what workers and producers need: taking what is ready, stopping, many at once."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    ContractClock,
    MakeBackend,
    MakeJob,
    Surroundings,
    payloads,
    take,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend, Deliveries
from queuey_rabbitmq.core.errors import AlreadySettledError, BackendError, ShutDownError
from queuey_rabbitmq.core.queue_config import QueueConfig


def take_the_rest(deliveries: Deliveries) -> list[object]:
    """Take and ack what a consumer that was stopped still has; return the payloads."""
    rest: list[object] = []
    try:
        while (delivery := deliveries.get(timeout=PATIENCE)) is not None:
            rest.append(delivery.envelope.payload)
            delivery.ack()
    except ShutDownError:
        return rest
    raise AssertionError(f"a consumer that was stopped neither delivered nor ended within {PATIENCE:g} s")


class HandingOver(Surroundings):
    """A worker can empty a queue without guessing how long to wait, and stop without losing what it holds."""

    @pytest.mark.parametrize("prefetch", [1, 4, 100])
    def test_get_ready_gives_all_that_is_ready_and_then_none(
        self, backend: Backend, queue_name: str, new_job: MakeJob, prefetch: int
    ) -> None:
        assert backend.publish_many([new_job(n) for n in range(30)]) == {}
        worked_off = []
        with backend.consume(QueueConfig(queue_name, prefetch=prefetch)) as deliveries:
            while (delivery := deliveries.get_ready()) is not None:
                worked_off.append(delivery.envelope.payload)
                delivery.ack()
        assert worked_off == list(range(30))

    def test_get_ready_gives_none_where_every_slot_of_the_prefetch_is_taken(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        backend.publish_many([new_job(n) for n in range(3)])
        with backend.consume(QueueConfig(queue_name, prefetch=2)) as deliveries:
            taken = [deliveries.get_ready(), deliveries.get_ready(), deliveries.get_ready()]
            assert [delivery is None for delivery in taken] == [False, False, True]

    def test_get_ready_looks_into_every_queue(
        self, backend: Backend, queue: QueueConfig, queue_name: str, new_job: MakeJob
    ) -> None:
        other = QueueConfig(f"{queue_name}.other")
        backend.declare([other])
        backend.publish(new_job("other", queue=other.name))
        with backend.consume(queue, other) as deliveries:
            delivery = deliveries.get_ready()
            assert delivery is not None
            assert (delivery.queue, delivery.envelope.payload) == (other.name, "other")
            delivery.ack()
            assert deliveries.get_ready() is None

    def test_a_stopped_consumer_still_gives_what_it_was_handed_and_then_ends(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=4)
        backend.publish_many([new_job(n) for n in range(10)])
        with backend.consume(queue) as deliveries:
            first = take_one(deliveries)
            deliveries.stop()
            rest = take_the_rest(deliveries)
            first.ack()
            with pytest.raises(ShutDownError):
                deliveries.get(timeout=0)
        # How many the broker had sent by then is its own affair; but none is lost, and none comes twice.
        done = [first.envelope.payload, *rest]
        assert done == list(range(len(done)))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 10 - len(done)) == list(range(len(done), 10))

    def test_a_stopped_consumer_of_several_queues_ends_when_the_last_has_nothing_left(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        queues = [QueueConfig(f"{queue_name}.{n}", prefetch=2) for n in range(3)]
        backend.declare(queues)
        backend.publish_many([new_job(n, queue=queue.name) for queue in queues for n in range(2)])
        with backend.consume(*queues) as deliveries:
            held = take(deliveries, 6)
            held[0].give_back()
            deliveries.stop()
            rest = take_the_rest(deliveries)
            for delivery in held[1:]:
                delivery.ack()
        assert len(rest) <= 1  # what was given back may have come again before the broker knew

    def test_a_job_that_is_given_back_after_a_while_stays_out_for_it(
        self, backend: Backend, queue_name: str, new_job: MakeJob, clock: ContractClock
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        backend.publish_many([new_job("early"), new_job("next")])
        with backend.consume(queue) as deliveries:
            early = take_one(deliveries)
            given_back_at_ms = clock.now_ms()
            early.give_back(after=0.2)
            with pytest.raises(AlreadySettledError):
                early.ack()
            assert deliveries.get_ready() is None
            again = take_one(deliveries)
            assert clock.now_ms() - given_back_at_ms >= 190  # 200 by a clock that need not be this one
            assert (again.envelope.payload, again.redelivered) == ("early", True)
            again.ack()
            assert work_off(deliveries, 1) == ["next"]

    def test_a_job_that_is_to_be_given_back_goes_back_when_its_consumer_closes_before(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("early"))
        with backend.consume(queue) as deliveries:
            take_one(deliveries).give_back(after=3600)
        with backend.consume(queue) as deliveries:
            assert payloads([take_one(deliveries)]) == ["early"]

    def test_many_jobs_are_published_in_order_and_the_errors_come_by_their_places(
        self, backend_factory: MakeBackend, backend: Backend, queue: QueueConfig, queue_name: str, new_job: MakeJob
    ) -> None:
        nowhere = f"{queue_name}.nowhere"
        errors = backend.publish_many(
            [new_job(0), new_job(1, queue=nowhere), new_job(2), new_job(3, queue=nowhere), new_job(4)]
        )
        assert sorted(errors) == [1, 3]
        assert all(isinstance(error, BackendError) and nowhere in str(error) for error in errors.values())
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 3) == [0, 2, 4]

    @needs("holds")
    def test_defer_nowait_holds_a_job_as_defer_does(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, clock: ContractClock
    ) -> None:
        with backend.consume(queue) as deliveries:
            start_ms = clock.now_ms()
            assert backend.defer_nowait(new_job("held", priority=3), 0.2).result(PATIENCE) is None
            delivery = take_one(deliveries)
            assert clock.now_ms() - start_ms >= 200
            assert (delivery.envelope.payload, delivery.envelope.priority) == ("held", 3)
            delivery.ack()
