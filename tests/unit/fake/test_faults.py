"""Faults of the broker in memory that only it can show: in virtual time, over both doors."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pika
import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import Envelope, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.errors import ConnectError, DeadlineExceededError, PublishRefusedError
from tests.unit.fake.conftest import EMAILS


def job(payload: Any = None) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="t", queue="emails", enqueued_at_ms=0, payload=payload)


def ready(broker: FakeBroker) -> int:
    look = broker.queue("emails")
    assert look is not None
    return look.ready


def client_of(broker: FakeBroker) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.blocked_connection_timeout = 5
    return pika.BlockingConnection(parameters)


def test_refusals_last_for_virtual_time(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    started_ms = broker.now_ms()
    broker.faults.refuse_connections(for_=3600)
    with pytest.raises(ConnectError, match="refused"):
        broker.backend()
    assert broker.now_ms() == started_ms
    broker.advance(3600)
    broker.backend()


def test_a_broker_that_hangs_for_long_is_taken_for_dead_by_its_heartbeats(
    broker: FakeBroker, backend: RabbitMqBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.faults.hang():
        broker.advance(29.9)
        assert "is gone" not in caplog.text
        broker.advance(0.1)  # twice the heartbeat of 10 s and pika's 5 s of grace
        assert "no heartbeats come" in caplog.text
    backend.publish(job())
    assert ready(broker) == 1


def test_what_was_sent_into_a_hang_and_given_up_still_arrives(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(operation_timeout=1, close_timeout=1))
    backend.declare([EMAILS])
    backend.publish(job())
    with broker.faults.hang():
        with pytest.raises(DeadlineExceededError, match="may or may not"):
            backend.publish(job())
        backend.close()
        assert ready(broker) == 1
    assert ready(broker) == 2


def test_what_hangs_is_lost_with_its_connection(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(operation_timeout=1, reconnect=None))
    backend.declare([EMAILS])
    broker.faults.hang()
    future = backend.publish_nowait(job())
    broker.faults.drop_connections()
    broker.faults.resume()
    assert future.exception(0) is not None
    assert ready(broker) == 0


def test_a_delay_makes_a_round_trip_last_twice_as_long(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job())
    broker.faults.delay(1.5)
    started_ms = broker.now_ms()
    backend.publish(job())
    assert broker.now_ms() - started_ms == 3000


def test_a_delay_keeps_the_order_of_what_is_on_its_way(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.faults.delay(2)
    first = backend.publish_nowait(job("first"))
    broker.advance(1)
    broker.faults.delay(0.1)
    second = backend.publish_nowait(job("second"))
    broker.advance(0.5)
    assert (first.done(), second.done()) == (False, False)
    broker.advance(3)
    broker.faults.delay(0)
    with backend.consume(EMAILS) as deliveries:
        taken = [deliveries.get(timeout=1), deliveries.get(timeout=1)]
    assert [delivery and delivery.envelope.payload for delivery in taken] == ["first", "second"]


@pytest.mark.parametrize("n", [0, -1, 1.5, "2"])
def test_faults_of_no_publish_are_refused(broker: FakeBroker, n: Any) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        broker.faults.nack_next(n)
    with pytest.raises(ValueError, match="1 or more"):
        broker.faults.return_next(n)
    with pytest.raises(ValueError, match="1 or more"):
        broker.faults.drop_connections(after_publishes=n)


def test_faults_that_last_for_less_than_no_time_are_refused(broker: FakeBroker) -> None:
    with pytest.raises(ValueError, match="delay: expected 0 or more, got -1"):
        broker.faults.delay(-1)
    with pytest.raises(ValueError, match=r"for_: expected 0 or more, got -0\.5"):
        broker.faults.refuse_connections(for_=-0.5)


def test_clear_ends_every_fault(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.faults.nack_next()
    broker.faults.return_next()
    broker.faults.drop_connections(after_publishes=1)
    broker.faults.block()
    broker.faults.delay(5)
    broker.faults.refuse_connections(for_=5)
    broker.faults.hang()
    broker.faults.clear()
    started_ms = broker.now_ms()
    backend.publish(job())
    broker.backend()
    assert (ready(broker), broker.now_ms()) == (1, started_ms)


def test_faults_strike_whoever_comes_through_the_port_too(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    connection = client_of(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    broker.faults.nack_next()
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "emails", b"refused")
    channel.basic_publish("", "emails", b"taken")
    assert ready(broker) == 1
    broker.faults.drop_connections()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        channel.basic_publish("", "emails", b"cut")
    broker.faults.refuse_connections(for_=60)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        client_of(broker)


def test_an_alarm_keeps_what_a_client_of_the_port_publishes_until_it_ends(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    connection = client_of(broker)
    heard: list[str] = []
    connection.add_on_connection_blocked_callback(lambda _, frame: heard.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, __: heard.append("unblocked"))
    channel = connection.channel()
    broker.faults.block("low on disk")
    for number in range(3):
        channel.basic_publish("", "emails", str(number).encode())
    while not heard:
        connection.process_data_events(1)
    assert (heard, ready(broker)) == (["low on disk"], 0)
    broker.faults.unblock()
    while len(heard) == 1:
        connection.process_data_events(1)
    connection.close()
    assert (heard, ready(broker)) == (["low on disk", "unblocked"], 3)


def test_a_client_of_the_port_waits_out_a_hang(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    connection = client_of(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    broker.faults.hang()
    publishing = threading.Thread(target=channel.basic_publish, args=("", "emails", b"late"))
    publishing.start()
    broker.advance(5)
    assert (publishing.is_alive(), ready(broker)) == (True, 0)
    broker.faults.resume()
    publishing.join(5)
    assert (publishing.is_alive(), ready(broker)) == (False, 1)
    connection.close()


def test_a_nack_is_told_from_a_full_queue_by_nobody(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.faults.nack_next(2)
    for _ in range(2):
        with pytest.raises(PublishRefusedError):
            backend.publish(job())
    backend.publish(job())
    assert ready(broker) == 1
