from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def refusal(client: Client) -> str:
    said = client.heard()[-1]
    assert isinstance(said, events.ChannelClose), said
    return said.text.removeprefix("PRECONDITION_FAILED - ")


def test_an_expiration_that_is_no_number_closes_the_channel_even_when_nothing_routes(client: Client) -> None:
    client.publish("nowhere", "m", expiration="abc")
    assert refusal(client) == "invalid expiration 'abc': no_integer"


def test_a_missing_exchange_is_noticed_before_an_invalid_expiration(client: Client) -> None:
    client.publish("q", "m", exchange="missing", expiration="abc")
    assert client.heard()[-1].code == 404


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("3.10", "user_id property set to 'other' but authenticated user was 'guest'"),
        ("4.0", "invalid expiration 'bad': no_integer"),
    ],
)
def test_3_10_checks_the_user_before_the_expiration(connect: Callable[..., Client], version: str, text: str) -> None:
    client = connect(version)
    client.publish("q", "m", expiration="bad", user_id="other")
    assert refusal(client) == text


def test_the_user_itself_may_be_named(client: Client) -> None:
    client.declare("q")
    client.publish("q", "m", user_id="guest")
    assert client.get("q").properties.user_id == "guest"


@pytest.mark.parametrize(("header", "value", "type_"), [("CC", "x", "longstr"), ("BCC", 1, "signedint")])
def test_cc_and_bcc_must_be_arrays(client: Client, header: str, value: Any, type_: str) -> None:
    client.publish("q", "m", headers={header: value})
    assert refusal(client) == f'invalid message: {{unacceptable_type_in_header,"{header}",{type_}}}'


def test_copies_go_to_the_queues_of_cc_and_bcc_once_each(client: Client) -> None:
    for queue in "abc":
        client.declare(queue)
    client.publish("a", "m", headers={"CC": ["b", "a", 7], "BCC": ["c"]})
    assert [client.ready(queue) for queue in "abc"] == [["m"], ["m"], ["m"]]
    assert client.headers(client.get("c")) == {"CC": ["b", "a", 7]}


def test_a_return_shows_cc_and_not_bcc(client: Client) -> None:
    client.publish("nowhere", "m", mandatory=True, headers={"CC": ["no"], "BCC": ["one"]})
    (returned,) = client.heard()
    assert list(returned.properties.headers) == ["CC"]


@pytest.mark.parametrize(("version", "is_refused"), [("3.10", True), ("4.0", False), ("4.3", False)])
def test_only_3_10_refuses_a_delivery_mode_that_it_does_not_know(
    connect: Callable[..., Client], version: str, *, is_refused: bool
) -> None:
    client = connect(version)
    client.publish("nowhere", "m", delivery_mode=3)
    assert bool(client.heard()) is is_refused


@pytest.mark.parametrize(("version", "delivered"), [("3.10", "007"), ("4.3", "7")])
def test_rabbitmq_4_delivers_the_expiration_that_it_understood(
    connect: Callable[..., Client], version: str, delivered: str
) -> None:
    client = connect(version)
    client.declare("q")
    client.publish("q", "m", expiration="007")
    assert client.get("q").properties.expiration == delivered


def test_a_body_over_the_limit_of_the_version_is_refused(client: Client) -> None:
    client.publish("q", "x" * 16_777_217)
    assert refusal(client) == "message size 16777217 is larger than configured max size 16777216"
