"""Owns the contract's chapter on publishes that fail where jobs are kept: whoever published learns of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.delaying import Hold, each_way_to_hold
from pytest_queuey.contract.settling import NEEDED, OUTCOMES, Settle
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    MakeJob,
    Surroundings,
    TakeDeadLetters,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.errors import BackendError
from queuey_rabbitmq.core.queue_config import QueueConfig

Refusing = Callable[[], AbstractContextManager[object]]

each_outcome_that_publishes = pytest.mark.parametrize(
    "settle",
    [pytest.param(OUTCOMES[name], id=name, marks=pytest.mark.queuey_needs(*needed)) for name, needed in NEEDED.items()],
)


@needs("faults")
class FailedPublishes(Surroundings):
    """retry, defer and dead_letter publish first and ack second: at worst a job comes twice, it is never lost."""

    def test_a_publish_that_fails_raises_and_nothing_is_on_the_queue(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, refusing_publishes: Refusing
    ) -> None:
        with refusing_publishes():
            with pytest.raises(BackendError, match=queue.name):
                backend.publish(new_job("refused"))
            assert isinstance(backend.publish_nowait(new_job("refused")).exception(PATIENCE), BackendError)
            assert sorted(backend.publish_many([new_job("refused"), new_job("refused")])) == [0, 1]
        backend.publish(new_job("taken"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["taken"]
            assert deliveries.get_ready() is None

    @needs("holds")
    @each_way_to_hold
    def test_a_job_that_cannot_be_held_raises_and_is_not_held(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, refusing_publishes: Refusing, hold: Hold
    ) -> None:
        with refusing_publishes(), pytest.raises(BackendError):
            hold(backend, new_job("refused"), 0.1)
        with backend.consume(queue) as deliveries:
            assert deliveries.get(timeout=0.3) is None

    @each_outcome_that_publishes
    def test_an_outcome_whose_publish_fails_leaves_the_delivery_unsettled(
        self, backend: Backend, queue_name: str, new_job: MakeJob, refusing_publishes: Refusing, settle: Settle
    ) -> None:
        queue = QueueConfig(queue_name, prefetch=1)
        backend.publish(new_job("kept"))
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with refusing_publishes(), pytest.raises(BackendError):
                settle(delivery)
            assert deliveries.get(timeout=0.2) is None, "the slot of an unsettled delivery was given to another"
            delivery.ack()
            assert work_off(deliveries, 1) == ["next"]

    @each_outcome_that_publishes
    def test_a_job_whose_outcome_failed_comes_again_once_its_consumer_closes(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, refusing_publishes: Refusing, settle: Settle
    ) -> None:
        backend.publish(new_job("kept", attempt=2))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with refusing_publishes(), pytest.raises(BackendError):
                settle(delivery)
        with backend.consume(queue) as deliveries:
            again = take_one(deliveries)
            assert again.envelope == delivery.envelope
            assert again.redelivered
            again.ack()
            assert deliveries.get(timeout=0.3) is None, "what was refused was published all the same"

    @needs("dead_letters", "holds")
    def test_after_a_failed_outcome_another_may_be_chosen(
        self,
        backend: Backend,
        queue: QueueConfig,
        new_job: MakeJob,
        refusing_publishes: Refusing,
        dead_letters: TakeDeadLetters,
    ) -> None:
        backend.publish(new_job("kept"))
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
            with refusing_publishes(), pytest.raises(BackendError):
                delivery.retry(delivery.envelope.next_attempt(), 0.1)
            delivery.dead_letter("no use after all")
            assert deliveries.get(timeout=0.3) is None
        assert [letter.reason for letter in dead_letters(queue.name)] == ["no use after all"]
