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
