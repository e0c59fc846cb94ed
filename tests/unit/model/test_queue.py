from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client

TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def with_dead_queue(client: Client, **arguments: object) -> None:
    client.declare("dead")
    client.declare("q", arguments={**TO_DEAD, **arguments})


# ------------------------------------------------------------------------------------------------ time to live


def test_a_message_expires_at_its_deadline_and_not_before(client: Client) -> None:
    with_dead_queue(client, **{"x-message-ttl": 100})
    client.publish("q", "a")
    client.wait(99)
    assert client.ready("q") == ["a"]
    client.wait(1)
    assert (client.ready("q"), client.ready("dead")) == ([], ["a"])


@pytest.mark.parametrize(("queue_ttl", "expiration"), [(100, "500"), (500, "100")])
def test_the_shorter_of_queue_and_message_counts(client: Client, queue_ttl: int, expiration: str) -> None:
    client.declare("q", arguments={"x-message-ttl": queue_ttl})
    client.publish("q", "a", expiration=expiration)
    client.wait(100)
    assert client.ready("q") == []


def test_an_expired_message_waits_behind_a_live_head(client: Client) -> None:
    with_dead_queue(client)
    client.publish("q", "a")
    client.publish("q", "b", "c", expiration="100")
    client.wait(1000)
    assert client.ready("q") == ["a", "b", "c"]


def test_taking_the_head_drops_the_expired_behind_it_before_the_answer(client: Client) -> None:
    with_dead_queue(client)
    client.publish("q", "a")
    client.publish("q", "b", "c", expiration="100")
    client.wait(1000)
    got = client.get("q")
    assert (got.body, got.message_count) == (b"a", 0)
    assert client.drain("dead") == ["b", "c"]


def test_an_unacked_message_neither_expires_nor_blocks(client: Client) -> None:
    with_dead_queue(client, **{"x-message-ttl": 100})
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    client.wait(1000)
    assert client.ready("dead") == ["b"]
    client.channel.basic_ack(1)
    assert client.ready("dead") == ["b"]


def test_a_requeued_message_keeps_its_deadline(client: Client) -> None:
    with_dead_queue(client, **{"x-message-ttl": 100})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.wait(60)
    client.channel.basic_nack(1)
    client.wait(40)
    assert client.ready("dead") == ["a"]


def test_requeueing_an_over_age_message_expires_it_though_a_consumer_waits(client: Client) -> None:
    with_dead_queue(client, **{"x-message-ttl": 100})
    client.consume("q", "t", prefetch=1)
    client.publish("q", "a")
    client.wait(200)
    assert client.delivered() == [("t", "a")]
    client.channel.basic_nack(1)
    assert client.delivered() == []
    assert client.ready("dead") == ["a"]


def test_ttl_zero_is_delivered_if_a_consumer_can_take_it_at_once(client: Client) -> None:
    with_dead_queue(client, **{"x-message-ttl": 0})
    client.consume("q", "t", prefetch=1)
    client.publish("q", "a", "b")
    assert client.delivered() == [("t", "a")]
    assert client.ready("dead") == ["b"]


def test_expiration_zero_behind_a_live_message_stays_until_it_is_head(client: Client) -> None:
    with_dead_queue(client)
    client.publish("q", "a")
    client.publish("q", "b", expiration="0")
    assert client.ready("q") == ["a", "b"]
    client.get("q")
    assert client.ready("dead") == ["b"]


def test_in_a_chain_of_queues_each_message_waits_its_full_time_in_each(client: Client) -> None:
    client.declare("c")
    client.declare(
        "b", arguments={"x-message-ttl": 3000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "c"}
    )
    client.declare(
        "a", arguments={"x-message-ttl": 2000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"}
    )
    client.publish("a", "m")
    client.wait(60_000)
    deaths = client.headers(client.get("c"))["x-death"]
    assert [(death["queue"], death["time"].timestamp()) for death in deaths] == [("b", 5), ("a", 2)]


# ------------------------------------------------------------------------------------------------ priorities and time


def test_a_message_that_becomes_head_by_its_priority_expires_by_no_timer(client: Client) -> None:
    with_dead_queue(client, **{"x-max-priority": 9})
    client.publish("q", "low")
    client.publish("q", "high", priority=9, expiration="100")
    client.wait(10_000)
    assert client.ready("q") == ["high", "low"]
    assert client.get("q").body == b"high"


def test_published_into_the_empty_priority_queue_it_does_expire(client: Client) -> None:
    with_dead_queue(client, **{"x-max-priority": 9})
    client.publish("q", "high", priority=9, expiration="100")
    client.wait(100)
    assert client.ready("dead") == ["high"]


def test_taking_the_higher_message_drops_the_over_age_lower_one(client: Client) -> None:
    client.declare("dead")
    client.declare("p", arguments={**TO_DEAD, "x-max-priority": 9})
    client.publish("p", "low", expiration="100")
    client.publish("p", "high", priority=9)
    client.wait(1000)
    assert client.ready("p") == ["high", "low"]
    assert client.get("p").message_count == 0
    assert client.ready("dead") == ["low"]


def test_an_armed_timer_outlives_its_message_and_drops_an_over_age_head(client: Client) -> None:
    with_dead_queue(client, **{"x-max-priority": 9})
    client.publish("q", "first", expiration="300")  # sets the timer
    client.publish("q", "high", priority=9, expiration="100")  # sets none
    client.wait(299)
    assert client.ready("q") == ["high", "first"]
    client.wait(1)
    assert client.ready("dead") == ["high", "first"]


@pytest.mark.parametrize(("version", "looks"), [("3.10", False), ("4.0", True), ("4.3", True)])
def test_a_cancel_looks_at_the_head_from_rabbitmq_4_on(
    connect: Callable[..., Client], version: str, *, looks: bool
) -> None:
    client = connect(version)
    with_dead_queue(client, **{"x-max-priority": 9})
    client.publish("q", "low")
    client.publish("q", "high", priority=9, expiration="100")
    other = client.another(2)
    other.consume("q", "t", prefetch=1)  # takes the over-age high one
    client.publish("q", "higher", priority=9, expiration="100")
    client.wait(1000)
    other.channel.basic_cancel("t")
    assert ("higher" in client.ready("dead")) is looks


def test_what_is_above_the_maximum_priority_counts_as_the_maximum(client: Client) -> None:
    client.declare("q", arguments={"x-max-priority": 5})
    client.publish("q", "five", priority=5)
    client.publish("q", "nine", priority=9)
    client.publish("q", "none")
    got = client.get("q")
    assert (got.body, client.get("q").properties.priority) == (b"five", 9)
    assert client.drain("q") == ["none"]


# ------------------------------------------------------------------------------------------------ limits


def test_a_full_queue_drops_its_head(client: Client) -> None:
    with_dead_queue(client, **{"x-max-length": 2})
    client.publish("q", "a", "b", "c")
    assert (client.ready("q"), client.ready("dead")) == (["b", "c"], ["a"])


def test_a_body_over_the_limit_in_bytes_drops_everything_itself_included(client: Client) -> None:
    with_dead_queue(client, **{"x-max-length-bytes": 5})
    client.publish("q", "ab", "", "abcdef")
    assert (client.ready("q"), client.ready("dead")) == ([], ["ab", "", "abcdef"])


def test_unacked_messages_do_not_count_for_the_limit(client: Client) -> None:
    client.declare("q", arguments={"x-max-length": 1})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.publish("q", "b")
    assert client.ready("q") == ["b"]


def test_requeueing_over_the_limit_drops_the_oldest(client: Client) -> None:
    with_dead_queue(client, **{"x-max-length": 1})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.publish("q", "b")
    client.channel.basic_nack(1)
    assert (client.ready("q"), client.ready("dead")) == (["b"], ["a"])


def test_a_queue_that_refuses_when_full_nacks_and_keeps_what_it_has(client: Client) -> None:
    client.declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.channel.confirm_select()
    client.heard()
    client.publish("q", "a", "b")
    assert client.heard() == [events.Ack(1, 1), events.Nack(1, 2, multiple=True)]
    assert client.ready("q") == ["a"]


def test_it_refuses_though_a_consumer_waits_for_the_message(client: Client) -> None:
    client.declare("q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.consume("q", "t")
    client.publish("q", "a")
    assert client.delivered() == []


def test_refused_messages_go_to_the_dead_letter_exchange_if_asked(client: Client) -> None:
    with_dead_queue(client, **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    client.publish("q", "a", "b")
    assert (client.ready("q"), client.ready("dead")) == (["a"], ["b"])


def test_a_queue_that_refuses_takes_requeued_messages_over_its_limit(client: Client) -> None:
    client.declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.publish("q", "b")
    client.channel.basic_nack(1)
    assert client.ready("q") == ["a", "b"]


# ------------------------------------------------------------------------------------------------ the lease


def test_a_queue_ends_when_its_lease_does_and_dead_letters_nothing(client: Client) -> None:
    with_dead_queue(client, **{"x-expires": 100})
    client.publish("q", "a")
    client.wait(99)
    assert client.exists("q")
    client.wait(1)
    assert not client.exists("q")
    assert client.ready("dead") == []


@pytest.mark.parametrize("use", ["declare", "passive", "get"])
def test_the_lease_is_renewed_by(client: Client, use: str) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.wait(60)
    uses = {
        "declare": lambda: client.declare("q", arguments={"x-expires": 100}),
        "passive": lambda: client.declare("q", passive=True),
        "get": lambda: client.get("q"),
    }
    uses[use]()
    client.wait(99)
    assert client.exists("q")
    client.wait(1)
    assert not client.exists("q")


@pytest.mark.parametrize("use", ["publish", "purge", "bind", "inequivalent"])
def test_the_lease_is_not_renewed_by(client: Client, use: str) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.wait(60)
    uses = {
        "publish": lambda: client.publish("q", "a"),
        "purge": lambda: client.channel.queue_purge("q"),
        "bind": lambda: client.channel.queue_bind("q", "amq.direct", "k"),
        "inequivalent": lambda: client.declare("q", arguments={"x-expires": 200}),
    }
    uses[use]()
    client.wait(40)
    assert not client.exists("q")


def test_the_lease_does_not_run_while_there_is_a_consumer_and_starts_with_its_cancel(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.consume("q", "t")
    client.wait(1000)
    assert client.exists("q")
    client.channel.basic_cancel("t")
    client.wait(99)
    assert client.exists("q")
    client.wait(1)
    assert not client.exists("q")


def test_a_late_ack_to_a_queue_that_ended_is_accepted(client: Client) -> None:
    client.declare("q", arguments={"x-expires": 100})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.wait(100)
    client.channel.basic_ack(1)
    assert client.heard() == []


def test_what_comes_after_time_was_set_back_counts_from_there_and_finds_the_lease_no_shorter(client: Client) -> None:
    hold = {"x-message-ttl": 100, "x-expires": 200, "x-dead-letter-exchange": ""}
    client.declare("work")
    client.declare("earlier", arguments={**hold, "x-dead-letter-routing-key": "work"})
    client.declare("later", arguments={**hold, "x-dead-letter-routing-key": "work"})
    client.wait(1000)
    client.declare("later", arguments={**hold, "x-dead-letter-routing-key": "work"})
    client.publish("later", "later")
    client.wait(-1000)
    for queue in ("earlier", "later"):
        client.declare(queue, arguments={**hold, "x-dead-letter-routing-key": "work"})
    client.publish("earlier", "earlier")
    client.wait(99)
    assert client.ready("work") == []
    client.wait(1)
    assert client.ready("work") == ["earlier"]
    client.wait(999)
    assert client.ready("work") == ["earlier"]
    client.wait(1)
    assert client.ready("work") == ["earlier", "later"]


def test_a_held_message_dies_with_the_queue_when_it_came_late_in_the_lease(client: Client) -> None:
    client.declare("work")
    client.declare("hold", arguments={"x-message-ttl": 100, "x-expires": 200, "x-dead-letter-exchange": ""})
    client.wait(101)
    client.publish("hold", "a")
    client.wait(1000)
    assert not client.exists("hold")
    assert client.ready("work") == []


# -------------------------------------------------------------------------------- requeue and redelivery


def test_requeued_messages_return_to_their_places_in_any_order_and_are_redelivered(client: Client) -> None:
    client.declare("q")
    client.publish("q", "a", "b", "c")
    for _ in range(3):
        client.get("q", ack=False)
    client.publish("q", "d")
    for tag in (2, 3, 1):
        client.channel.basic_reject(tag)
    assert client.ready("q") == ["a", "b", "c", "d"]
    assert [client.get("q").redelivered for _ in range(4)] == [True, True, True, False]


def test_rejecting_into_the_same_queue_gives_the_slot_to_the_next_message_first(client: Client) -> None:
    client.declare("q", arguments={"x-dead-letter-exchange": ""})
    client.consume("q", "t", prefetch=1)
    client.publish("q", "a", "b")
    client.heard()
    client.channel.basic_reject(1, requeue=False)
    assert client.delivered() == [("t", "b")]
    assert client.ready("q") == ["a"]


def test_a_purge_drops_the_ready_messages_and_dead_letters_none(client: Client) -> None:
    with_dead_queue(client)
    client.publish("q", "a", "b")
    client.get("q", ack=False)
    client.channel.queue_purge("q")
    assert client.heard() == [events.QueuePurgeOk(1, 1)]
    assert client.ready("dead") == []
    client.channel.basic_nack(1)
    assert client.ready("q") == ["a"]


# ------------------------------------------------------------------------ exclusive and single active


def test_an_exclusive_consumer_keeps_others_out_and_may_not_join_others(client: Client) -> None:
    client.declare("q")
    client.consume("q", "t", exclusive=True)
    other = client.another(2)
    other.consume("q", "u")
    assert other.heard()[-1].text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    client.channel.basic_cancel("t")
    third = client.another(3)
    third.consume("q", "u")
    client.heard()
    client.consume("q", "t", exclusive=True)
    assert client.heard()[-1].code == 403


def test_an_auto_delete_queue_goes_with_its_last_consumer_and_not_before_its_first(client: Client) -> None:
    client.declare("q", auto_delete=True)
    client.publish("q", "a")
    client.wait(10_000)
    client.consume("q", "t")
    client.consume("q", "u")
    client.channel.basic_cancel("t")
    assert client.exists("q")
    client.channel.basic_cancel("u")
    assert not client.exists("q")


def test_of_single_active_consumers_the_next_takes_over_in_order_of_subscription(client: Client) -> None:
    client.declare("q", arguments={"x-single-active-consumer": True})
    other = client.another(2)
    other.consume("q", "first")
    client.consume("q", "second")
    client.publish("q", "a")
    assert client.delivered() == [("first", "a")]
    other.channel.close()
    assert client.delivered() == [("second", "a")]


def test_nobody_consumes_exclusively_from_a_queue_with_a_single_active_consumer(client: Client) -> None:
    client.declare("q", arguments={"x-single-active-consumer": True})
    client.consume("q", "t", exclusive=True)
    assert client.heard()[-1].code == 403


@pytest.mark.parametrize(("version", "served"), [("3.10", []), ("4.0", [("second", "b")])])
def test_after_a_cancel_the_next_active_consumer_is_served_at_once_from_rabbitmq_4_on(
    connect: Callable[..., Client], version: str, served: list[tuple[str, str]]
) -> None:
    client = connect(version)
    client.declare("q", arguments={"x-single-active-consumer": True})
    client.consume("q", "first", prefetch=1)
    client.another(2).consume("q", "second", prefetch=1)
    client.publish("q", "a", "b")
    client.heard()
    client.channel.basic_cancel("first")
    assert client.delivered() == served


@pytest.mark.parametrize(
    ("delivery_mode", "confirm", "left"), [(2, events.Nack(1, 3, multiple=True), ["a", "b"]), (1, events.Ack(1, 3), [])]
)
def test_3_10_crashes_of_a_publish_after_such_a_cancel_and_keeps_what_is_persistent(
    connect: Callable[..., Client], delivery_mode: int, confirm: events.Event, left: list[str]
) -> None:
    client = connect("3.10")
    client.declare("q", arguments={"x-single-active-consumer": True})
    client.channel.confirm_select()
    first, second = client.another(2), client.another(3)
    first.consume("q", "first", prefetch=1)
    second.consume("q", "second", prefetch=1)
    client.publish("q", "a", "b", delivery_mode=delivery_mode)
    first.channel.basic_cancel("first")
    client.heard()
    client.publish("q", "c", delivery_mode=delivery_mode)
    assert client.heard() == [confirm, events.Cancel(3, "second")]
    assert client.ready("q") == left
    first.channel.basic_ack(1)
    assert client.heard() == []
    assert all(client.get("q").redelivered for _ in left)
