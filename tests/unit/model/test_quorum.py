from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client

QUORUM = {"x-queue-type": "quorum"}
REFUSING = {**QUORUM, "x-max-length": 1, "x-overflow": "reject-publish"}
TO_DEAD = {**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.mark.parametrize(
    ("version", "first", "nacked", "rejected"),
    [
        ("3.10", {"x-delivery-count": 0}, {"x-delivery-count": 1}, {"x-delivery-count": 2}),
        ("4.0", {}, {"x-delivery-count": 1}, {"x-delivery-count": 2}),
        ("4.3", {}, {"x-acquired-count": 1}, {"x-acquired-count": 2, "x-delivery-count": 1}),
    ],
)
def test_deliveries_are_counted_in_the_headers(
    connect: Callable[..., Client], version: str, first: Any, nacked: Any, rejected: Any
) -> None:
    client = connect(version)
    client.declare("q", arguments=QUORUM)
    client.publish("q", "a")
    assert client.headers(client.get("q", ack=False)) == first
    client.channel.basic_nack(1)
    assert client.headers(client.get("q", ack=False)) == nacked
    client.channel.basic_reject(2)
    got = client.get("q", ack=False)
    assert (client.headers(got), got.redelivered) == (rejected, True)


@pytest.mark.parametrize(("version", "order"), [("3.10", ["b", "a"]), ("4.0", ["a", "b"]), ("4.3", ["a", "b"])])
def test_a_requeued_message_goes_first_but_last_in_3_10(
    connect: Callable[..., Client], version: str, order: list[str]
) -> None:
    client = connect(version)
    client.declare("q", arguments=QUORUM)
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    client.channel.basic_nack(1)
    assert client.drain("q") == order


@pytest.mark.parametrize(("version", "is_dead"), [("3.10", True), ("4.0", True), ("4.3", False)])
def test_nacks_reach_the_delivery_limit_before_4_3_only(
    connect: Callable[..., Client], version: str, *, is_dead: bool
) -> None:
    client = connect(version)
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-delivery-limit": 1})
    client.publish("q", "a")
    for tag in (1, 2):
        client.get("q", ack=False)
        client.channel.basic_nack(tag)
    assert (client.ready("dead") == ["a"]) is is_dead


def test_rejects_reach_the_delivery_limit_and_the_reason_says_so(client: Client) -> None:
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-delivery-limit": 1})
    client.publish("q", "a")
    for tag in (1, 2):
        client.get("q", ack=False)
        client.channel.basic_reject(tag)
    got = client.get("dead")
    assert client.headers(got)["x-death"][0]["reason"] == "delivery_limit"
    assert got.redelivered is True


def test_without_an_argument_the_limit_is_twenty_from_rabbitmq_4_on(connect: Callable[..., Client]) -> None:
    left = {}
    for version in ("3.10", "4.0"):
        client = connect(version)
        client.declare("q", arguments=QUORUM)
        client.publish("q", "a")
        for tag in range(1, 22):
            client.get("q", ack=False)
            client.channel.basic_nack(tag)
        left[version] = client.ready("q")
    assert left == {"3.10": ["a"], "4.0": []}


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("3.10", ["none", "one", "five", "nine"]),
        ("4.0", ["five", "nine", "none", "one"]),
        ("4.3", ["nine", "five", "none", "one"]),
    ],
)
def test_priorities_by_version(connect: Callable[..., Client], version: str, order: list[str]) -> None:
    client = connect(version)
    client.declare("q", arguments=QUORUM)
    client.publish("q", "none")
    for body, priority in (("one", 1), ("five", 5), ("nine", 9)):
        client.publish("q", body, priority=priority)
    assert client.drain("q") == order


def test_a_full_queue_that_refuses_takes_one_more_than_its_limit(client: Client) -> None:
    client.declare("q", arguments=REFUSING)
    client.channel.confirm_select()
    client.publish("q", "a", "b", "c")
    assert client.ready("q") == ["a", "b"]
    client.drain("q")
    client.publish("q", "d")
    assert client.ready("q") == ["d"]


def test_a_burst_without_confirms_hears_too_late_that_it_filled_the_queue(client: Client) -> None:
    client.declare("q", arguments=REFUSING)
    client.publish("q", "a", "b", "c")
    client.get("q")
    client.publish("q", "d")
    assert client.ready("q") == ["b", "c"]


def test_a_moment_later_a_publisher_without_confirms_has_heard(client: Client) -> None:
    client.declare("q", arguments=REFUSING)
    client.publish("q", "a", "b", "c")
    client.wait(1)
    client.publish("q", "d")
    assert client.ready("q") == ["a", "b", "c"]


def test_a_purge_lets_publishers_in_again(client: Client) -> None:
    client.declare("q", arguments=REFUSING)
    client.channel.confirm_select()
    client.publish("q", "a", "b", "c")
    client.channel.queue_purge("q")
    client.publish("q", "d")
    assert client.ready("q") == ["d"]


@pytest.mark.parametrize(("version", "order"), [("3.10", "acbdef"), ("4.0", "bdacef"), ("4.3", "bdacef")])
def test_a_close_gives_back_what_each_consumer_holds_and_each_is_sent_a_batch(
    connect: Callable[..., Client], version: str, order: str
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-delivery-limit": 5})
    gone = client.stranger()
    gone.consume("q", "z", prefetch=2)
    gone.consume("q", "y", prefetch=2)
    client.publish("q", *"badcef")  # z: b, d; y: a, c
    client.consume("q", "x")
    client.delivered()
    gone.channel.close()
    returned = "".join(body for _, body in client.delivered())
    assert returned + "ef" == order


@pytest.mark.parametrize(("version", "active"), [("4.0", 0), ("4.3", 1)])
def test_a_single_active_consumer_that_gives_way_by_a_return_leaves_none_active_in_4_0(
    connect: Callable[..., Client], version: str, active: int
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-single-active-consumer": True})
    client.consume("q", "low")
    client.publish("q", "a")
    client.consume("q", "high", arguments={"x-priority": 5})
    client.channel.basic_nack(1)
    assert client.declare("q", passive=True).consumer_count == active


def test_over_age_messages_are_dropped_by_the_timer_and_never_handed_out(client: Client) -> None:
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-message-ttl": 100})
    client.publish("q", "a")
    client.wait(99)
    assert client.ready("q") == ["a"]
    client.wait(1)
    assert client.ready("dead") == ["a"]


@pytest.mark.parametrize(("expires_ms", "end_ms"), [(100, 5_000), (4_999, 5_000), (5_000, 10_000), (5_500, 10_000)])
def test_a_lease_ends_at_the_tick_that_follows_every_five_seconds(
    connect: Callable[..., Client], expires_ms: int, end_ms: int
) -> None:
    client = connect(now_ms=1_234)
    client.declare("q", arguments={**QUORUM, "x-expires": expires_ms})
    client.wait(end_ms - 1)
    assert client.exists("q")
    client.wait(1)
    assert not client.exists("q")


def test_a_get_renews_a_lease_and_neither_a_declaration_nor_a_publish_does(client: Client) -> None:
    for queue in ("got", "declared", "published"):
        client.declare(queue, arguments={**QUORUM, "x-expires": 3_000})
    client.wait(4_000)
    client.get("got")
    client.declare("declared", passive=True)
    client.publish("published", "m")
    client.wait(1_000)
    assert [client.exists(queue) for queue in ("got", "declared", "published")] == [True, False, False]


def test_what_is_not_settled_holds_the_lease(client: Client) -> None:
    client.declare("q", arguments={**QUORUM, "x-expires": 1_000})
    client.publish("q", "a", "b")
    client.consume("q", "t", prefetch=1)
    client.channel.basic_cancel("t")
    client.get("q", ack=False)
    client.wait(11_000)
    client.channel.basic_ack(1)
    client.wait(11_000)
    assert client.exists("q")
    client.channel.basic_ack(2)
    client.wait(2_999)
    assert client.exists("q")
    client.wait(1)
    assert not client.exists("q")


def test_a_single_active_consumer_of_higher_priority_takes_over_once_nothing_is_held(client: Client) -> None:
    client.declare("q", arguments={**QUORUM, "x-single-active-consumer": True})
    client.consume("q", "low", prefetch=1)
    client.publish("q", "a", "b")
    client.consume("q", "high", prefetch=1, arguments={"x-priority": 5})
    assert client.delivered() == [("low", "a")]
    client.channel.basic_ack(1)
    assert client.delivered() == [("high", "b")]


@pytest.mark.parametrize(("version", "type_"), [("3.10", "quorum"), ("4.0", "quorum"), ("4.3", '<<"quorum">>')])
def test_basic_get_is_not_for_a_queue_with_a_single_active_consumer(
    connect: Callable[..., Client], version: str, type_: str
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-single-active-consumer": True})
    client.channel.basic_get("q")
    said = client.heard()[-1]
    assert said.code == 405
    assert said.text.endswith(f"operations are not supported by {type_} queues with single active consumer")


@pytest.mark.parametrize(("version", "left"), [("4.0", ["abc"]), ("4.3", [])])
def test_a_limit_in_bytes_counts_properties_in_4_3(
    connect: Callable[..., Client], version: str, left: list[str]
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-max-length-bytes": 4})
    client.publish("q", "abc")
    assert client.ready("q") == left


def test_a_consumer_without_acknowledgements_has_its_prefetch_and_loses_its_turn(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.consume("q", "settles at once", prefetch=1, no_ack=True)
    client.consume("q", "settles itself", prefetch=9)
    client.publish("q", "1", "2", "3")
    assert [tag for tag, _ in client.delivered()] == ["settles at once", "settles itself", "settles at once"]


def test_a_message_rejected_elsewhere_counts_as_delivered_before(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    client.publish("work", "a")
    client.get("work", ack=False)
    client.channel.basic_reject(1, requeue=False)
    got = client.get("q")
    assert got.redelivered is True
    assert client.headers(got)["x-acquired-count"] == 1


def test_in_4_3_the_expired_head_of_any_level_goes(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.publish("q", "high", priority=9)
    client.publish("q", "low", priority=0, expiration="100")
    client.wait(100)
    assert client.ready("q") == ["high"]


def test_a_channel_wide_limit_is_refused(connect: Callable[..., Client]) -> None:
    client = connect("4.0")
    client.declare("q", arguments=QUORUM)
    client.channel.basic_qos(1, global_=True)
    client.channel.basic_consume("q", "t")
    assert client.heard()[-1].text == "NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos"


def test_a_conditional_deletion_is_not_implemented(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.channel.queue_delete("q", if_empty=True)
    assert client.heard()[-1].code == 540


def test_closing_a_channel_gives_back_and_counts(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.publish("q", "a")
    other = client.another(2)
    other.get("q", ack=False)
    other.channel.close()
    assert client.headers(client.get("q")) == {"x-acquired-count": 1, "x-delivery-count": 1}


def test_a_full_queue_refuses_no_dead_letters(client: Client) -> None:
    client.declare("q", arguments={**QUORUM, "x-max-length": 0, "x-overflow": "reject-publish"})
    client.declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    client.channel.confirm_select()
    client.publish("q", "a", "b")
    client.publish("work", "c")
    client.get("work", ack=False)
    client.channel.basic_reject(1, requeue=False)
    assert client.ready("q") == ["a", "c"]


@pytest.mark.parametrize(("version", "left"), [("3.10", []), ("4.0", ["a"]), ("4.3", ["a"])])
def test_a_negative_delivery_limit_is_exceeded_by_the_first_return_in_3_10_and_none_afterwards(
    connect: Callable[..., Client], version: str, left: list[str]
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-delivery-limit": -1})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_nack(1)
    assert client.ready("q") == left


@pytest.mark.parametrize(("version", "bodies"), [("3.10", ["b", "c"]), ("4.0", ["b"]), ("4.3", ["b"])])
def test_a_return_beyond_the_delivery_limit_makes_room_for_two_in_3_10(
    connect: Callable[..., Client], version: str, bodies: list[str]
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-delivery-limit": 0})
    client.consume("q", "t", prefetch=1)
    client.publish("q", "a")
    client.heard()
    client.channel.basic_reject(1)
    client.publish("q", "b", "c", "d")
    assert [body for _, body in client.delivered()] == bodies


@pytest.mark.parametrize(
    ("version", "dead"), [("3.10", ["c", "b", "a"]), ("4.0", ["c", "b", "a"]), ("4.3", ["a", "b", "c", "dddddd"])]
)
def test_messages_that_are_pushed_out_together_die_backwards_before_4_3(
    connect: Callable[..., Client], version: str, dead: list[str]
) -> None:
    client = connect(version)
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-max-length-bytes": 6})
    client.publish("q", "a", "b", "c", "dddddd")
    assert client.ready("dead") == dead


@pytest.mark.parametrize(("version", "dead"), [("3.10", ["a", "b"]), ("4.0", ["b", "a"]), ("4.3", ["a", "b"])])
def test_messages_that_are_requeued_over_the_limit_die_one_by_one_in_3_10(
    connect: Callable[..., Client], version: str, dead: list[str]
) -> None:
    client = connect(version)
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-max-length": 1})
    client.consume("q", "t", prefetch=3)
    client.publish("q", "a", "b", "c")
    client.channel.basic_cancel("t")
    client.channel.basic_nack(3, multiple=True)
    assert (client.ready("dead"), client.ready("q")) == (dead, ["c"])


def test_a_single_active_consumer_gives_way_though_the_one_of_higher_priority_is_gone(client: Client) -> None:
    client.declare("q", arguments={**QUORUM, "x-single-active-consumer": True})
    client.consume("q", "low")
    client.publish("q", "a")
    client.consume("q", "high", arguments={"x-priority": 5})
    client.channel.basic_cancel("high")
    client.publish("q", "b")
    assert client.delivered() == [("low", "a")]
    client.channel.basic_ack(1)
    assert client.delivered() == [("low", "b")]


@pytest.mark.parametrize(("version", "following"), [("3.10", "first"), ("4.0", "roomy"), ("4.3", "roomy")])
def test_of_waiting_consumers_the_one_with_the_most_room_is_next_from_4_0_on(
    connect: Callable[..., Client], version: str, following: str
) -> None:
    client = connect(version)
    client.declare("q", arguments={**QUORUM, "x-single-active-consumer": True})
    for tag, prefetch in (("active", 1), ("first", 2), ("roomy", 3)):
        client.consume("q", tag, prefetch=prefetch)
    client.channel.basic_cancel("active")
    client.publish("q", "a")
    assert client.delivered() == [(following, "a")]


def test_a_consumer_that_comes_back_under_its_tag_has_the_room_that_it_left(client: Client) -> None:
    client.declare("q", arguments=QUORUM)
    client.consume("q", "t", prefetch=2)
    client.publish("q", "a", "b", "c")
    client.channel.basic_cancel("t")
    client.delivered()
    client.consume("q", "t", prefetch=3)
    client.publish("q", "d")
    assert client.delivered() == [("t", "c")]


def test_what_the_queue_said_before_a_burst_is_heard_at_its_begin(client: Client) -> None:
    client.declare("q", arguments=REFUSING)
    other = client.another(2)
    for burst in ("ab", "cd"):
        client.publish("q", *burst)
        client.channel.basic_qos(0)
        other.drain("q")
    client.publish("q", "e")
    assert client.ready("q") == ["e"]


@pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
def test_what_lives_for_no_time_expires_when_it_comes_back(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, "x-message-ttl": 0})
    client.consume("q", "t")
    client.publish("q", "a")
    client.channel.basic_nack(1)
    assert (client.delivered(), client.ready("dead")) == ([("t", "a")], ["a"])


def test_what_lives_for_no_time_is_over_age_for_whoever_consumes_later(client: Client) -> None:
    client.declare("dead")
    client.declare("q", arguments=TO_DEAD)
    client.publish("q", "a")
    client.publish("q", "b", expiration="0")
    client.publish("q", "c")
    client.consume("q", "t")
    assert (client.delivered(), client.ready("dead")) == ([("t", "a"), ("t", "c")], ["b"])
