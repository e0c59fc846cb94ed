"""A test sees queues, exchanges, bindings and connections, in process and over HTTP, and disturbs none of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pika
import pytest

from queuey_fake import FakeBroker, ManualClock
from queuey_fake.control import ControlServer
from queuey_fake.service import Service
from queuey_rabbitmq import QueueConfig, RabbitMqOptions
from tests.unit.fake.test_service import ask


def connected(url: str, name: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def test_exchanges_are_shown_with_what_they_were_declared_with(broker: FakeBroker) -> None:
    with connected(broker.url, "any") as connection:
        channel = connection.channel()
        channel.exchange_declare("x", "topic", internal=True, arguments={"alternate-exchange": "amq.fanout"})
    shown = {exchange.name: exchange for exchange in broker.exchanges()}
    assert {"", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"} < shown.keys()
    exchange = shown["x"]
    assert (exchange.type, exchange.durable, exchange.auto_delete, exchange.internal, exchange.arguments) == (
        "topic",
        False,
        False,
        True,
        {"alternate-exchange": "amq.fanout"},
    )


def test_bindings_are_shown_with_both_ends(broker: FakeBroker) -> None:
    with connected(broker.url, "any") as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "amq.headers", "k", arguments={"x-match": "any", "n": 1})
        channel.exchange_bind("amq.fanout", "amq.topic", "#")
    assert {
        (each.source, each.destination_type, each.destination, each.routing_key, tuple(each.arguments.items()))
        for each in broker.bindings()
    } == {
        ("amq.headers", "queue", "q", "k", (("x-match", "any"), ("n", 1))),
        ("amq.topic", "exchange", "amq.fanout", "#", ()),
    }


def test_connections_over_the_port_are_shown_while_they_are_open(broker: FakeBroker) -> None:
    with connected(broker.url, "reports") as connection:
        connection.channel()
        connection.channel(channel_number=7)
        [shown] = broker.connections()
        assert (shown.name, shown.user, shown.vhost, shown.channels) == ("reports", "guest", "/", (1, 7))
    assert broker.connections() == []


@pytest.mark.parametrize(("ours", "expected"), [(None, "publish"), ("billing", "billing publish")])
def test_connections_of_a_backend_have_the_names_they_have_on_a_real_broker(
    broker: FakeBroker, ours: str | None, expected: str
) -> None:
    broker.backend(RabbitMqOptions(connection_name=ours)).declare([QueueConfig("jobs")])
    assert expected in {connection.name for connection in broker.connections()}


def test_a_connection_that_says_no_name_has_none(broker: FakeBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)):
        assert [connection.name for connection in broker.connections()] == [None]


def test_what_is_shown_cannot_be_changed(broker: FakeBroker) -> None:
    with connected(broker.url, "any") as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "amq.direct", "k")
        shown: list[Any] = [broker.queues()[0], broker.exchanges()[0], broker.bindings()[0], broker.connections()[0]]
    for value in shown:
        assert not hasattr(value, "__dict__")
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "changed")


def test_looking_at_everything_renews_no_lease(broker: FakeBroker) -> None:
    with connected(broker.url, "any") as connection:
        connection.channel().queue_declare("q", durable=True, arguments={"x-expires": 100})
        broker.advance(0.06)
        for look in (broker.queues, broker.exchanges, broker.bindings, broker.connections, broker.pending):
            look()
        assert broker.queue("q") is not None
        broker.advance(0.04)
        assert broker.queue("q") is None


def test_all_of_it_is_to_be_had_over_http() -> None:
    with Service("4.3", clock=ManualClock()) as service, ControlServer(service) as control:
        with connected(service.url, "reports") as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.queue_bind("q", "amq.headers", "k", arguments={"n": 1})
            [shown] = ask(f"{control.url}/connections")
            assert (shown["name"], shown["vhost"], shown["channels"]) == ("reports", "/", [1])
        assert ask(f"{control.url}/bindings") == [
            {
                "vhost": "/",
                "source": "amq.headers",
                "destination_type": "queue",
                "destination": "q",
                "routing_key": "k",
                "arguments": {"n": 1},
            }
        ]
        assert "amq.topic" in {exchange["name"] for exchange in ask(f"{control.url}/exchanges")}


def test_a_broker_that_is_closed_can_be_looked_at_and_takes_no_backend(broker: FakeBroker) -> None:
    with broker.backend() as backend:
        backend.declare([QueueConfig("work")])
    broker.close()
    broker.close()
    assert [queue.name for queue in broker.queues()] == ["work", "work.dead"]
    with pytest.raises(RuntimeError, match="this broker is closed: no backend connects to it any more"):
        broker.backend()
