from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from queuey_fake.model.delayed_retry import DelayedRetry

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def delayed(kind: str, **more: Any) -> dict[str, Any]:
    return {"x-queue-type": "quorum", "x-delayed-retry-type": kind, "x-delayed-retry-min": 100, **more}


@pytest.mark.parametrize(
    ("kind", "nacked", "rejected"), [("all", 100, 100), ("failed", None, 100), ("returned", 100, None)]
)
def test_a_type_says_which_returns_are_delayed(kind: str, nacked: int | None, rejected: int | None) -> None:
    rule = DelayedRetry(kind, 100, 250)
    assert rule.delay_ms(0, counts=False) == nacked
    assert rule.delay_ms(1, counts=True) == rejected


@pytest.mark.parametrize(("delivery_count", "delay_ms"), [(0, 100), (1, 100), (2, 200), (3, 250)])
def test_a_delay_grows_with_the_delivery_count_up_to_the_maximum(delivery_count: int, delay_ms: int) -> None:
    assert DelayedRetry("all", 100, 250).delay_ms(delivery_count, counts=True) == delay_ms


def test_what_waits_comes_before_what_was_never_delivered_and_then_by_age(client: Client) -> None:
    client.declare("q", arguments=delayed("all"))
    client.publish("q", "a", "b", "c")
    for _ in range(2):
        client.get("q", ack=False)
    client.channel.basic_nack(2)
    client.channel.basic_nack(1)
    client.wait(99)
    assert client.ready("q") == ["c"]
    client.wait(1)
    assert client.ready("q") == ["a", "b", "c"]


def test_a_consumer_gets_what_has_waited(client: Client) -> None:
    client.declare("q", arguments=delayed("failed"))
    client.consume("q", "t")
    client.publish("q", "a")
    client.channel.basic_reject(1)
    assert client.delivered() == [("t", "a")]
    client.wait(100)
    assert client.delivered() == [("t", "a")]


def test_what_waits_is_purged_and_counted_and_fills_the_queue(client: Client) -> None:
    limited = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("dead")
    client.declare("q", arguments=delayed("all", **limited))
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_nack(1)
    client.publish("q", "b")
    assert (client.ready("q"), client.ready("dead")) == ([], ["b"])
    client.channel.queue_purge("q")
    assert client.heard()[-1].message_count == 1
    client.wait(1000)
    assert client.ready("q") == []


def test_what_waits_goes_with_its_queue(client: Client) -> None:
    client.declare("q", arguments=delayed("all"))
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_nack(1)
    client.channel.queue_delete("q")
    assert client.broker.next_due_ms() is None


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("4.0", delayed("all")),
        ("4.3", delayed("disabled")),
        ("4.3", delayed("all", **{"x-delayed-retry-min": 0})),
        ("4.3", delayed("all", **{"x-delayed-retry-min": "100"})),
    ],
)
def test_without_a_type_and_a_minimum_and_before_4_3_nothing_is_delayed(
    connect: Callable[..., Client], version: str, arguments: dict[str, Any]
) -> None:
    client = connect(version)
    client.declare("q", arguments=arguments)
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_nack(1)
    assert client.ready("q") == ["a"]
