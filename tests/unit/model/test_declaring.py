from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events
from queuey_fake.model.fields import table_from_python

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_a_declaration_tells_ready_messages_and_consumers(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    assert client.declare("q") == events.QueueDeclareOk(1, "q", message_count=1, consumer_count=0)
    client.consume("q", "t")
    assert client.declare("q") == events.QueueDeclareOk(1, "q", message_count=0, consumer_count=1)


def test_a_second_declaration_must_say_the_same(client: Client) -> None:
    client.declare("q", arguments={"x-max-priority": 5})
    said = client.declare("q", arguments={"x-max-priority": 6})
    assert said.text == (
        "PRECONDITION_FAILED - inequivalent arg 'x-max-priority' for queue 'q' in vhost '/': "
        "received '6' but current is '5'"
    )


def test_a_passive_declaration_looks_at_the_name_alone(client: Client) -> None:
    client.declare("q", arguments={"x-max-priority": 5})
    assert client.declare("q", durable=False, passive=True, arguments={"x-max-priority": 9}).queue == "q"
    assert client.declare("none", passive=True).text == "NOT_FOUND - no queue 'none' in vhost '/'"


def test_without_a_name_one_is_made_up_that_cannot_be_declared_again(client: Client) -> None:
    name = client.declare("").queue
    assert name.startswith("amq.gen-")
    assert client.declare(name, passive=True).queue == name
    assert client.declare(name).text == f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"


def test_an_empty_name_stands_for_the_queue_declared_last_on_the_channel(client: Client) -> None:
    client.declare("first")
    client.declare("last")
    client.publish("last", "a", "b")
    assert client.get("").body == b"a"
    client.channel.queue_bind("", "amq.direct", "")
    assert [one.routing_key for one in client.broker.binding_snapshots()] == ["last"]
    client.channel.queue_purge("")
    assert client.heard()[-1] == events.QueuePurgeOk(1, 1)
    client.channel.queue_delete("")
    assert not client.exists("last")


def test_another_channel_has_declared_nothing(client: Client) -> None:
    client.declare("q")
    other = client.another(2)
    other.channel.basic_get("")
    assert other.heard()[-1].text == "NOT_FOUND - no previously declared queue"


def test_a_passive_declaration_of_no_name_is_not_the_last_declared_queue(client: Client) -> None:
    client.declare("q")
    assert client.declare("", passive=True).text == "NOT_FOUND - no queue '' in vhost '/'"


@pytest.mark.parametrize("call", ["declare", "passive", "get", "consume", "delete", "purge", "bind"])
def test_an_exclusive_queue_is_locked_for_other_connections(client: Client, call: str) -> None:
    client.declare("q", exclusive=True)
    channel = client.stranger().channel
    calls = {
        "declare": lambda: channel.queue_declare("q", durable=True, exclusive=True),
        "passive": lambda: channel.queue_declare("q", passive=True),
        "get": lambda: channel.basic_get("q"),
        "consume": lambda: channel.basic_consume("q"),
        "delete": lambda: channel.queue_delete("q"),
        "purge": lambda: channel.queue_purge("q"),
        "bind": lambda: channel.queue_bind("q", "amq.direct", "k"),
    }
    calls[call]()
    said = channel.connection.outbox[-1]
    assert (said.code, "cannot obtain exclusive access to locked queue 'q'" in said.text) == (405, True)


def test_anybody_may_publish_to_an_exclusive_queue(client: Client) -> None:
    client.declare("q", exclusive=True)
    client.stranger().publish("q", "a")
    assert client.ready("q") == ["a"]


def test_nobody_else_may_unbind_an_exclusive_queue_from_where_it_is_bound(client: Client) -> None:
    client.declare("q", exclusive=True)
    client.channel.queue_bind("q", "amq.direct", "k")
    channel = client.stranger().channel
    channel.queue_unbind("q", "amq.direct", "another")
    assert channel.connection.outbox[-1] == events.QueueUnbindOk(1)
    channel.queue_unbind("q", "amq.direct", "k")
    said = channel.connection.outbox[-1]
    assert (said.code, "cannot obtain exclusive access to locked queue 'q'" in said.text) == (405, True)
    assert len(client.broker.binding_snapshots()) == 1


def test_the_owner_is_locked_out_too_when_the_flag_differs(client: Client) -> None:
    client.declare("q", exclusive=True)
    assert client.declare("q").code == 405


def test_an_exclusive_queue_takes_no_notice_of_durable(client: Client) -> None:
    client.declare("q", exclusive=True, durable=True)
    assert client.declare("q", exclusive=True, durable=False).queue == "q"


def test_deleting_answers_with_the_ready_messages_and_missing_queues_have_none(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", "b", "c")
    client.get("q", ack=False)
    client.channel.queue_delete("q")
    client.channel.queue_delete("q")
    assert client.heard() == [events.QueueDeleteOk(1, 2), events.QueueDeleteOk(1, 0)]


def test_when_both_conditions_of_a_deletion_fail_it_is_the_messages_that_are_named(client: Client) -> None:
    client.declare("q")
    client.consume("q", "t", prefetch=1)
    client.publish("q", "a", "b")
    client.channel.queue_delete("q", if_unused=True, if_empty=True)
    assert client.heard()[-1].text == "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"


def test_line_ends_in_names_are_dropped(client: Client) -> None:
    assert client.declare("a\r\nb").queue == "ab"


def test_newest_rabbitmq_refuses_transient_queues_that_are_not_exclusive_unless_permitted() -> None:
    from queuey_fake.model.broker import Broker

    channel = Broker(version="4.3").connect().open_channel(1)
    channel.queue_declare("q", durable=False)
    said = channel.connection.outbox[-1]
    assert (said.code, type(said)) == (541, events.ConnectionClose)


def test_arguments_that_are_refused_make_no_queue(client: Client) -> None:
    client.channel.queue_declare("q", durable=True, arguments=table_from_python({"x-message-ttl": -1}))
    assert client.heard()[-1].code == 406
    assert not client.exists("q")
