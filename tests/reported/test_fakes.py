"""What people report of fakes: clocks of their own, waits that end at once, and what RabbitMQ refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pika
import pika.exceptions
import pytest
from freezegun import freeze_time

from queuey_fake import FakeBroker, SystemClock, real_time
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.errors import BackendError

MakeJob = Callable[..., Envelope]
ElapsedS = Callable[[], float]
T_MS = 1_893_456_000_000
bound_early = time.time


def test_a_wait_in_virtual_time_takes_virtual_time_and_misses_nothing_that_is_due(
    backend: RabbitMqBackend, new_job: MakeJob, emails: QueueConfig, elapsed_s: ElapsedS
) -> None:
    with backend.consume(emails) as deliveries:
        assert deliveries.get(timeout=5) is None
        assert elapsed_s() == 5
        backend.defer(new_job(), 30)
        assert deliveries.get(timeout=29.999) is None
        delivery = deliveries.get(timeout=0.001)
        assert delivery is not None
        assert elapsed_s() == 35
        delivery.ack()


def test_a_wait_in_real_time_blocks_for_its_timeout(emails: QueueConfig) -> None:
    with FakeBroker(clock=SystemClock()) as broker:
        backend = broker.backend()
        backend.declare([emails])
        with backend.consume(emails) as deliveries:
            began_s = real_time.monotonic_s()
            assert deliveries.get(timeout=0.05) is None
            assert 0.048 <= real_time.monotonic_s() - began_s < 5


def test_a_wait_in_real_time_gets_what_is_due_within_it(new_job: MakeJob, emails: QueueConfig) -> None:
    with FakeBroker(clock=SystemClock()) as broker, freeze_time("2030-01-01"):
        backend = broker.backend(RabbitMqOptions(deferred_granularity=0.01))
        backend.declare([emails])
        backend.defer(new_job(), 0.05)
        with backend.consume(emails) as deliveries:
            delivery = deliveries.get(timeout=5)
            assert delivery is not None
            delivery.ack()


def test_every_thread_and_every_way_to_the_broker_sees_one_frozen_time() -> None:
    seen: list[tuple[int, float]] = []
    with FakeBroker() as broker, freeze_time("2030-01-01"):
        backend = broker.backend()

        def look() -> None:
            seen.append((backend.now_ms(), time.time() * 1000))

        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(5)
        assert broker.now_ms() == T_MS
        assert datetime.now(UTC).timestamp() * 1000 == T_MS
    assert seen == [(T_MS, T_MS)] * 2


def test_a_name_of_the_clock_that_was_bound_before_the_freeze_shows_the_brokers_time() -> None:
    with freeze_time("2030-01-01") as frozen, FakeBroker() as broker:
        frozen.tick(90)
        assert bound_early() * 1000 == broker.now_ms() == T_MS + 90_000


def test_a_mandatory_message_that_goes_nowhere_is_returned_with_all_that_it_had_and_then_confirmed(
    channel: Any,
) -> None:
    channel.confirm_delivery()
    properties = pika.BasicProperties(message_id="7", headers={"a": 1})
    with pytest.raises(pika.exceptions.UnroutableError) as refused:
        channel.basic_publish("amq.direct", "nowhere", b"body", properties, mandatory=True)
    (returned,) = refused.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nowhere")
    assert (returned.properties.message_id, returned.properties.headers, returned.body) == ("7", {"a": 1}, b"body")
    channel.basic_publish("amq.direct", "nowhere", b"body", properties, mandatory=False)


def test_a_message_that_goes_back_is_redelivered_at_its_old_place(broker: FakeBroker, channel: Any) -> None:
    channel.queue_declare("q", durable=True)
    for number in range(3):
        channel.basic_publish("", "q", str(number).encode())
    first, _, _ = channel.basic_get("q")
    assert first.redelivered is False
    channel.basic_nack(first.delivery_tag, requeue=True)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as other:
        taken = other.channel()
        method, _, body = taken.basic_get("q")
        assert (method.redelivered, body) == (True, b"0")
        taken.close()
    method, _, body = channel.basic_get("q")
    assert (method.redelivered, body) == (True, b"0")
    method, _, body = channel.basic_get("q")
    assert (method.redelivered, body) == (False, b"1")


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("q", {"x-message-ttl": -1}, 406),
        ("q", {"x-expires": 0}, 406),
        ("q", {"x-max-priority": 256}, 406),
        ("q", {"x-message-ttl": 315_360_000_001}, 406),
        ("amq.q", {}, 403),
    ],
)
def test_what_rabbitmq_refuses_is_refused_with_its_code(
    channel: Any, name: str, arguments: dict[str, Any], code: int
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(name, durable=True, arguments=arguments)
    assert refused.value.reply_code == code


def test_a_name_of_more_than_255_bytes_is_refused_before_it_is_sent(broker: FakeBroker) -> None:
    with pytest.raises(ValueError, match="255"):
        broker.backend().declare([QueueConfig("é" * 128)])
    assert broker.queues() == []


def test_declaring_with_another_priority_names_what_differs_and_harms_nothing_else(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob
) -> None:
    futures = [backend.publish_nowait(new_job()) for _ in range(3)]
    with pytest.raises(BackendError, match="x-max-priority"):
        backend.declare([QueueConfig("emails", max_priority=3)])
    for future in futures:
        future.result(5)
    backend.publish(new_job())
    assert broker.queue("emails").ready == 4  # type: ignore[union-attr]  # it was declared


def test_with_a_prefetch_of_one_an_urgent_job_is_next(backend: RabbitMqBackend, new_job: MakeJob) -> None:
    seen = []
    with backend.consume(QueueConfig("emails", prefetch=1)) as deliveries:
        for number in range(5):
            backend.publish(new_job(number))
        backend.publish(new_job("urgent", priority=9))
        for _ in range(6):
            delivery = next(deliveries)
            seen.append(delivery.envelope.payload)
            delivery.ack()
    assert seen == [0, "urgent", 1, 2, 3, 4]


def test_a_dead_letter_into_a_deleted_dead_queue_fails_in_that_very_call(
    broker: FakeBroker, backend: RabbitMqBackend, channel: Any, new_job: MakeJob, emails: QueueConfig
) -> None:
    backend.publish(new_job())
    with backend.consume(emails) as deliveries:
        delivery = next(deliveries)
        channel.queue_delete("emails.dead")
        with pytest.raises(BackendError, match=r"emails\.dead"):
            delivery.dead_letter("no use")
        assert broker.queue("emails").unacked == 1  # type: ignore[union-attr]  # it was declared
        backend.publish(new_job())
        delivery.ack()
