from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from queuey_fake.model import dead_letter
from queuey_fake.model.fields import table_from_python
from queuey_fake.model.message import Message
from queuey_fake.model.properties import Properties
from queuey_fake.model.versions import VERSIONS

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client

OLD, NEW = "3.10", "4.3"
VERSIONS_4 = ["4.0", "4.3"]
ALL = [OLD, *VERSIONS_4]


def died(client: Client, queue: str, reason: str = "rejected") -> None:
    """Let the only message of the queue die."""
    client.get(queue, ack=False)
    assert reason == "rejected"
    client.channel.basic_nack(0, multiple=True, requeue=False)


def to(queue: str, **arguments: Any) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, **arguments}


@pytest.mark.parametrize("version", ALL)
def test_a_death_is_told_in_the_headers(connect: Callable[..., Client], version: str) -> None:
    client = connect(version, now_ms=5_000)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"k": 1})
    died(client, "q")
    got = client.get("d")
    headers = client.headers(got)
    (death,) = headers["x-death"]
    assert {key: death[key] for key in ("count", "reason", "queue", "exchange", "routing-keys")} == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
    }
    assert death["time"].timestamp() == 5
    assert headers["k"] == 1
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("q", "rejected")
    assert ("x-last-death-queue" in headers) is (version != OLD)
    assert (got.exchange, got.routing_key) == ("", "d")


def test_an_expiration_is_taken_off_and_told_whatever_the_reason(client: Client) -> None:
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", expiration="60000", priority=3)
    died(client, "q")
    got = client.get("d")
    assert (got.properties.expiration, got.properties.priority) == (None, 3)
    assert client.headers(got)["x-death"][0]["original-expiration"] == "60000"


@pytest.mark.parametrize(
    ("version", "queues"), [(OLD, ["c", "a", "b"]), ("4.0", ["c", "b", "a"]), (NEW, ["c", "b", "a"])]
)
def test_the_order_of_deaths_is_most_recent_first_but_3_10_turns_the_rest_round(
    connect: Callable[..., Client], version: str, queues: list[str]
) -> None:
    client = connect(version)
    client.declare("d")
    for queue, target in (("a", "b"), ("b", "c"), ("c", "d")):
        client.declare(queue, arguments=to(target))
    client.publish("a", "m")
    for queue in "abc":
        died(client, queue)
    assert [death["queue"] for death in client.headers(client.get("d"))["x-death"]] == queues


@pytest.mark.parametrize("version", ALL)
def test_a_repeated_death_is_counted_and_comes_to_the_front(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("a", arguments=to("b"))
    client.declare("b", arguments=to("a"))
    client.publish("a", "m")
    for queue in "aba":
        died(client, queue)
    deaths = client.headers(client.get("b"))["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(("version", "count"), [(OLD, 8), ("4.0", 1), (NEW, 1)])
def test_only_3_10_trusts_an_x_death_that_a_client_sent(
    connect: Callable[..., Client], version: str, count: int
) -> None:
    client = connect(version)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"x-death": [{"queue": "q", "reason": "rejected", "count": 7}]})
    died(client, "q")
    assert client.headers(client.get("d"))["x-death"][0]["count"] == count


@pytest.mark.parametrize("version", ALL)
def test_an_x_death_that_is_no_array_is_replaced(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"x-death": "garbage"})
    died(client, "q")
    assert [death["count"] for death in client.headers(client.get("d"))["x-death"]] == [1]


@pytest.mark.parametrize("version", ALL)
def test_a_queue_that_expires_into_itself_drops_the_message(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.declare("q", arguments=to("q", **{"x-message-ttl": 100}))
    client.publish("q", "m")
    client.wait(100)
    assert client.ready("q") == []


def test_a_cycle_by_rejection_is_never_cut(client: Client) -> None:
    client.declare("q", arguments=to("q"))
    client.publish("q", "m")
    for _ in range(5):
        died(client, "q")
    assert client.headers(client.get("q"))["x-death"][0]["count"] == 5


def test_a_rejection_since_the_last_visit_lets_a_cycle_go_on(client: Client) -> None:
    client.declare("work", arguments=to("hold"))
    client.declare("hold", arguments=to("work", **{"x-message-ttl": 100}))
    client.publish("work", "m")
    for _ in range(3):
        died(client, "work")
        client.wait(100)
    assert client.ready("work") == ["m"]


def test_only_the_cyclic_target_is_left_out(client: Client) -> None:
    client.declare("q", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "amq.fanout"})
    client.declare("other")
    client.channel.queue_bind("q", "amq.fanout")
    client.channel.queue_bind("other", "amq.fanout")
    client.publish("q", "m")
    client.wait(100)
    assert (client.ready("q"), client.ready("other")) == ([], ["m"])


@pytest.mark.parametrize(("version", "keeps"), [(OLD, False), ("4.0", True), (NEW, True)])
def test_with_a_dead_letter_key_only_that_key_routes_and_3_10_removes_the_cc_header(
    connect: Callable[..., Client], version: str, *, keeps: bool
) -> None:
    client = connect(version)
    for queue in ("d", "copy"):
        client.declare(queue)
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"CC": ["copy"]})
    assert client.drain("copy") == ["m"]
    died(client, "q")
    got = client.get("d")
    assert client.headers(got)["x-death"][0]["routing-keys"] == ["q", "copy"]
    assert ("CC" in client.headers(got)) is keeps
    assert client.ready("copy") == []


@pytest.mark.parametrize("version", ALL)
def test_without_a_key_all_keys_route_those_of_a_bcc_header_too(connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.channel.exchange_declare("dx", "direct")
    client.declare("q", arguments={"x-dead-letter-exchange": "dx"})
    for queue, key in (("one", "q"), ("two", "secret")):
        client.declare(queue)
        client.channel.queue_bind(queue, "dx", key)
    client.publish("q", "m", headers={"BCC": ["secret"]})
    died(client, "q")
    assert (client.ready("one"), client.ready("two")) == (["m"], ["m"])
    got = client.get("two")
    assert "BCC" not in client.headers(got)
    assert client.headers(got)["x-death"][0]["routing-keys"] == ["q"]


@pytest.mark.parametrize(("version", "redelivered"), [(OLD, False), ("4.0", False), (NEW, True)])
def test_from_4_3_on_a_rejected_message_is_redelivered_where_it_is_dead_lettered_to(
    connect: Callable[..., Client], version: str, *, redelivered: bool
) -> None:
    client = connect(version)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m")
    client.get("q", ack=False)
    client.channel.basic_reject(1, requeue=False)
    assert client.get("d").redelivered is redelivered


def test_a_nack_raises_no_delivery_count_and_a_waiting_consumer_gets_it_fresh(client: Client) -> None:
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "nacked", "rejected")
    client.get("q", ack=False)
    client.channel.basic_nack(1, requeue=False)
    assert client.get("d").redelivered is False
    client.another(2).consume("d", "t")
    client.get("q", ack=False)
    client.channel.basic_reject(3, requeue=False)
    (delivered,) = client.heard()
    assert delivered.redelivered is False


@pytest.mark.parametrize("exchange", ["missing", "amq.direct"])
def test_without_the_exchange_or_a_binding_the_message_is_gone(client: Client, exchange: str) -> None:
    client.declare("q", arguments={"x-dead-letter-exchange": exchange})
    client.publish("q", "m", mandatory=True)
    died(client, "q")
    assert client.heard() == []
    assert client.ready("q") == []


def test_the_dead_letter_exchange_is_looked_up_when_a_message_dies(client: Client) -> None:
    client.declare("q", arguments={"x-dead-letter-exchange": "later"})
    client.publish("q", "m")
    client.channel.exchange_declare("later", "fanout")
    client.declare("d")
    client.channel.queue_bind("d", "later")
    died(client, "q")
    assert client.ready("d") == ["m"]


def test_several_expiring_together_are_dead_lettered_in_order(client: Client) -> None:
    client.declare("d")
    client.declare("q", arguments=to("d", **{"x-message-ttl": 100}))
    client.publish("q", "1", "2", "3")
    client.wait(100)
    assert client.drain("d") == ["1", "2", "3"]


def test_rejected_messages_of_a_priority_queue_die_from_the_highest_level_down(client: Client) -> None:
    client.declare("d")
    client.declare("q", arguments=to("d", **{"x-max-priority": 9}))
    client.consume("q", "t")
    client.publish("q", "low")
    client.publish("q", "high", priority=9)
    client.channel.basic_nack(0, multiple=True, requeue=False)
    assert client.ready("d") == ["high", "low"]


def test_the_message_that_died_is_not_changed() -> None:
    properties = Properties(expiration="100")
    message = Message(1, "x", "key", properties, b"m", expiration_ms=100)
    dead = dead_letter.dead_lettered(
        message,
        reason=dead_letter.EXPIRED,
        queue="q",
        exchange="dx",
        routing_key=None,
        delivery_count=0,
        now_ms=0,
        version=VERSIONS[NEW],
    )
    assert (message.exchange, message.deaths, message.expiration_ms) == ("x", None, 100)
    assert (dead.exchange, dead.number, dead.expiration_ms) == ("dx", 1, None)


def test_a_cycle_that_3_10_misses_ends_all_the_same(connect: Callable[..., Client]) -> None:
    client = connect(OLD)
    client.declare("first", arguments=to("b"))
    client.declare("b", arguments=to("c", **{"x-message-ttl": 0}))
    client.declare("c", arguments=to("b", **{"x-message-ttl": 0}))
    client.publish("first", "m")
    died(client, "first")
    assert (client.ready("b"), client.ready("c")) == ([], [])


@pytest.mark.parametrize(
    "x_death",
    [
        ["no table"],
        [{"queue": "q", "reason": "rejected", "count": "3"}],
        [{"queue": "q", "reason": "rejected", "count": True}],
        [{"queue": "other", "reason": "rejected"}, 1],
    ],
)
def test_3_10_loses_a_message_whose_published_history_it_cannot_continue(
    connect: Callable[..., Client], x_death: list[Any]
) -> None:
    client = connect(OLD)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"x-death": x_death})
    died(client, "q")
    assert client.ready("d") == client.ready("q") == []


def test_3_10_leaves_a_void_count_in_a_published_history_as_it_is(connect: Callable[..., Client]) -> None:
    client = connect(OLD)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "m", headers={"x-death": [{"queue": "q", "reason": "rejected", "count": None}]})
    died(client, "q")
    assert client.headers(client.get("d"))["x-death"] == [{"queue": "q", "reason": "rejected", "count": None}]


@pytest.mark.parametrize("version", ALL)
def test_a_headers_exchange_sees_how_a_message_died_first_and_last(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.channel.exchange_declare("x", "headers")
    client.declare("d")
    arguments = {"x-match": "any-with-x", "x-first-death-queue": "q"}
    client.channel.queue_bind("d", "x", arguments=table_from_python(arguments))
    client.declare("q", arguments={"x-dead-letter-exchange": "x"})
    client.publish("q", "m")
    died(client, "q")
    assert client.ready("d") == ["m"]


def test_an_x_death_of_no_tables_takes_the_queue_along_and_leaves_what_is_persistent(
    connect: Callable[..., Client],
) -> None:
    client = connect(OLD)
    client.declare("d")
    client.declare("q", arguments=to("d"))
    client.publish("q", "bad", headers={"x-death": ["a"]})
    client.publish("q", "transient")
    client.publish("q", "persistent", delivery_mode=2)
    client.consume("q", "t", prefetch=1)
    client.heard()
    client.channel.basic_reject(1, requeue=False)
    assert client.delivered() == []
    assert (client.ready("q"), client.ready("d")) == (["persistent"], [])
