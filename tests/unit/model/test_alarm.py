"""A resource alarm; measured on 3.10.8, 4.0.5 and 4.3.6 with a memory limit of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_an_alarm_blocks_a_connection_at_its_first_publish_whether_it_published_before_or_not(client: Client) -> None:
    client.declare("q")
    client.publish("q", "before")
    other = client.stranger()
    client.broker.set_alarm("low on memory")
    assert (client.heard(), other.heard()) == ([], [])
    for publisher in (client, other):
        assert publisher.channel.connection.blocks_publish()
        assert publisher.heard() == [events.ConnectionBlocked("low on memory")]
        assert publisher.channel.connection.blocks_publish()
        assert publisher.heard() == []


def test_the_end_of_an_alarm_unblocks_and_says_so_to_those_who_were_told(client: Client) -> None:
    other = client.stranger()
    client.broker.set_alarm("low on disk")
    client.channel.connection.blocks_publish()
    client.heard()
    client.broker.set_alarm(None)
    assert client.heard() == [events.ConnectionUnblocked()]
    assert other.heard() == []
    assert not client.channel.connection.blocks_publish()


def test_a_client_that_does_not_understand_it_is_blocked_without_a_word(client: Client) -> None:
    connection = client.broker.connect(capabilities=frozenset())
    client.broker.set_alarm("low on memory")
    assert connection.blocks_publish()
    assert not connection.outbox
    client.broker.set_alarm(None)
    assert not connection.is_blocked
    assert connection in client.broker.connections_with_output  # its front end reads on
