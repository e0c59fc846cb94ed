from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def test_consumers_take_turns(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a")
    client.consume("q", "b")
    client.publish("q", "1", "2", "3")
    assert client.delivered() == [("a", "1"), ("b", "2"), ("a", "3")]


def test_a_new_consumer_joins_at_the_end(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a")
    client.consume("q", "b")
    client.publish("q", "1")
    client.consume("q", "c")
    client.publish("q", "2", "3", "4")
    assert client.delivered() == [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")]


def test_a_prefetch_bounds_what_a_consumer_holds_and_an_ack_makes_room(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=2)
    client.publish("q", "1", "2", "3")
    assert client.delivered() == [("a", "1"), ("a", "2")]
    client.channel.basic_ack(1)
    assert client.delivered() == [("a", "3")]


def test_a_prefetch_does_not_bound_a_consumer_that_does_not_acknowledge(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1, no_ack=True)
    client.publish("q", "1", "2", "3")
    assert len(client.delivered()) == 3


def test_a_full_consumer_leaves_the_turns_only_when_it_is_tried(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1)
    client.consume("q", "b", prefetch=2)
    client.publish("q", "1", "2")  # a holds one and is full, but nothing was tried on it since
    client.channel.basic_ack(1)
    client.publish("q", "3")
    assert client.delivered() == [("a", "1"), ("b", "2"), ("a", "3")]


def test_one_that_was_tried_in_vain_rejoins_at_the_end(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1)
    client.consume("q", "b", prefetch=9)
    client.publish("q", "1", "2", "3")  # 3 is tried on a in vain, b takes it
    client.channel.basic_ack(1)
    client.publish("q", "4", "5")
    assert client.delivered() == [("a", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("a", "5")]


def test_higher_priorities_are_served_until_they_are_full(client: Client) -> None:
    client.declare("q")
    client.consume("q", "low", prefetch=1)
    client.consume("q", "high", prefetch=2, arguments={"x-priority": 5})
    client.publish("q", "1", "2", "3")
    assert client.delivered() == [("high", "1"), ("high", "2"), ("low", "3")]


def test_a_requeued_message_goes_to_the_next_in_turn(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1)
    client.consume("q", "b", prefetch=1)
    client.publish("q", "1")
    client.channel.basic_nack(1)
    assert client.delivered() == [("a", "1"), ("b", "1")]


def test_with_one_consumer_a_requeued_message_comes_back_before_the_backlog(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1)
    client.publish("q", "1", "2")
    client.channel.basic_nack(1)
    assert client.delivered() == [("a", "1"), ("a", "1")]


def test_what_a_cancelled_consumer_holds_is_settled_as_ever_and_gives_nobody_room(client: Client) -> None:
    client.declare("q")
    client.consume("q", "a", prefetch=1)
    client.publish("q", "1", "2")
    client.channel.basic_cancel("a")
    client.heard()
    client.channel.basic_ack(1)
    assert client.delivered() == []
    assert client.ready("q") == ["2"]


@pytest.mark.parametrize("version", ["3.10", "4.0"])
def test_a_channel_wide_limit_is_shared_by_consumers_of_different_queues(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("p")
    client.declare("q")
    client.channel.basic_consume("p", "p")
    client.channel.basic_consume("q", "q")
    client.channel.basic_qos(1, global_=True)
    client.publish("p", "1")
    client.publish("q", "2")
    assert client.delivered() == [("p", "1")]
    client.channel.basic_ack(1)
    assert client.delivered() == [("q", "2")]


@pytest.mark.parametrize("version", ["3.10", "4.0"])
def test_any_later_qos_lifts_a_channel_wide_limit_at_once(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("q")
    client.channel.basic_qos(1, global_=True)
    client.channel.basic_consume("q", "a")
    client.publish("q", "1", "2", "3")
    assert client.delivered() == [("a", "1")]
    client.channel.basic_qos(5)
    assert client.delivered() == [("a", "2"), ("a", "3")]


def test_from_4_3_on_a_channel_wide_limit_is_one_for_each_new_consumer(client: Client) -> None:
    client.declare("q")
    client.channel.basic_qos(1, global_=True)
    client.channel.basic_consume("q", "a")
    client.channel.basic_consume("q", "b")
    client.publish("q", "1", "2", "3")
    assert client.delivered() == [("a", "1"), ("b", "2")]
    client.channel.basic_qos(9)
    assert client.delivered() == []


def test_basic_get_needs_no_room_and_takes_none(connect: Callable[..., Client]) -> None:
    client = connect("4.0")
    client.declare("q")
    client.channel.basic_qos(1, global_=True)
    client.publish("q", "1", "2")
    assert client.get("q", ack=False).body == b"1"
    client.channel.basic_consume("q", "a")
    assert client.delivered() == [("a", "2")]
