"""What outlives a restart in good order; each as measured with stop_app and start_app on 3.10.8, 4.0.5 and 4.3.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from queuey_fake.model import events
from queuey_fake.model.restart import restart

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client

VERSIONS = pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
PERSISTENT = {"delivery_mode": 2}


def restarted(client: Client) -> Client:
    """Restart the broker, and return a client that has connected again."""
    restart(client.broker)
    return client.stranger()


def flags(client: Client, queue: str) -> list[tuple[str, bool]]:
    """Body and redelivered flag of all ready messages, taken out."""
    taken = []
    while (got := client.get(queue)) is not None:
        taken.append((got.body.decode(), got.redelivered))
    return taken


@VERSIONS
def test_clients_are_told_and_their_connections_end(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    restart(client.broker)
    text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    assert client.heard() == [events.ConnectionClose(320, text, 0, 0)]
    assert not client.channel.connection.is_open
    assert not client.broker.connections


@VERSIONS
def test_persistent_messages_stay_in_order_and_only_what_was_delivered_is_redelivered(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("q")
    for body in "abcd":
        client.publish("q", body, **PERSISTENT)
        client.publish("q", f"transient {body}", delivery_mode=1)
    client.consume("q", "t", prefetch=3)
    assert client.delivered() == [("t", "a"), ("t", "transient a"), ("t", "b")]
    assert flags(restarted(client), "q") == [("a", True), ("b", True), ("c", False), ("d", False)]


@pytest.mark.parametrize(
    ("version", "nacked", "rejected"), [("3.10", True, True), ("4.0", True, True), ("4.3", False, True)]
)
def test_the_redelivered_flag_of_what_was_nacked_is_forgotten_by_4_3(
    connect: Callable[..., Client], version: str, *, nacked: bool, rejected: bool
) -> None:
    client = connect(version)
    client.declare("q")
    client.publish("q", "nacked", "rejected", "untouched", **PERSISTENT)
    first, second = client.get("q", ack=False), client.get("q", ack=False)
    client.channel.basic_nack(first.delivery_tag)
    client.channel.basic_reject(second.delivery_tag)
    expected = [("nacked", nacked), ("rejected", rejected), ("untouched", False)]
    assert flags(restarted(client), "q") == expected


@VERSIONS
def test_what_is_given_back_goes_to_no_consumer_that_goes_down_too(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("q")
    other = client.stranger()
    client.consume("q", "t")
    other.consume("q", "t")
    client.publish("q", "a", "b", **PERSISTENT)
    client.heard()
    other.heard()
    restart(client.broker)
    assert (client.delivered(), other.delivered()) == ([], [])


@VERSIONS
def test_transient_queues_are_gone_and_exchanges_that_are_in_that_version(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("durable")
    client.declare("transient", durable=False)
    client.channel.exchange_declare("durable", "fanout", durable=True)
    client.channel.exchange_declare("transient", "fanout", durable=False)
    for exchange in ("durable", "transient"):
        client.channel.queue_bind("durable", exchange, "")
    again = restarted(client)
    assert (again.exists("durable"), again.exists("transient")) == (True, False)
    again.publish("", "bound", exchange="durable")
    assert again.drain("durable") == ["bound"]
    again.channel.exchange_declare("transient", passive=True)
    assert isinstance(again.heard()[-1], events.ExchangeDeclareOk) is (version == "4.3")


@VERSIONS
def test_the_deadline_of_a_message_runs_on_and_its_dead_letter_arrives(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("dead")
    client.declare(
        "q", arguments={"x-message-ttl": 40, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    client.publish("q", "a", **PERSISTENT)
    client.wait(30)
    again = restarted(client)
    again.wait(9)
    assert (again.ready("q"), again.ready("dead")) == (["a"], [])
    again.wait(1)
    assert (again.ready("q"), again.ready("dead")) == ([], ["a"])


@VERSIONS
def test_the_lease_of_a_queue_starts_anew(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("q", arguments={"x-expires": 100})
    client.wait(90)
    again = restarted(client)
    again.wait(99)
    assert again.exists("q")
    again.wait(1)
    assert not again.exists("q")


@VERSIONS
def test_priorities_stay_what_they_were(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("q", arguments={"x-max-priority": 5})
    for priority, body in ((1, "a"), (5, "b"), (0, "c"), (5, "d")):
        client.publish("q", body, priority=priority, **PERSISTENT)
    assert restarted(client).drain("q") == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("version", "returned", "untouched"),
    [
        ("3.10", {"x-delivery-count": 1}, {"x-delivery-count": 0}),
        ("4.0", {"x-delivery-count": 1}, {}),
        ("4.3", {"x-acquired-count": 1, "x-delivery-count": 1}, {}),
    ],
)
def test_a_quorum_queue_keeps_transient_messages_too_and_counts_what_was_out(
    connect: Callable[..., Client], version: str, returned: Any, untouched: Any
) -> None:
    client = connect(version)
    client.declare("q", arguments={"x-queue-type": "quorum"})
    client.publish("q", "a", "b", delivery_mode=1)
    client.consume("q", "t", prefetch=1)
    again = restarted(client)
    first, second = again.get("q"), again.get("q")
    assert [(first.body, first.redelivered), (second.body, second.redelivered)] == [(b"a", True), (b"b", False)]
    assert (again.headers(first), again.headers(second)) == (returned, untouched)
