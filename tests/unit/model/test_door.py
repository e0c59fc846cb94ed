from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import events
from queuey_fake.model.door import ChannelState

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def refused(client: Client) -> events.Event:
    client.channel.queue_declare("missing", passive=True)
    return client.heard()[-1]


def test_a_refusal_names_the_method_that_caused_it(client: Client) -> None:
    assert refused(client) == events.ChannelClose(1, 404, "NOT_FOUND - no queue 'missing' in vhost '/'", 50, 10)


def test_calls_on_a_closing_channel_are_dropped(client: Client) -> None:
    refused(client)
    client.channel.queue_declare("q", durable=True)
    client.channel.queue_declare("missing", passive=True)
    assert client.heard() == []
    assert not client.exists("q")


def test_after_the_clients_close_ok_the_number_can_be_opened_again(client: Client) -> None:
    refused(client)
    client.channel.close_ok()
    assert client.channel.state is ChannelState.CLOSED
    again = client.channel.connection.open_channel(1)
    assert again is not client.channel
    assert client.heard() == [events.ChannelOpenOk(1)]


def test_a_client_that_closes_while_the_broker_does_still_gets_its_reply(client: Client) -> None:
    refused(client)
    client.channel.close()
    assert client.heard() == [events.ChannelCloseOk(1)]


def test_closing_gives_back_what_is_not_settled(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    other = client.another(2)
    other.consume("q", "t")
    client.heard()
    client.channel.close()
    said = client.heard()
    assert said[0].redelivered is True
    assert said[-1] == events.ChannelCloseOk(1)


def test_a_refusal_gives_back_what_is_not_settled_and_leaves_other_channels_alone(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    other = client.another(2)
    other.get("q", ack=False)
    refused(client)
    assert client.ready("q") == ["a"]
    other.channel.basic_ack(1)
    assert client.heard() == []


def test_flow_on_is_answered(client: Client) -> None:
    client.channel.flow(active=True)
    assert client.heard() == [events.FlowOk(1, active=True)]
