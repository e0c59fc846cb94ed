"""What AMQP cannot carry fails alone, with an error that says so, and what is no text goes on, on either link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_fake import FakeBroker
from queuey_rabbitmq import BackendError, DeadLetters, QueueConfig, RabbitMqBackend
from queuey_rabbitmq.amqp import Properties
from tests.unit.session.conftest import job

EMAILS = QueueConfig("emails")


@pytest.fixture(params=[lambda broker: broker.backend(), lambda broker: RabbitMqBackend.connect(broker.url)])
def backend(broker: FakeBroker, request: pytest.FixtureRequest) -> Iterator[RabbitMqBackend]:
    connect: Callable[[FakeBroker], RabbitMqBackend] = request.param
    with connect(broker) as backend:
        backend.declare([EMAILS])
        yield backend


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"mine": object()}, id="no type"),
        pytest.param({"mine": 2**70}, id="no room for an integer"),
        pytest.param({"mine": Decimal("1e400")}, id="no room for a decimal"),
        pytest.param({"mine": "\ud800"}, id="no text"),
        pytest.param({"mine": {"x" * 256: 1}}, id="a name of 256 octets inside"),
        pytest.param({"mine": {1: 2}}, id="a name that is no text"),
    ],
)
def test_a_header_that_amqp_cannot_carry_is_an_error_of_that_publish(
    backend: RabbitMqBackend, headers: dict[str, Any]
) -> None:
    with pytest.raises(BackendError, match="publishing to queue 'emails': it cannot be written in AMQP"):
        backend.publish(job(headers=headers))
    with pytest.raises(BackendError, match=r"publishing to queue 'emails.deferred.60000': it cannot be written"):
        backend.defer(job(headers=headers), 60)
    backend.publish(job())


def test_the_error_names_the_header_and_the_type_of_its_value(broker: FakeBroker) -> None:
    with RabbitMqBackend.connect(broker.url) as backend:
        backend.declare([EMAILS])
        with pytest.raises(BackendError, match=r"header 'mine': AMQP cannot carry .* of type Decimal$"):
            backend.publish(job(headers={"yours": "well", "mine": Decimal("1e400")}))


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


def test_headers_that_are_no_text_go_on_with_a_job(backend: RabbitMqBackend, broker: FakeBroker) -> None:
    headers: dict[Any, Any] = {b"\xff": 1, "mine": {b"\xff": [b"\xff"]}}
    with BrokerDoor(broker.url) as door, backend.consume(EMAILS) as deliveries:
        door.publish(EMAILS.name, job().to_bytes(), Properties(headers=headers))
        first = deliveries.get(timeout=5)
        assert first is not None
        backend.publish(first.envelope.next_attempt())
        second = deliveries.get(timeout=5)
        assert second is not None
        assert second.envelope.headers.items() >= headers.items()


def test_properties_that_are_no_text_go_on_with_a_dead_letter(backend: RabbitMqBackend, broker: FakeBroker) -> None:
    octets: Any = b"\xff"
    said = Properties(message_id=octets, app_id=octets, headers={"mine": octets})
    with BrokerDoor(broker.url) as door:
        door.publish("emails.dead", b"no job", said)
        [letter] = DeadLetters(backend, EMAILS)
        assert letter.properties.app_id == octets
        assert DeadLetters(backend, EMAILS).requeue(malformed=True).done == 1
        back = door.get(EMAILS.name)
    assert back is not None
    assert (back.properties.message_id, back.properties.app_id, back.headers) == (octets, octets, {"mine": octets})
