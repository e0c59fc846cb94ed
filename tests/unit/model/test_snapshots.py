from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model.snapshots import Pending

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_a_queue_is_shown_with_what_it_holds(client: Client) -> None:
    client.declare("q", arguments={"x-message-ttl": 100, "x-expires": 500})
    client.publish("q", "a", "b", "c")
    client.get("q", ack=False)
    snapshot = client.broker.queue_snapshot("q")
    assert snapshot is not None
    assert (snapshot.ready, snapshot.unacked, snapshot.consumers) == (2, 1, 0)
    assert [(message.body, message.is_unacked, message.expires_at_ms) for message in snapshot.messages] == [
        (b"b", False, 100),
        (b"c", False, 100),
        (b"a", True, 100),
    ]
    assert (snapshot.type, snapshot.durable, snapshot.exclusive, snapshot.auto_delete) == (
        "classic",
        True,
        False,
        False,
    )
    assert snapshot.arguments["x-message-ttl"].value == 100


def test_looking_renews_no_lease(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.wait(60)
    client.broker.queue_snapshot("q")
    client.broker.queue_snapshots()
    client.broker.pending()
    client.wait(40)
    assert not client.exists("q")


def test_there_is_no_snapshot_of_what_there_is_not(client: Client) -> None:
    assert client.broker.queue_snapshot("none") is None


def test_exchanges_bindings_and_connections_are_shown(client: Client) -> None:
    client.declare("q")
    client.channel.queue_bind("q", "amq.direct", "k")
    client.consume("q", "t")
    (binding,) = client.broker.binding_snapshots()
    assert (binding.source, binding.destination_type, binding.destination, binding.routing_key) == (
        "amq.direct",
        "queue",
        "q",
        "k",
    )
    (connection,) = client.broker.connection_snapshots()
    assert (connection.channels, connection.consumers) == ((1,), ((1, "t", "q"),))
    assert {one.name for one in client.broker.exchange_snapshots()} >= {"", "amq.direct", "amq.topic"}


def test_pending_says_what_is_due_soonest_first(client: Client) -> None:
    client.declare("b", arguments={"x-message-ttl": 100, "x-expires": 500})
    client.declare("a", arguments={"x-message-ttl": 50})
    client.publish("b", "1", "2")
    client.publish("a", "3")
    assert client.broker.pending() == [
        Pending(vhost="/", queue="a", due_at_ms=50, count=1, what="message expires"),
        Pending(vhost="/", queue="b", due_at_ms=100, count=2, what="message expires"),
        Pending(vhost="/", queue="b", due_at_ms=500, count=2, what="queue expires"),
    ]


def test_pending_tells_what_a_longer_head_holds_back(client: Client) -> None:
    client.declare("q")
    client.publish("q", "slow", expiration="1000")
    client.publish("q", "quick", "quicker", expiration="10")
    client.wait(100)
    assert client.broker.pending() == [
        Pending(vhost="/", queue="q", due_at_ms=1000, count=3, what="message expires", held_back=2)
    ]


def test_pending_tells_what_waits_for_ever_behind_a_head_that_does_not_expire(client: Client) -> None:
    client.declare("q")
    client.publish("q", "eternal")
    client.publish("q", "quick", expiration="10")
    assert client.broker.pending() == [
        Pending(vhost="/", queue="q", due_at_ms=None, count=1, what="message expires", held_back=1)
    ]
    assert "never" in str(client.broker.pending()[0])


def test_a_queue_with_a_consumer_does_not_expire(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.consume("q", "t")
    assert client.broker.pending() == []
