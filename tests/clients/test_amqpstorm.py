"""amqpstorm."""

from typing import Any

import pytest

from queuey_fake import FakeBroker

amqpstorm = pytest.importorskip("amqpstorm")


def connect(broker: FakeBroker) -> Any:
    return amqpstorm.UriConnection(broker.url + "?heartbeat=60&timeout=1")


def test_amqpstorm_works_a_queue_off(broker: FakeBroker, dead_lettered: dict[str, str]) -> None:
    with connect(broker) as connection, connection.channel() as channel:
        channel.queue.declare("dead", durable=True)
        channel.queue.declare("work", durable=True, arguments=dead_lettered)
        channel.confirm_deliveries()
        for body in ("acked", "returned", "rejected"):
            assert channel.basic.publish(body, "work", properties={"delivery_mode": 2}, mandatory=True)
        with pytest.raises(amqpstorm.AMQPMessageError, match="NO_ROUTE"):
            channel.basic.publish("lost", "nowhere", mandatory=True)
        channel.basic.qos(1)
        channel.basic.consume(queue="work")
        seen = []
        for message in channel.build_inbound_messages(break_on_empty=False):
            is_again = message.method["redelivered"]
            seen.append((message.body, is_again))
            if message.body == "acked":
                message.ack()
            else:
                message.nack(requeue=message.body == "returned" and not is_again)
            if message.body == "rejected":
                break
        assert seen == [("acked", False), ("returned", False), ("returned", True), ("rejected", False)]
    with connect(broker) as connection, connection.channel() as channel:
        dead = [channel.basic.get("dead", no_ack=True) for _ in range(2)]
        assert [message.body for message in dead] == ["returned", "rejected"]


def test_amqpstorm_connects_again_and_finds_what_was_unacked(broker: FakeBroker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue.declare("work", durable=True)
    channel.basic.publish("kept", "work", properties={"delivery_mode": 2})
    assert channel.basic.get("work").body == "kept"
    broker.faults.drop_connections()
    with connect(broker) as again:
        message = again.channel().basic.get("work", no_ack=True)
        assert (message.body, message.method["redelivered"]) == ("kept", True)
    # The old connection notes the cut where its user does not see it, and would wait for an answer.
    connection.set_state(connection.CLOSED)
    connection.close()
