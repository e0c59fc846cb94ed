from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def confirming(client: Client) -> Client:
    client.channel.confirm_select()
    assert client.heard() == [events.ConfirmSelectOk(1)]
    return client


def test_publishes_are_confirmed_in_their_order(client: Client) -> None:
    client.declare("q")
    confirming(client).publish("q", "a", "b")
    assert client.heard() == [events.Ack(1, 1), events.Ack(1, 2)]


def test_a_return_comes_before_the_confirm_of_its_publish(client: Client) -> None:
    confirming(client).publish("nowhere", "a", mandatory=True)
    returned, confirmed = client.heard()
    assert (returned.code, returned.text, returned.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert confirmed == events.Ack(1, 1)


def test_what_routes_nowhere_is_confirmed_all_the_same(client: Client) -> None:
    confirming(client).publish("nowhere", "a")
    assert client.heard() == [events.Ack(1, 1)]


def test_without_confirms_a_publish_says_nothing(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    assert client.heard() == []


def test_publishing_to_a_missing_exchange_closes_the_channel_and_what_follows_is_dropped(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", exchange="missing")
    client.publish("q", "b")
    assert client.heard() == [
        events.ChannelClose(1, 404, "NOT_FOUND - no exchange 'missing' in vhost '/'", 60, 40),
    ]
    assert client.ready("q") == []


def test_publishing_to_an_internal_exchange_is_refused(client: Client) -> None:
    client.channel.exchange_declare("x", "fanout", internal=True)
    client.publish("", "a", exchange="x")
    assert client.heard()[-1].text == "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'"


def test_gets_and_deliveries_share_one_sequence_of_tags(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    assert client.get("q", ack=False).delivery_tag == 1
    client.consume("q", "t")
    client.publish("q", "b")
    assert client.heard()[-1].delivery_tag == 2


def test_an_unknown_tag_closes_the_channel_and_gives_everything_back(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_ack(7)
    assert client.heard()[-1].text == "PRECONDITION_FAILED - unknown delivery tag 7"
    assert client.ready("q") == ["a"]


def test_recover_replies_before_it_redelivers(client: Client) -> None:
    client.declare("q")
    client.consume("q", "t")
    client.publish("q", "a")
    client.heard()
    client.channel.basic_recover(requeue=True)
    reply, delivery = client.heard()
    assert reply == events.RecoverOk(1)
    assert (delivery.delivery_tag, delivery.redelivered) == (2, True)


def test_recover_async_says_nothing_itself(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_recover_async(requeue=True)
    assert client.heard() == []
    assert client.ready("q") == ["a"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda channel: channel.basic_recover(requeue=False), "NOT_IMPLEMENTED - requeue=false"),
        (lambda channel: channel.basic_qos(1, prefetch_size=5), "NOT_IMPLEMENTED - prefetch_size!=0 (5)"),
        (lambda channel: channel.basic_publish("", "q", immediate=True), "NOT_IMPLEMENTED - immediate=true"),
        (lambda channel: channel.flow(active=False), "NOT_IMPLEMENTED - active=false"),
    ],
)
def test_what_rabbitmq_does_not_implement_closes_the_connection(client: Client, call: object, text: str) -> None:
    call(client.channel)  # type: ignore[operator]  # a case
    assert client.heard()[-1].text == text
    assert not client.channel.connection.is_open


def test_a_consumer_tag_is_used_once_on_a_channel(client: Client) -> None:
    client.declare("q")
    client.consume("q", "t")
    client.consume("q", "t")
    assert client.heard()[-1].text == "NOT_ALLOWED - attempt to reuse consumer tag 't'"


def test_without_a_tag_one_is_made_up(client: Client) -> None:
    client.declare("q")
    client.channel.basic_consume("q")
    assert client.heard()[-1].consumer_tag.startswith("amq.ctag-")


def test_to_cancel_an_unknown_tag_is_no_error(client: Client) -> None:
    client.channel.basic_cancel("never")
    assert client.heard() == [events.CancelOk(1, "never")]


def test_a_consumer_hears_of_its_queues_end_after_the_reply_that_ended_it(client: Client) -> None:
    client.declare("q")
    client.consume("q", "b")
    client.consume("q", "a")
    client.heard()
    client.channel.queue_delete("q")
    assert client.heard() == [events.QueueDeleteOk(1, 0), events.Cancel(1, "a"), events.Cancel(1, "b")]


def test_a_client_that_does_not_understand_cancels_hears_nothing(client: Client) -> None:
    client.declare("q")
    channel = client.broker.connect(capabilities=frozenset()).open_channel(1)
    channel.basic_consume("q", "t")
    channel.connection.outbox.clear()
    client.channel.queue_delete("q")
    assert not channel.connection.outbox


def test_a_settlement_for_a_queue_made_anew_does_nothing(client: Client) -> None:
    client.declare("q")
    client.publish("q", "old")
    client.get("q", ack=False)
    client.channel.queue_delete("q")
    client.declare("q")
    client.channel.basic_nack(1)
    assert client.heard() == []
    assert client.ready("q") == []


def test_nowait_gets_no_reply(client: Client) -> None:
    client.channel.queue_declare("q", durable=True, nowait=True)
    client.channel.basic_consume("q", "t", nowait=True)
    client.channel.basic_cancel("t", nowait=True)
    client.channel.queue_purge("q", nowait=True)
    client.channel.queue_delete("q", nowait=True)
    client.channel.confirm_select(nowait=True)
    assert client.heard() == []
