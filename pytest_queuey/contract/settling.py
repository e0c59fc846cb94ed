"""Owns the contract's chapter on outcomes: a delivery takes exactly one, and a failed one leaves it unsettled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Barrier

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
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.delivery import Delivery
from queuey_rabbitmq.core.errors import AlreadySettledError
from queuey_rabbitmq.core.queue_config import QueueConfig

FOUGHT_OVER = 20

Settle = Callable[[Delivery], None]

OUTCOMES: dict[str, Settle] = {
    "ack": lambda delivery: delivery.ack(),
    "give_back": lambda delivery: delivery.give_back(),
    "retry": lambda delivery: delivery.retry(delivery.envelope.next_attempt(), 0.1),
    "defer": lambda delivery: delivery.defer(delivery.envelope.deferred(1), 0.1),
    "dead_letter": lambda delivery: delivery.dead_letter("no use"),
}

NEEDED = {"retry": ["holds"], "defer": ["holds"], "dead_letter": ["dead_letters"]}
"""What a backend must be able to do to take an outcome."""

each_outcome = pytest.mark.parametrize(
    "settle",
    [
        pytest.param(settle, id=name, marks=pytest.mark.queuey_needs(*NEEDED.get(name, [])))
        for name, settle in OUTCOMES.items()
    ],
)


def settle_what_is_free(settle: Settle, deliveries: Sequence[Delivery], together: Barrier) -> int:
    """Settle deliveries while others do the same; return how many of them took the outcome."""
    together.wait(PATIENCE)
    settled = 0
    for delivery in deliveries:
        with suppress(AlreadySettledError):
            settle(delivery)
            settled += 1
    return settled


class Settling(Surroundings):
    """Every delivery ends in one outcome, once."""

    @pytest.fixture
    def eager_threads(self) -> Iterator[None]:
        """Let Python switch between threads as often as it can, so that what can come between does."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(interval)

    def test_an_acked_job_never_comes_again(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("done"))
        with backend.consume(queue) as deliveries:
            take_one(deliveries).ack()
        backend.close()
        other = backend_factory()
        other.publish(new_job("next"))
        with other.consume(queue) as deliveries:
            assert payloads([take_one(deliveries)]) == ["next"]

    def test_acks_in_any_order_are_of_the_jobs_that_they_name(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for number in range(6):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            taken = take(deliveries, 6)
            for number in (4, 0, 1, 3):
                taken[number].ack()
        with backend.consume(queue) as deliveries:
            assert payloads(take(deliveries, 2)) == [2, 5]

    def test_a_job_given_back_comes_again_before_the_backlog_and_says_so(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        for name in ("given back", "backlog"):
            backend.publish(new_job(name))
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            take_one(deliveries).give_back()
            again = take_one(deliveries)
            assert again.envelope.payload == "given back"
            assert again.redelivered
            again.ack()
            backlog = take_one(deliveries)
            assert backlog.envelope.payload == "backlog"
            assert not backlog.redelivered

    @needs("holds", "dead_letters")
    @each_outcome
    def test_a_settled_delivery_takes_no_other_outcome(
        self, backend: Backend, queue_name: str, new_job: MakeJob, settle: Settle
    ) -> None:
        backend.publish(new_job("once"))
        # A queue configuration whose prefetch is one keeps the job itself from coming back into the test's hands.
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            delivery = take_one(deliveries)
            settle(delivery)
            for another in OUTCOMES.values():
                with pytest.raises(AlreadySettledError, match=str(delivery.envelope.job_id)):
                    another(delivery)

    @each_outcome
    def test_of_threads_that_settle_a_delivery_at_once_one_succeeds(
        self,
        backend: Backend,
        queue_name: str,
        new_job: MakeJob,
        settle: Settle,
        eager_threads: None,
    ) -> None:
        for number in range(FOUGHT_OVER):
            backend.publish_nowait(new_job(number))
        with backend.consume(QueueConfig(queue_name, prefetch=FOUGHT_OVER)) as deliveries:
            taken, together = take(deliveries, FOUGHT_OVER), Barrier(4)
            fights = [in_thread(settle_what_is_free, settle, taken, together) for _ in range(4)]
            assert sum(fight.result(PATIENCE) for fight in fights) == FOUGHT_OVER

    @needs("holds")
    @pytest.mark.parametrize("name", ["retry", "defer"])
    def test_a_job_put_off_is_there_once(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, name: str
    ) -> None:
        backend.publish(new_job("put off"))
        with backend.consume(queue) as deliveries:
            OUTCOMES[name](take_one(deliveries))
            take_one(deliveries).ack()
            backend.publish(new_job("next"))
            assert work_off(deliveries, 1) == ["next"]
        with backend.consume(queue) as deliveries:
            backend.publish(new_job("last"))
            assert work_off(deliveries, 1) == ["last"]

    @needs("priorities")
    @each_outcome
    def test_every_outcome_makes_room_for_the_next_job(
        self, backend: Backend, queue_name: str, new_job: MakeJob, settle: Settle
    ) -> None:
        backend.publish(new_job("settled"))
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            delivery = take_one(deliveries)
            backend.publish(new_job("urgent", priority=9))
            settle(delivery)
            assert take_one(deliveries).envelope.payload == "urgent"
