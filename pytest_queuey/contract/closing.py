"""Owns the contract's chapter on endings: what closing a consumer or a backend does to jobs and to whoever waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    MakeBackend,
    MakeJob,
    Surroundings,
    in_thread,
    payloads,
    take,
    take_one,
)
from queuey_rabbitmq.core.backend import Backend, Deliveries
from queuey_rabbitmq.core.errors import BackendError, QueueyError, ShutDownError
from queuey_rabbitmq.core.queue_config import QueueConfig


def work_until_the_end(deliveries: Deliveries, worked_off: list[Any]) -> str:
    """Ack what comes until nothing follows; collect the payloads."""
    for delivery in deliveries:
        worked_off.append(delivery.envelope.payload)
        with suppress(BackendError, ShutDownError):  # where the end came between
            delivery.ack()
    return "it ended"


class Closing(Surroundings):
    """What was unsettled at the end goes back; whoever waits learns of it; nothing works on afterwards."""

    def test_closing_a_consumer_gives_back_what_it_held_in_order(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for number in range(4):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            first, *_ = take(deliveries, 3)
            first.ack()
        with backend.consume(queue) as deliveries:
            again = take(deliveries, 3)
        assert payloads(again) == [1, 2, 3]
        assert [delivery.redelivered for delivery in again[:2]] == [True, True]

    def test_closing_a_backend_gives_back_what_its_consumers_held(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("unfinished"))
        take_one(backend.consume(queue))
        backend.close()
        with backend_factory().consume(queue) as deliveries:
            again = take_one(deliveries)
        assert again.envelope.payload == "unfinished"
        assert again.redelivered

    def test_settling_after_the_consumer_closed_raises_and_the_job_comes_again(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("too late"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
        with pytest.raises(BackendError, match=queue.name):
            delivery.ack()
        with backend.consume(queue) as deliveries:
            again = take_one(deliveries)
            assert again.envelope == delivery.envelope
            again.ack()

    def test_settling_after_the_backend_closed_raises_and_the_job_comes_again(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("too late"))
        delivery = take_one(backend.consume(queue))
        backend.close()
        with pytest.raises((BackendError, ShutDownError), match=queue.name):
            delivery.ack()
        with backend_factory().consume(queue) as deliveries:
            take_one(deliveries).ack()

    @needs("holds")
    def test_putting_off_after_the_consumer_closed_raises_and_publishes_nothing(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("too late"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
        with pytest.raises(BackendError, match=queue.name):
            delivery.retry(delivery.envelope.next_attempt(), 0.1)
        with backend.consume(queue) as deliveries:
            take_one(deliveries).ack()
            assert deliveries.get(timeout=0.3) is None, "the retry that raised was published all the same"

    def test_a_closed_consumer_yields_nothing_more(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("left"))
        deliveries = backend.consume(queue)
        deliveries.close()
        assert list(deliveries) == []
        with pytest.raises(ShutDownError):
            deliveries.get(timeout=1)

    def test_closing_a_consumer_leaves_others_alone(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with backend.consume(queue) as survivor:
            backend.consume(queue).close()
            backend.publish(new_job("still served"))
            assert take_one(survivor).envelope.payload == "still served"

    @pytest.mark.parametrize(
        "close",
        [lambda _, deliveries: deliveries.close(), lambda backend, _: backend.close()],
        ids=["consumer", "backend"],
    )
    def test_closing_ends_the_iteration_of_a_thread_that_waits(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, close: Callable[[Backend, Deliveries], None]
    ) -> None:
        deliveries = backend.consume(queue)
        worked_off: list[Any] = []
        worker = in_thread(work_until_the_end, deliveries, worked_off)
        backend.publish(new_job("only"))
        close(backend, deliveries)
        assert worker.result(PATIENCE) == "it ended"
        assert worked_off in ([], ["only"])

    def test_closing_twice_is_fine(self, backend: Backend, queue: QueueConfig) -> None:
        deliveries = backend.consume(queue)
        deliveries.close()
        deliveries.close()
        backend.close()
        backend.close()
        deliveries.close()
        with pytest.raises(ShutDownError):
            deliveries.get(timeout=1)

    def test_a_closed_backend_does_nothing_more(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.close()
        for attempt in (
            lambda: backend.publish(new_job("too late")),
            lambda: backend.publish(new_job("too late"), delay=0.1),
            lambda: backend.defer(new_job("too late"), 0.1),
            lambda: backend.declare([queue]),
            lambda: backend.consume(queue),
        ):
            with pytest.raises(QueueyError):
                attempt()
        other = backend_factory()
        other.publish(new_job("in time"))
        with other.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "in time"

    def test_closing_waits_for_what_is_in_flight(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        futures = [backend.publish_nowait(new_job(number)) for number in range(100)]
        backend.close()
        assert [future.exception(PATIENCE) for future in futures] == [None] * 100
        with backend_factory().consume(QueueConfig(queue.name, prefetch=100)) as deliveries:
            assert payloads(take(deliveries, 100)) == list(range(100))
