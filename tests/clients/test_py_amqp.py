"""py-amqp, the client below kombu and celery."""

from typing import Any

import pytest

from queuey_fake import FakeBroker

amqp = pytest.importorskip("amqp")


def connect(broker: FakeBroker) -> Any:
    host = broker.url.rpartition("@")[2].partition("/")[0]
    connection = amqp.Connection(host, userid="guest", password="guest", confirm_publish=True)
    connection.connect()
    return connection


def test_py_amqp_works_a_queue_off(broker: FakeBroker, dead_lettered: dict[str, str]) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True, auto_delete=False)
        channel.queue_declare("work", durable=True, auto_delete=False, arguments=dead_lettered)
        returned: list[Any] = []
        channel.events["basic_return"].add(lambda *said: returned.append(said))
        for body in ("acked", "returned", "rejected"):
            channel.basic_publish(amqp.Message(body, delivery_mode=2), "", "work", mandatory=True)
        channel.basic_publish(amqp.Message("lost"), "", "nowhere", mandatory=True)
        assert [(said[0].reply_code, said[2]) for said in returned] == [(312, "nowhere")]
        seen: list[Any] = []

        def settle(message: Any) -> None:
            seen.append((message.body, message.delivery_info["redelivered"]))
            if message.body == "acked":
                channel.basic_ack(message.delivery_tag)
            else:
                requeue = message.body == "returned" and not message.delivery_info["redelivered"]
                channel.basic_reject(message.delivery_tag, requeue=requeue)

        channel.basic_qos(0, 1, a_global=False)
        channel.basic_consume("work", callback=settle)
        while len(seen) < 4:
            connection.drain_events(timeout=5)
        assert seen == [("acked", False), ("returned", False), ("returned", True), ("rejected", False)]
        dead = [channel.basic_get("dead", no_ack=True) for _ in range(2)]
        assert [(m.body, m.headers["x-death"][0]["reason"]) for m in dead] == [
            ("returned", "rejected"),
            ("rejected", "rejected"),
        ]


def test_py_amqp_connects_again_and_finds_what_was_unacked(broker: FakeBroker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("work", durable=True, auto_delete=False)
    channel.basic_publish(amqp.Message("kept", delivery_mode=2), "", "work")
    assert channel.basic_get("work").body == "kept"
    broker.faults.drop_connections()
    with pytest.raises(OSError, match=r"[Cc]losed|[Cc]onnection|EOF"):
        connection.drain_events(timeout=5)
    connection.collect()
    with connect(broker) as again:
        message = again.channel().basic_get("work", no_ack=True)
    assert (message.body, message.delivery_info["redelivered"]) == ("kept", True)
