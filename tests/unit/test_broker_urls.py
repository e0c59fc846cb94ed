"""What a broker's URL may say, and that a refusal says why without showing what may be secret."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq.broker_urls import BrokerAddress, TlsParameters, parse
from queuey_rabbitmq.core.errors import InvalidConfigError

PASSWORD = "sw0rdfish-in-the-url"


def test_what_is_not_said_is_as_rabbitmq_has_it_after_its_installation() -> None:
    assert parse("amqp://") == (
        BrokerAddress(host="localhost", port=5672, user="guest", password="guest", virtual_host="/"),
    )
    assert parse("amqps://")[0].port == 5671


def test_user_password_and_virtual_host_are_percent_decoded() -> None:
    (address,) = parse("amqp://a%40b:p%3A%2F%3F%23%40%25@host/my%2Fvhost%20%C3%A9")
    assert (address.user, address.password, address.virtual_host) == ("a@b", "p:/?#@%", "my/vhost é")


def test_a_plus_is_a_plus() -> None:
    (address,) = parse("amqp://a+b:c+d@host/e+f")
    assert (address.user, address.password, address.virtual_host) == ("a+b", "c+d", "e+f")


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        ("a", [("a", 5672)]),
        ("a:5673", [("a", 5673)]),
        ("a:", [("a", 5672)]),
        (":5673", [("localhost", 5673)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        ("a,b:2,c", [("a", 5672), ("b", 2), ("c", 5672)]),
        ("[::1]", [("::1", 5672)]),
        ("[::1]:5673,10.0.0.1:5674,[2001:db8::2]", [("::1", 5673), ("10.0.0.1", 5674), ("2001:db8::2", 5672)]),
    ],
)
def test_nodes_are_separated_by_commas_and_share_the_rest(hosts: str, nodes: list[tuple[str, int]]) -> None:
    addresses = parse(f"amqp://u:p@{hosts}/v?heartbeat=7")
    assert [(address.host, address.port) for address in addresses] == nodes
    assert {(a.user, a.password, a.virtual_host, a.heartbeat) for a in addresses} == {("u", "p", "v", 7)}


def test_several_urls_are_nodes_with_everything_of_their_own() -> None:
    first, second = parse(["amqp://u:p@a/v", "amqps://b:1?heartbeat=3"])
    assert (first.host, first.user, first.virtual_host, first.tls) == ("a", "u", "v", None)
    assert (second.host, second.port, second.user, second.heartbeat) == ("b", 1, "guest", 3)
    assert second.tls == TlsParameters()


def test_an_address_is_shown_as_host_and_port() -> None:
    assert [str(address) for address in parse(f"amqp://u:{PASSWORD}@a,[::1]:7")] == ["a:5672", "[::1]:7"]
    assert PASSWORD not in repr(parse(f"amqps://u:{PASSWORD}@a?certfile=c&password={PASSWORD}"))


def test_tls_is_described_in_rabbitmqs_words() -> None:
    (address,) = parse(
        "amqps://host?cacertfile=%2Fca.pem&certfile=c.pem&keyfile=k.pem&password=%26&verify=verify_none"
        "&server_name_indication=other"
    )
    assert address.tls == TlsParameters(
        cacertfile="/ca.pem", certfile="c.pem", keyfile="k.pem", password="&", verify=False, server_name="other"
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "begins with neither amqp:// nor amqps://"),
        (f"http://user:{PASSWORD}@host", "begins with neither"),
        (f"amqp://user:{PASSWORD}#@host/", "is not percent-encoded"),
        (f"amqp://user:{PASSWORD}?@host/", "is not percent-encoded"),
        (f"amqp://user:{PASSWORD}/@host", "is not percent-encoded"),
        (f"amqp://user:12/{PASSWORD}@host", "is not percent-encoded"),
        (f"amqp://user:{PASSWORD}@x@host", "is not percent-encoded"),
        (f"amqp://u:{PASSWORD}@a,u:{PASSWORD}@b", "is not percent-encoded"),
        (f"amqp://user:{PASSWORD}%@host", "two hexadecimal digits"),
        (f"amqp://user:{PASSWORD}@host/a/b", "within the vhost"),
        (f"amqp://user:{PASSWORD}@host:{PASSWORD}/", "not host:port"),
        (f"amqp://u:{PASSWORD}@a;amqp://b", "within the vhost"),
        (f"amqp://user:{PASSWORD}@a,,b", "not host:port"),
        (f"amqp://user:{PASSWORD}@::1", "not host:port"),
        (f"amqp://user:{PASSWORD}@[::1", "is not host:port"),
        (f"amqp://user:{PASSWORD}@a,[b]:1", "not an IPv6 address"),
        (f"amqp://user:{PASSWORD}@a b", "a space, a line break"),
        (f"amqp://user:{PASSWORD}@host:0", "1 to 65535"),
        (f"amqp://user:{PASSWORD}@host:65536", "1 to 65535"),
        ("amqp://user@host", "a user without a password"),
        (f"amqp://:{PASSWORD}@host", "a password without a user"),
        (f"amqp://host?{PASSWORD}", "name=value"),
        (f"amqp://host?heartbeat={PASSWORD}", "heartbeat is not an integer from 0 to 65535"),
        ("amqp://host?heartbeat=65536", "heartbeat is not an integer"),
        ("amqp://host?heartbeat=-1", "heartbeat is not an integer"),
        ("amqp://host?frame_max=4095", "frame_max is not an integer from 4096"),
        ("amqp://host?heartbeat=1&heartbeat=2", "given twice"),
        (f"amqp://host?no_such={PASSWORD}", "no parameter no_such; there are cacertfile, certfile, channel_max"),
        ("amqp://host?connection_attempts=3", r"RabbitMqOptions\(reconnect=...\)"),
        ("amqp://host?socket_timeout=3", r"RabbitMqOptions\(connect_timeout=...\)"),
        ("amqp://host?blocked_connection_timeout=3", r"RabbitMqOptions\(operation_timeout=...\)"),
        ("amqp://host?client_properties={}", r"RabbitMqOptions\(connection_properties=...\)"),
        ("amqps://host?ssl_options={}", r"RabbitMqOptions\(ssl_context=...\)"),
        ("amqps://host?auth_mechanism=external", "PLAIN is the only one"),
        ("amqp://host?verify=verify_none", "verify is about TLS, which amqps:// speaks"),
        ("amqps://host?verify=no", "neither verify_peer nor verify_none"),
        ("amqps://host?cacertfile=", "cacertfile is empty"),
        ("amqps://host?keyfile=k", "keyfile goes with certfile"),
        (f"amqps://host?password={PASSWORD}", "password goes with certfile"),
        ("amqps://host?server_name_indication=disable", "not supported"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason_and_without_secrets(url: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason) as refusal:
        parse(url)
    assert "percent-encoded (the vhost / is %2f)" in str(refusal.value)
    assert PASSWORD not in "".join(traceback.format_exception(refusal.value)).replace(repr(url), "")


@pytest.mark.parametrize(("urls", "reason"), [([], "empty"), (None, "NoneType"), (b"amqp://", "bytes"), ([1], "list")])
def test_what_is_no_url_is_refused(urls: object, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"the broker's URL: .*{reason}"):
        parse(urls)  # type: ignore[arg-type]  # the mistake


@given(st.text())
def test_any_text_is_taken_or_refused(text: str) -> None:
    for url in (text, f"amqp://{text}", f"amqp://u:{text}@host", f"amqps://host/?{text}"):
        try:
            addresses = parse(url)
        except InvalidConfigError:
            continue
        assert addresses
