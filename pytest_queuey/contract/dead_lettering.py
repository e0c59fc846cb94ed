"""Owns the contract's chapter on jobs that failed for good, as far as any backend can keep it."""

from __future__ import annotations

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.delaying import UNUSUAL_JSON
from pytest_queuey.contract.surroundings import (
    MakeJob,
    Surroundings,
    TakeDeadLetters,
    take_one,
    work_off,
)
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.queue_config import QueueConfig

REASON = "no such recipient: ☹" + ", as the last of many servers said" * 10


@needs("dead_letters")
class DeadLettering(Surroundings):
    """A dead letter leaves its queue and is kept, as it was, with its reason."""

    def test_a_dead_letter_is_kept_as_it_was_with_its_reason(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, dead_letters: TakeDeadLetters
    ) -> None:
        job = new_job({"to": "nobody"}, attempt=5, deferrals=2, priority=3, correlation_id="c")
        backend.publish(job)
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter(REASON)
        [dead] = dead_letters(queue.name)
        assert dead.envelope.to_bytes() == job.to_bytes()
        assert dead.reason == REASON

    def test_a_dead_letter_keeps_its_payload_byte_for_byte(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, dead_letters: TakeDeadLetters
    ) -> None:
        body = new_job().to_bytes().replace(b'"payload":null', b'"payload":' + UNUSUAL_JSON)
        backend.publish(Envelope.from_bytes(body))
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter("no use")
        [dead] = dead_letters(queue.name)
        assert dead.envelope.payload_json == UNUSUAL_JSON

    def test_a_dead_letter_never_comes_again(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, dead_letters: TakeDeadLetters
    ) -> None:
        backend.publish(new_job("dead"))
        with backend.consume(queue) as deliveries:
            take_one(deliveries).dead_letter("no use")
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        assert len(dead_letters(queue.name)) == 1

    def test_dead_letters_are_kept_in_order(
        self, backend: Backend, queue: QueueConfig, new_job: MakeJob, dead_letters: TakeDeadLetters
    ) -> None:
        for number in range(3):
            backend.publish(new_job(number))
        with backend.consume(queue) as deliveries:
            for number in range(3):
                take_one(deliveries).dead_letter(f"reason {number}")
        assert [dead.reason for dead in dead_letters(queue.name)] == ["reason 0", "reason 1", "reason 2"]
