"""Owns the contract's chapter on what travels beside a job: trace context above all."""

from __future__ import annotations

from typing import Final

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.delaying import Hold, PutOff, each_way_to_hold, each_way_to_put_off
from pytest_queuey.contract.surroundings import MakeJob, Surroundings, take_one
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig

HEADERS: Final = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "é 7"}


@needs("headers")
class CarryingHeaders(Surroundings):
    """What travels beside a job comes with it, however often it goes round."""

    def test_a_job_comes_with_the_headers_that_it_was_published_with(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("traced", headers=HEADERS))
        with backend.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.headers.items() >= HEADERS.items()

    @needs("holds")
    @each_way_to_hold
    def test_a_held_job_comes_with_its_headers(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, hold: Hold
    ) -> None:
        hold(backend, new_job("traced", headers=HEADERS), 0.1)
        with backend.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.headers.items() >= HEADERS.items()

    @needs("holds")
    @each_way_to_put_off
    def test_a_job_put_off_again_and_again_keeps_its_headers(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, put_off: PutOff
    ) -> None:
        backend.publish(new_job("traced", headers=HEADERS))
        with backend.consume(queue) as deliveries:
            for _ in range(3):
                put_off(take_one(deliveries), 0.1)
            assert take_one(deliveries).envelope.headers.items() >= HEADERS.items()
