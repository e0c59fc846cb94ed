from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queuey_fake.model.broker import Broker
from queuey_fake.model.errors import ConnectionException

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_a_vhost_that_there_is_not_cannot_be_connected_to() -> None:
    broker = Broker()
    with pytest.raises(ConnectionException, match="NOT_ALLOWED - vhost nope not found"):
        broker.connect(vhost="nope")
    broker.add_vhost("nope")
    assert broker.connect(vhost="nope").is_open


def test_vhosts_share_nothing(client: Client) -> None:
    client.declare("q")
    client.broker.add_vhost("other")
    channel = client.broker.connect(vhost="other").open_channel(1)
    channel.basic_publish("", "q", body=b"a")
    assert client.ready("q") == []
    assert client.broker.queue_snapshot("q", vhost="other") is None


def test_time_may_be_set_back(client: Client) -> None:
    client.broker.run_due(1000)
    client.broker.run_due(500)
    assert client.broker.now_ms == 500


def test_a_jump_ends_where_many_steps_end(client: Client) -> None:
    stepped = Broker(version="4.3")
    jumped = Broker(version="4.3")
    for broker in (stepped, jumped):
        channel = broker.connect().open_channel(1)
        hold = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"}
        chained = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "c"}
        _declare(channel, "c", {})
        _declare(channel, "b", {**chained, "x-message-ttl": 70})
        _declare(channel, "a", {**hold, "x-message-ttl": 50})
        for _ in range(3):
            channel.basic_publish("", "a", body=b"m")
    jumped.run_due(1000)
    for instant in range(0, 1001, 10):
        stepped.run_due(instant)
    assert jumped.queue_snapshots() == stepped.queue_snapshots()
    assert jumped.queue_snapshot("c").ready == 3  # type: ignore[union-attr]  # it was declared


def _declare(channel: object, queue: str, arguments: dict[str, object]) -> None:
    from queuey_fake.model.fields import table_from_python

    channel.queue_declare(queue, durable=True, arguments=table_from_python(arguments))  # type: ignore[attr-defined]  # a channel


def test_the_next_due_instant_can_be_taken_by_itself(client: Client) -> None:
    client.declare("d")
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"}
    client.declare("q", arguments={**to_dead, "x-message-ttl": 100})
    client.publish("q", "a")
    client.wait(50)
    client.publish("q", "b")
    assert client.broker.next_due_ms() == 100
    assert client.broker.run_next(500)
    assert (client.broker.now_ms, client.ready("d")) == (100, ["a"])
    assert client.broker.run_next(500)
    assert (client.broker.now_ms, client.ready("d")) == (150, ["a", "b"])
    assert not client.broker.run_next(500)
    assert client.broker.now_ms == 150


def test_run_next_leaves_what_is_due_later(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100})
    assert not client.broker.run_next(99)
    assert client.exists("q")


def test_two_things_due_at_one_instant_happen_in_one_go_in_the_order_they_were_set(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100, "x-message-ttl": 100, "x-dead-letter-exchange": "amq.fanout"})
    client.declare("d")
    client.channel.queue_bind("d", "amq.fanout")
    client.publish("q", "a")
    assert client.broker.run_next(100)
    assert not client.exists("q")
    assert client.ready("d") == []


def test_deliveries_happen_at_the_instant_that_causes_them(client: Client) -> None:
    client.declare("work")
    client.declare(
        "hold", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    )
    client.consume("work", "t")
    client.publish("hold", "a")
    client.heard()
    client.broker.run_next(1000)
    assert client.delivered() == [("t", "a")]
