"""What AMQP cannot carry fails alone, with an error that says so, on either link."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import BackendError, QueueConfig, RabbitMqBackend
from tests.unit.session.conftest import job

EMAILS = QueueConfig("emails")


@pytest.fixture(params=[lambda broker: broker.backend(), lambda broker: RabbitMqBackend.connect(broker.url)])
def backend(broker: FakeBroker, request: pytest.FixtureRequest) -> Iterator[RabbitMqBackend]:
    connect: Callable[[FakeBroker], RabbitMqBackend] = request.param
    with connect(broker) as backend:
        backend.declare([EMAILS])
        yield backend


@pytest.mark.parametrize("value", [object(), 2**70])
def test_a_header_without_a_type_in_amqp_is_an_error_of_that_publish(backend: RabbitMqBackend, value: object) -> None:
    with pytest.raises(BackendError, match="publishing to queue 'emails': it cannot be written in AMQP"):
        backend.publish(job(headers={"mine": value}))
    with pytest.raises(BackendError, match=r"publishing to queue 'emails.deferred.60000': it cannot be written"):
        backend.defer(job(headers={"mine": value}), 60)
    backend.publish(job())


def test_what_goes_out_with_it_ends_as_it_would_have(backend: RabbitMqBackend, broker: FakeBroker) -> None:
    broker.faults.block()
    sent = job(), job(headers={"mine": object()}), job(), job("missing"), job()
    waiting = [backend.publish_nowait(one) for one in sent]
    broker.faults.unblock()
    ended = [future.exception(timeout=5) for future in waiting]
    assert [type(error).__name__ for error in ended] == [
        "NoneType",
        "BackendError",
        "NoneType",
        "UnroutableError",
        "NoneType",
    ]
