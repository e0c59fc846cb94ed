"""pika's BlockingConnection."""

import pika
import pytest
from pika.exceptions import ConnectionClosed, StreamLostError, UnroutableError

from queuey_fake import FakeBroker


def test_pika_works_a_queue_off(broker: FakeBroker, dead_lettered: dict[str, str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("work", durable=True, arguments=dead_lettered)
    channel.confirm_delivery()
    for body in (b"acked", b"returned", b"rejected"):
        channel.basic_publish("", "work", body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    with pytest.raises(UnroutableError) as unroutable:
        channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    assert unroutable.value.messages[0].body == b"lost"
    seen = []
    channel.basic_qos(prefetch_count=1)
    for method, _, body in channel.consume("work", inactivity_timeout=5):
        seen.append((body, method.redelivered))
        if body == b"acked":
            channel.basic_ack(method.delivery_tag)
        else:
            channel.basic_nack(method.delivery_tag, requeue=body == b"returned" and not method.redelivered)
        if body == b"rejected":
            break
    channel.cancel()
    assert seen == [(b"acked", False), (b"returned", False), (b"returned", True), (b"rejected", False)]
    dead = [channel.basic_get("dead", auto_ack=True) for _ in range(2)]
    assert [(body, properties.headers["x-death"][0]["reason"]) for _, properties, body in dead] == [
        (b"returned", "rejected"),
        (b"rejected", "rejected"),
    ]
    connection.close()


def test_pika_connects_again_and_finds_what_was_unacked(broker: FakeBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"kept", pika.BasicProperties(delivery_mode=2))
    assert channel.basic_get("work")[2] == b"kept"
    broker.faults.drop_connections()
    with pytest.raises((StreamLostError, ConnectionClosed)):
        connection.process_data_events(time_limit=5)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as again:
        method, _, body = again.channel().basic_get("work", auto_ack=True)
    assert (body, method.redelivered) == (b"kept", True)
