"""Whoever waits for the future of something that is in flight waits in the broker's time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import BackendError, Envelope, RabbitMqBackend
from queuey_rabbitmq.core.errors import DeadlineExceededError
from tests.unit.fake.conftest import EMAILS

JOB = Envelope(job_id=uuid.uuid4(), job_type="t", queue="emails", enqueued_at_ms=0, payload=None)


@pytest.mark.parametrize(
    "send",
    [
        lambda backend: backend.publish_nowait(JOB),
        lambda backend: backend.defer_nowait(JOB, 30),
        lambda backend: backend.publish_in_line(JOB),
    ],
)
def test_time_moves_on_to_the_confirm(
    broker: FakeBroker, backend: RabbitMqBackend, send: Callable[[RabbitMqBackend], Future[None]]
) -> None:
    broker.faults.delay(1.5)
    began_ms = broker.now_ms()
    sent = send(backend)
    assert not sent.done()
    assert sent.result(timeout=60) is None
    assert 3000 <= broker.now_ms() - began_ms <= 6000  # a round trip, and another where a channel is opened for it


def test_time_moves_on_to_the_confirm_of_what_takes_a_deliverys_place(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    backend.publish(JOB)
    with backend.consume(EMAILS) as deliveries:
        delivery = deliveries.get(timeout=1)
        assert delivery is not None
        broker.faults.delay(1.5)
        assert delivery.retry_nowait(delivery.envelope, 30).exception(timeout=60) is None


def test_a_timeout_passes_in_virtual_time(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.faults.block()
    sent = backend.publish_nowait(JOB)
    began_ms = broker.now_ms()
    with pytest.raises(TimeoutError):
        sent.exception(timeout=20)
    assert broker.now_ms() - began_ms == 20_000


def test_without_a_timeout_it_ends_by_the_operations_own(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.faults.block()
    with pytest.raises(DeadlineExceededError):
        backend.publish_nowait(JOB).result()


def test_a_wait_for_another_in_a_callback_is_refused_at_once(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(JOB)  # so the channel is open
    broker.faults.delay(1)
    first = backend.publish_nowait(JOB)
    broker.faults.delay(5)
    second = backend.publish_nowait(JOB)
    refused: list[BackendError] = []

    def wait_for_second(_first: Future[None]) -> None:
        try:
            second.result()
        except BackendError as error:
            refused.append(error)

    first.add_done_callback(wait_for_second)
    assert first.result(timeout=60) is None
    assert "a blocking call in a future's callback" in str(refused[0])
