"""Owns the contract's chapter on publishing: what a publish that returns, or raises, lets one rely on."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.delaying import UNUSUAL_JSON
from pytest_queuey.contract.surroundings import (
    PATIENCE,
    ContractClock,
    MakeBackend,
    MakeJob,
    Surroundings,
    take,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import UnroutableError
from queuey_rabbitmq.core.queue_config import QueueConfig

ROUNDS = 300
IN_FLIGHT = 10


class Publishing(Surroundings):
    """A publish that returned is on its queue; one that cannot be is an error of that publish, and of no other."""

    def test_a_job_arrives_as_it_was_published(self, backend: Backend, queue: QueueConfig, new_job: MakeJob) -> None:
        job = new_job({"to": "a@b.c"}, priority=3, correlation_id="request 7", job_type="send_email")
        backend.publish(job)
        with backend.consume(queue) as deliveries:
            delivery = take_one(deliveries)
        assert delivery.envelope == job
        assert delivery.envelope.to_bytes() == job.to_bytes()
        assert not delivery.redelivered

    def test_a_payload_arrives_byte_for_byte(self, backend: Backend, queue: QueueConfig, new_job: MakeJob) -> None:
        body = new_job(None).to_bytes().replace(b'"payload":null', b'"payload":' + UNUSUAL_JSON)
        backend.publish(Envelope.from_bytes(body))
        with backend.consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload_json == UNUSUAL_JSON

    def test_jobs_arrive_in_the_order_of_their_publishing(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        for number in range(50):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 50) == list(range(50))

    def test_a_job_outlives_the_backend_that_published_it(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish(new_job("left behind"))
        backend.close()
        with backend_factory().consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "left behind"

    def test_publishing_to_a_queue_that_does_not_exist_says_unroutable_and_names_it(
        self, backend: Backend, queue_name: str, new_job: MakeJob
    ) -> None:
        missing = f"{queue_name}.missing"
        with pytest.raises(UnroutableError, match=r"(?i)unroutable") as raised:
            backend.publish(new_job(queue=missing))
        assert f"'{missing}'" in str(raised.value)

    def test_a_backend_works_on_after_an_unroutable_publish(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        with pytest.raises(UnroutableError):
            backend.publish(new_job(queue=f"{queue.name}.missing"))
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]

    def test_publishes_in_flight_keep_their_order(self, backend: Backend, queue: QueueConfig, new_job: MakeJob) -> None:
        futures = [backend.publish_nowait(new_job(number)) for number in range(500)]
        assert [future.exception(PATIENCE) for future in futures] == [None] * 500
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 500) == list(range(500))

    def test_of_ten_publishes_in_flight_exactly_the_unroutable_one_fails(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        missing = f"{queue.name}.missing"
        for number in range(ROUNDS):
            unroutable = number % IN_FLIGHT
            targets = [missing if place == unroutable else queue.name for place in range(IN_FLIGHT)]
            futures = [backend.publish_nowait(new_job(number, queue=target)) for target in targets]
            failed = [place for place, future in enumerate(futures) if future.exception(PATIENCE) is not None]
            assert failed == [unroutable], f"round {number}"
        with backend.consume(queue) as deliveries:
            arrived = work_off(deliveries, ROUNDS * (IN_FLIGHT - 1))
        assert arrived == [number for number in range(ROUNDS) for _ in range(IN_FLIGHT - 1)]

    def test_an_unroutable_publish_fails_though_others_in_flight_carry_the_same_job(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        job = new_job("the same")
        lost = new_job("the same", job_id=job.job_id, queue=f"{queue.name}.missing")
        futures = [backend.publish_nowait(each) for each in [job, lost, job, lost, lost, job]]
        failures = [future.exception(PATIENCE) for future in futures]
        assert [type(failure) for failure in failures] == [
            type(None),
            UnroutableError,
            type(None),
            UnroutableError,
            UnroutableError,
            type(None),
        ]  # fmt: skip -- six publishes side by side

    def test_a_future_of_a_publish_is_done_only_when_the_job_can_be_had(
        self, backend: Backend, backend_factory: MakeBackend, queue: QueueConfig, new_job: MakeJob
    ) -> None:
        backend.publish_nowait(new_job("there")).result(PATIENCE)
        with backend_factory().consume(queue) as deliveries:
            assert take_one(deliveries).envelope.payload == "there"

    @pytest.mark.queuey_expect_loss(reason="expired")
    @needs("expiry")
    def test_a_job_that_waits_longer_than_its_queue_lets_it_is_dropped(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, message_ttl=0.2)
        backend.declare([queue])
        backend.publish(new_job("too old"))
        clock.advance(0.4)
        backend.publish(new_job("fresh"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["fresh"]

    @needs("expiry", "holds")
    def test_a_job_that_is_held_for_longer_than_its_queue_lets_jobs_wait_comes_all_the_same(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, message_ttl=1)
        backend.declare([queue])
        with backend.consume(queue) as deliveries:
            for delay in (1.1, 1.2):  # the first has the backend look when the second is old already
                backend.defer(new_job(delay), delay)
            assert work_off(deliveries, 2) == [1.1, 1.2]

    @needs("expiry", "holds")
    def test_a_job_that_is_being_worked_on_is_not_dropped_for_its_age(
        self, backend_factory: MakeBackend, queue_name: str, new_job: MakeJob, clock: ContractClock
    ) -> None:
        backend = backend_factory()
        queue = QueueConfig(queue_name, message_ttl=0.2)
        backend.declare([queue])
        with backend.consume(queue) as deliveries:
            backend.publish(new_job("long work"))
            delivery = take_one(deliveries)
            clock.advance(0.4)
            delivery.retry(delivery.envelope.next_attempt(), 0.1)
            assert take(deliveries, 1)[0].envelope.attempt == 2
