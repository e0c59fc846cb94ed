from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_opening_a_channel_twice_closes_the_connection(client: Client) -> None:
    client.channel.connection.open_channel(1)
    assert client.heard() == [events.ConnectionClose(504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10)]


def test_closing_gives_back_what_is_not_settled_and_takes_exclusive_queues_along(client: Client) -> None:
    client.declare("shared")
    client.declare("own", exclusive=True)
    client.publish("shared", "a")
    client.get("shared", ack=False)
    client.channel.connection.close()
    assert client.heard() == [events.ConnectionCloseOk()]
    assert client.ready("shared") == ["a"]
    assert not client.exists("own")


def test_losing_a_connection_says_nothing_and_does_the_same(client: Client) -> None:
    client.declare("shared")
    client.publish("shared", "a")
    client.get("shared", ack=False)
    client.channel.connection.lose()
    assert client.heard() == []
    assert client.ready("shared") == ["a"]


def test_after_the_end_nothing_is_done_any_more(client: Client) -> None:
    connection = client.channel.connection
    connection.close()
    client.heard()
    connection.close()
    connection.open_channel(5).queue_declare("q", durable=True)
    client.channel.queue_declare("q", durable=True)
    assert client.heard() == []
    assert not client.exists("q")


def test_a_refusal_that_closes_the_connection_ends_all_its_channels(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    other = client.another(2)
    other.get("q", ack=False)
    client.channel.basic_recover(requeue=False)
    assert [type(said) for said in client.heard()] == [events.ConnectionClose]
    assert client.ready("q") == ["a"]
    assert client.broker.connection_snapshots() == []


def test_the_channel_that_is_refused_gives_back_before_those_that_were_opened_earlier(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    other = client.another(2)
    other.get("q", ack=False)
    client.consume("q", "takes all", no_ack=True)
    other.channel.basic_recover(requeue=False)
    assert client.ready("q") == []


def test_a_refused_connection_settles_nothing_for_a_quorum_queue(client: Client) -> None:
    client.declare("q", arguments={"x-queue-type": "quorum"})
    client.publish("q", "a")
    other = client.another(2)
    other.get("q", ack=False)
    client.consume("q", "takes all", no_ack=True)
    observer = client.stranger()
    other.channel.basic_recover(requeue=False)
    assert observer.headers(observer.get("q"))["x-delivery-count"] == 2


def test_a_front_end_learns_who_has_something_to_say(client: Client) -> None:
    waiting = client.broker.connections_with_output
    waiting.clear()
    client.declare("q")
    assert list(waiting) == [client.channel.connection]
    waiting.clear()
    client.publish("q", "a")
    assert not waiting
