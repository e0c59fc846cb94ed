"""Owns the contract's chapter on lost connections, as far as any backend that has some can keep it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import MakeJob, Surroundings, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import BackendError
from queuey_rabbitmq.core.queue_config import QueueConfig

Drop = Callable[[], None]


@needs("reconnection")
class Reconnecting(Surroundings):
    """A lost connection is a pause: the backend comes back by itself, and what was out is delivered again."""

    def test_a_publish_after_a_lost_connection_arrives(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, drop_connections: Drop
    ) -> None:
        backend.publish(new_job("before"))
        drop_connections()
        backend.publish(new_job("after"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 2) == ["before", "after"]

    def test_a_consumer_goes_on_after_a_lost_connection(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, drop_connections: Drop
    ) -> None:
        with backend.consume(queue) as deliveries:
            backend.publish(new_job("before"))
            assert work_off(deliveries, 1) == ["before"]
            drop_connections()
            backend.publish(new_job("after"))
            # The ack may have been on its way when the connection went: then the job comes twice.
            seen = []
            while "after" not in seen:
                seen += work_off(deliveries, 1)

    def test_what_was_unsettled_comes_again_and_its_old_delivery_settles_nothing(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, drop_connections: Drop
    ) -> None:
        backend.publish(new_job("twice"))
        with backend.consume(queue) as deliveries:
            stale = take_one(deliveries)
            drop_connections()
            again = take_one(deliveries)
            assert again.envelope == stale.envelope
            assert again.redelivered
            with pytest.raises(BackendError):
                stale.ack()
            again.give_back()
            take_one(deliveries).ack()

    @needs("holds")
    def test_a_held_job_outlives_a_lost_connection(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, drop_connections: Drop
    ) -> None:
        backend.defer(new_job("held"), 0.2)
        drop_connections()
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["held"]
