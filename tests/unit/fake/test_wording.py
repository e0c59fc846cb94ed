"""Instants, durations and what a broker holds, as people read them."""

import uuid
from datetime import timedelta

import pika
import pytest

from queuey_fake import FakeBroker
from queuey_fake.wording import duration, instant
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.errors import NothingPending
from tests.unit.fake.conftest import EMAILS


def job(backend: RabbitMqBackend, queue: str = "emails") -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="send", queue=queue, enqueued_at_ms=backend.now_ms(), payload=None)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 s"),
        (1, "0.001 s"),
        (30_000, "30 s"),
        (90_000, "1 min 30 s"),
        (3_600_000, "1 h"),
        (5_400_000, "1 h 30 min"),
        (2_142_720_000, "24 d 19 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(ms: int, words: str) -> None:
    assert duration(ms) == words


def test_an_instant_is_told_to_the_millisecond() -> None:
    assert instant(1_893_456_000_007) == "2030-01-01T00:00:00.007+00:00"


def test_what_is_held_is_told_with_its_queue_its_number_its_time_and_where_it_goes(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    backend.defer(job(backend), timedelta(seconds=30))
    backend.defer(job(backend), timedelta(seconds=30))
    assert broker.explain().splitlines() == [
        "  queue 'emails.deferred.30000': 2 messages due at 2030-01-01T00:00:30.000+00:00, in 30 s, then to 'emails'",
        (
            "  queue 'emails.deferred.30000': its lease ends at 2030-01-01T00:01:00.000+00:00, in 1 min, "
            "unless somebody uses it; 2 messages would go with it"
        ),
    ]


def test_what_is_ready_or_in_hand_is_told_with_its_consumers(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    assert broker.explain() == "  queue 'emails': 1 message ready, no consumer"
    with backend.consume(EMAILS) as deliveries:
        next(deliveries)
        assert broker.explain() == "  queue 'emails': 1 message delivered and not settled, 1 consumer"


def test_a_head_that_holds_others_back_is_told_with_how_many(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(retry_suffix=".retry"))
    backend.declare([EMAILS])
    for delay in (60, 30, 10):
        backend.publish(job(backend), delay=delay)
    (line,) = broker.explain().splitlines()
    assert line == (
        "  queue 'emails.retry': 3 messages due at 2030-01-01T00:01:00.000+00:00, in 1 min, then to 'emails'; "
        "2 behind the head were to go sooner, but only the head of a queue expires"
    )


def test_a_head_without_a_deadline_is_told_to_hold_all_others_back(broker: FakeBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"first")
        channel.basic_publish("", "q", b"second", pika.BasicProperties(expiration="1000"))
        channel.queue_declare("q", passive=True)
    assert broker.explain().splitlines() == [
        "  queue 'q': 1 message ready, no consumer",
        "  queue 'q': 1 message with a deadline, none due: the head has none, and only the head of a queue expires",
    ]


def test_a_broker_that_holds_nothing_says_so(broker: FakeBroker) -> None:
    assert broker.explain() == "  no queue holds a message, and nothing is due"


def test_a_wait_that_nothing_can_end_says_what_is_held(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    other = QueueConfig("other")
    backend.declare([other])
    backend.publish(job(backend, "other"))
    with backend.consume(EMAILS) as deliveries, pytest.raises(NothingPending) as refused:
        next(deliveries)
    assert str(refused.value).splitlines() == [
        "waiting without a timeout, and nothing can ever end it:",
        "  queue 'other': 1 message ready, no consumer",
    ]
