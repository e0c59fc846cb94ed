"""What the broker in memory is known to do otherwise than a real one; docs/faithful.md says it too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from queuey_fake import FakeBroker

MINUTE_S = 60


@pytest.fixture
def channel(broker: FakeBroker) -> Iterator[BlockingChannel]:
    with closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
        yield connection.channel()


@pytest.mark.xfail(reason="x-dead-letter-strategy is taken and not kept; seen on 4.0", strict=True)
def test_at_least_once_keeps_what_leads_nowhere_and_tries_again(broker: FakeBroker, channel: BlockingChannel) -> None:
    kept = {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-strategy": "at-least-once",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    channel.queue_declare("work", durable=True, arguments=kept)
    channel.basic_publish("", "work", b"kept")
    method, _, _ = channel.basic_get("work")
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.queue_declare("dead", durable=True)
    broker.advance(4 * MINUTE_S)
    assert channel.basic_get("dead", auto_ack=True)[2] == b"kept"


@pytest.mark.xfail(reason="there is no consumer_timeout; 3.10 and 4.0 close the channel after it", strict=True)
def test_a_delivery_that_nobody_settles_for_half_an_hour_closes_its_channel() -> None:
    with (
        FakeBroker(version="4.0") as broker,
        closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"held")
        held: list[bytes] = []
        channel.basic_consume("work", lambda _channel, _method, _properties, body: held.append(body))
        channel.queue_declare("work", passive=True)
        connection.process_data_events(0)
        assert held, "it was delivered"
        broker.advance(45 * MINUTE_S)
        connection.process_data_events(0)
        assert channel.is_closed
