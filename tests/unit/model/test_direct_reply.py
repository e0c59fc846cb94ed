from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client

REPLY_TO = "amq.rabbitmq.reply-to"


def asked(client: Client) -> str:
    """Send a request and return the address to which it wants its reply."""
    client.declare("requests")
    client.channel.basic_consume(REPLY_TO, "replies", no_ack=True)
    client.publish("requests", "question", reply_to=REPLY_TO)
    client.heard()
    return str(client.another(9).get("requests").properties.reply_to)


@pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
def test_a_reply_goes_straight_to_the_channel_that_asked(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    address = asked(client)
    assert address.startswith(REPLY_TO + ".")
    client.stranger().publish(address, "answer")
    assert client.delivered() == [("replies", "answer")]


@pytest.mark.parametrize(("version", "returns"), [("3.10", 1), ("4.0", 1), ("4.3", 0)])
def test_before_4_3_a_mandatory_reply_is_returned_though_it_is_delivered(
    connect: Callable[..., Client], version: str, returns: int
) -> None:
    client = connect(version)
    address = asked(client)
    other = client.stranger()
    other.publish(address, "answer", mandatory=True)
    assert [type(said) for said in other.heard()] == [events.Return] * returns
    assert client.delivered() == [("replies", "answer")]


def test_without_a_reply_consumer_no_reply_can_be_asked_for(client: Client) -> None:
    client.publish("q", "question", reply_to=REPLY_TO)
    assert client.heard()[-1].text == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_replies_are_consumed_without_acknowledgement_and_by_one_consumer(client: Client) -> None:
    client.channel.basic_consume(REPLY_TO, "t")
    assert client.heard()[-1].text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    other = client.another(2)
    other.channel.basic_consume(REPLY_TO, "t", no_ack=True)
    other.channel.basic_consume(REPLY_TO, "u", no_ack=True)
    assert client.heard()[-1].text == "PRECONDITION_FAILED - reply consumer already set"


def test_an_address_can_be_declared_while_somebody_listens(client: Client) -> None:
    address = asked(client)
    assert client.declare(address) == events.QueueDeclareOk(1, address, message_count=0, consumer_count=1)
    client.channel.basic_cancel("replies")
    client.heard()
    assert client.declare(address).code == 404


@pytest.mark.parametrize(("version", "code"), [("3.10", 404), ("4.0", 404), ("4.3", 541)])
def test_an_address_that_was_never_given_out(connect: Callable[..., Client], version: str, code: int) -> None:
    client = connect(version)
    assert client.declare(f"{REPLY_TO}.bogus", passive=True).code == code


@pytest.mark.parametrize("address", [f"{REPLY_TO}.x.y", f"{REPLY_TO}.YWJj.k"])
@pytest.mark.parametrize("version", ["3.10", "4.0"])
def test_before_4_3_an_address_of_two_words_that_was_never_given_out_crashes_its_reader(
    connect: Callable[..., Client], version: str, address: str
) -> None:
    client = connect(version)
    for call in (
        lambda each: each.channel.queue_declare(address, passive=True),
        lambda each: each.publish(address, "m"),
        lambda each: each.publish("q", "m", headers={"CC": [address]}),
    ):
        other = client.stranger()
        call(other)
        assert [said.code for said in other.heard()] == [541]


@pytest.mark.parametrize(("version", "address"), [("4.0", f"{REPLY_TO}.x"), ("4.0", f"{REPLY_TO}.x.y.z")])
def test_one_word_or_three_are_no_address(connect: Callable[..., Client], version: str, address: str) -> None:
    client = connect(version)
    client.channel.queue_declare(address, passive=True)
    assert client.heard()[-1].code == 404


@pytest.mark.parametrize(("version", "is_told"), [("3.10", True), ("4.0", False), ("4.3", True)])
def test_dead_letters_are_replies_but_in_4_0(connect: Callable[..., Client], version: str, *, is_told: bool) -> None:
    client = connect(version)
    address = asked(client)
    other = client.stranger()
    other.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": address})
    other.publish("q", "m")
    other.get("q", ack=False)
    other.channel.basic_reject(1, requeue=False)
    assert client.delivered() == [("replies", "m")] * is_told


def test_3_10_sends_a_reply_before_the_transaction_is_committed_and_once(connect: Callable[..., Client]) -> None:
    client = connect("3.10")
    address = asked(client)
    other = client.stranger()
    other.channel.tx_select()
    other.publish(address, "m")
    assert client.delivered() == [("replies", "m")]
    other.channel.tx_commit()
    assert client.delivered() == []


def test_from_4_3_on_an_address_is_a_queue_of_its_own_kind(client: Client) -> None:
    address = asked(client)
    told = []
    for call in (
        lambda channel: channel.basic_consume(address),
        lambda channel: channel.queue_bind(address, "amq.direct"),
        lambda channel: channel.queue_unbind(address, "amq.direct"),
        lambda channel: channel.queue_purge(address),
        lambda channel: channel.basic_get(address),
    ):
        other = client.stranger()
        call(other.channel)
        told += [getattr(said, "text", said) for said in other.heard()]
    queue = f"queue '{address}' in vhost '/'"
    assert told == [
        f"PRECONDITION_FAILED - only creator channel may consume from {queue}",
        "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue",
        "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue",
        events.QueuePurgeOk(1, 0),
        f"NOT_IMPLEMENTED - basic.get not supported by volatile {queue}",
    ]
    client.channel.basic_consume(address)
    assert client.heard()[-1].text == f"PRECONDITION_FAILED - multiple consumers are unsupported for {queue}"
