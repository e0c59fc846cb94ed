"""kombu, over its pyamqp transport."""

from typing import Any

import pytest

from queuey_fake import FakeBroker

kombu = pytest.importorskip("kombu")
amqp = pytest.importorskip("amqp")


def test_kombu_works_a_queue_off(broker: FakeBroker, dead_lettered: dict[str, str]) -> None:
    with kombu.Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        channel = connection.default_channel
        exchange = kombu.Exchange("jobs", "topic", durable=True)
        dead = kombu.Queue("dead", channel=channel)
        work = kombu.Queue("work", exchange, "job.#", queue_arguments=dead_lettered)
        dead.declare()
        returned: list[Any] = []
        producer = kombu.Producer(channel, exchange, on_return=lambda *said: returned.append(said))
        for body in ("acked", "returned", "rejected"):
            producer.publish({"n": body}, routing_key="job.one", declare=[work], mandatory=True)
        producer.publish({"n": "lost"}, routing_key="other", mandatory=True)
        assert [said[0].reply_code for said in returned] == [312]
        seen: list[Any] = []

        def settle(body: Any, message: Any) -> None:
            is_again = message.delivery_info["redelivered"]
            seen.append((body["n"], is_again))
            if body["n"] == "acked":
                message.ack()
            else:
                message.reject(requeue=body["n"] == "returned" and not is_again)

        with kombu.Consumer(channel, [work], callbacks=[settle], prefetch_count=1):
            while len(seen) < 4:
                connection.drain_events(timeout=5)
        assert seen == [("acked", False), ("returned", False), ("returned", True), ("rejected", False)]
        deaths = [dead.get(no_ack=True).headers["x-death"][0] for _ in range(2)]
        assert [(death["queue"], death["reason"]) for death in deaths] == [("work", "rejected")] * 2


def test_kombu_publishes_again_over_a_connection_of_its_own_making(broker: FakeBroker) -> None:
    with kombu.Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue("work")
        producer = kombu.Producer(connection)
        producer.publish("first", routing_key="work", declare=[queue], retry=True)
        broker.faults.drop_connections()
        producer.publish("second", routing_key="work", declare=[queue], retry=True, retry_policy={"max_retries": 3})
        bound = queue(connection.default_channel)
        assert [bound.get(no_ack=True).payload for _ in range(2)] == ["first", "second"]
