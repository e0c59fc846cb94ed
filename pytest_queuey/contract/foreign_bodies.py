"""Owns the contract's chapter on bodies that no backend wrote, as far as any backend can keep it."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.capabilities import needs
from pytest_queuey.contract.surroundings import MakeJob, PutRaw, Surroundings, TakeDeadLetters, take_one, work_off
from queuey_rabbitmq.core.backend import Backend
from queuey_rabbitmq.core.queue_config import QueueConfig

ENVELOPE = (
    b'{"job_id":"0198f0c2-7c3e-7cc0-a1b2-0123456789ab","job_type":"t","queue":"q","attempt":1,"enqueued_at_ms":1,'
    b'"payload":null}'
)
"""What an older worker writes."""

each_malformed = pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="no JSON"),
        pytest.param(ENVELOPE.replace(b'"t"', b'"\xff"'), id="no UTF-8"),
        pytest.param(ENVELOPE.replace(b',"payload":null', b""), id="no payload"),
    ],
)


@needs("raw_bodies")
class ForeignBodies(Surroundings):
    """A body that is no job is kept aside with a reason and never stops a consumer."""

    @each_malformed
    def test_a_malformed_body_does_not_stop_the_consumer(
        self, backend: Backend, queue_name: str, new_job: MakeJob, put_raw: PutRaw, body: bytes
    ) -> None:
        put_raw(queue_name, body)
        backend.publish(new_job("next"))
        with backend.consume(QueueConfig(queue_name, prefetch=1)) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
            assert deliveries.get_ready() is None

    @needs("dead_letters")
    @each_malformed
    def test_a_malformed_body_is_among_the_dead_letters_untouched_and_with_a_reason(
        self,
        backend: Backend,
        queue: QueueConfig,
        new_job: MakeJob,
        put_raw: PutRaw,
        dead_letters: TakeDeadLetters,
        body: bytes,
    ) -> None:
        put_raw(queue.name, body)
        backend.publish(new_job("next"))
        with backend.consume(queue) as deliveries:
            assert work_off(deliveries, 1) == ["next"]
        [letter] = dead_letters(queue.name)
        assert letter.body == body
        assert letter.reason

    def test_what_an_older_worker_or_a_newer_one_writes_is_a_job(
        self, backend: Backend, queue: QueueConfig, put_raw: PutRaw
    ) -> None:
        newer = ENVELOPE[:-1] + b',"deferrals":2,"priority":3,"correlation_id":null,"colour":"red"}'
        for body in (ENVELOPE, newer):
            put_raw(queue.name, body)
        with backend.consume(queue) as deliveries:
            older_job, newer_job = take_one(deliveries).envelope, take_one(deliveries).envelope
        assert (older_job.deferrals, older_job.priority, older_job.correlation_id) == (0, 0, None)
        assert (newer_job.deferrals, newer_job.priority, newer_job.correlation_id) == (2, 3, None)
