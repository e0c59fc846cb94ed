"""What a broker's URL and the options say, as the broker sees it; and that a password is seen nowhere."""

from __future__ import annotations

import gc
import logging
import socket
import threading
import traceback
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from queuey_rabbitmq import ConnectError, Envelope, QueueConfig, QueueyError, RabbitMqBackend, RabbitMqOptions
from tests.rabbitmq.private_broker import PrivateBroker
from tests.rabbitmq.speaking import soon

USER, PASSWORD, VHOST = "j@ne/döe", "sw0rd:f/i?s#h%41&", "my/vhost 100%"

MAKE = f"""
Name = <<"{USER}"/utf8>>, VHost = <<"{VHOST}"/utf8>>,
rabbit_vhost:exists(VHost) orelse rabbit_vhost:add(VHost, <<"test">>),
rabbit_auth_backend_internal:exists(Name) orelse
    rabbit_auth_backend_internal:add_user(Name, <<"{PASSWORD}"/utf8>>, <<"test">>),
rabbit_auth_backend_internal:set_permissions(Name, VHost, <<".*">>, <<".*">>, <<".*">>, <<"test">>), <<"made">>
"""
NAMES = """
Connections = rabbit_networking:connection_info_all([client_properties]),
lists:join(<<"\\n">>, lists:sort(
    [Name || [{client_properties, Properties}] <- Connections, {<<"connection_name">>, _, Name} <- Properties]))
"""
EVERYTHING = """
Items = [name, user, vhost, auth_mechanism, client_properties],
unicode:characters_to_binary(io_lib:format("~tp", [rabbit_networking:connection_info_all(Items)]))
"""


def login(user: str = USER, password: str = PASSWORD) -> str:
    return f"{quote(user, safe='')}:{quote(password, safe='')}"


@pytest.fixture
def make_url(private_broker: PrivateBroker) -> Callable[..., str]:
    """The URL of a virtual host, and a user in it, in whose names and password is everything that must be encoded."""
    private_broker.evaluate(MAKE)
    port = urlsplit(private_broker.url).port

    def make_url(user: str = USER, password: str = PASSWORD, vhost: str = VHOST) -> str:
        return f"amqp://{login(user, password)}@127.0.0.1:{port}/{quote(vhost, safe='')}"

    return make_url


def test_names_and_a_password_that_must_be_encoded_log_in(make_url: Callable[..., str]) -> None:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}")
    with RabbitMqBackend.connect(make_url()) as backend:
        backend.declare([config])
        backend.publish(Envelope(job_id=uuid.uuid4(), job_type="x", queue=config.name, enqueued_at_ms=0, payload=None))


def test_the_operator_sees_what_a_connection_is_called(
    private_broker: PrivateBroker, make_url: Callable[..., str]
) -> None:
    options = RabbitMqOptions(connection_name="mailer 7", connection_properties={"team": "post"})
    with RabbitMqBackend.with_options(make_url(), options):
        assert private_broker.evaluate(NAMES).split("\n") == ["mailer 7 consume", "mailer 7 publish"]
        properties = private_broker.evaluate(EVERYTHING)
        assert '{<<"team">>,longstr,<<"post">>}' in properties
        assert '{<<"product">>,longstr,' in properties
    assert soon(lambda: len(private_broker.evaluate(NAMES)), 0)


def objects_of_ours(root: object) -> list[object]:
    """Everything that is reached from an object and was made by queuey or pika."""
    found, left, seen = [], [root], set()
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, (type, logging.Logger)) or type(item).__name__ == "module":
            continue
        seen.add(id(item))
        if type(item).__module__.startswith(("queuey_rabbitmq", "pika")):
            found.append(item)
        left += gc.get_referents(item) if not callable(item) or hasattr(item, "__self__") else []
    return found


def test_a_password_is_in_no_text_that_anything_makes(
    private_broker: PrivateBroker, make_url: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    options = RabbitMqOptions(connect_timeout=2, close_timeout=1, operation_timeout=2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    wrong: list[Any] = [
        make_url(password=f"{PASSWORD}x"),
        make_url(vhost="missing"),
        f"amqp://{login()}@127.0.0.1:{closed},127.0.0.1:{closed}/",
        f"amqp://{login()}@no-such-host.invalid/",
        f"amqps://{login()}@127.0.0.1:{urlsplit(private_broker.url).port}/",
        f"amqp://{login()}@127.0.0.1:{private_broker.tls_port}/",
        f"amqp://{login()}@127.0.0.1:{closed}/?no_such=1",
        f"amqp://{USER}:{PASSWORD}@127.0.0.1:{closed}/",
    ]
    for url in wrong:
        with pytest.raises(QueueyError) as failure:
            RabbitMqBackend.with_options(url, options)
        ours = [line for line in traceback.format_exception(failure.value) if "with_options(url" not in line]
        texts += [*ours, repr(failure.value)]
    with RabbitMqBackend.with_options(make_url(), options) as backend:
        objects = objects_of_ours(backend)
        assert {type(item).__name__ for item in objects} >= {"PikaLink", "BrokerParameters", "LinkSettings"}
        texts += [f"{item!r} {item!s}" for item in objects]
        texts += [thread.name for thread in threading.enumerate()]
        texts.append(private_broker.evaluate(EVERYTHING))
        with pytest.raises(QueueyError) as failure:
            backend.declare([QueueConfig("amq.reserved")])
        texts += traceback.format_exception(failure.value)
    text = caplog.text + "".join(texts)
    for secret in (PASSWORD, quote(PASSWORD, safe=""), PASSWORD[:9]):
        assert secret not in text
    assert "ACCESS_REFUSED" in text


def test_an_ipv6_literal_is_connected_to(private_broker: PrivateBroker) -> None:
    """The server listens on IPv4 alone, so it is enough that the refusal comes from the address that was meant."""
    port = urlsplit(private_broker.url).port
    with pytest.raises(ConnectError, match=rf"no TCP connection with \[::1\]:{port}: "):
        RabbitMqBackend.with_options(f"amqp://guest:guest@[::1]:{port}/", RabbitMqOptions(connect_timeout=2))
