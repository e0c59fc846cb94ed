from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events
from queuey_fake.model.fields import table_from_python

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


def exchange(client: Client, name: str, type_: str = "fanout", **options: object) -> None:
    arguments = table_from_python(options.pop("arguments", {}))  # type: ignore[arg-type]  # plain values of a test
    client.channel.exchange_declare(name, type_, arguments=arguments, **options)  # type: ignore[arg-type]  # as above
    assert client.heard() == [events.ExchangeDeclareOk(1)]


def exchanges(client: Client) -> list[str]:
    return [one.name for one in client.broker.exchange_snapshots() if not one.name.startswith("amq.") and one.name]


def test_a_queue_gets_one_copy_however_many_bindings_match(client: Client) -> None:
    exchange(client, "x", "topic")
    client.declare("q")
    for key in ("a.#", "*.b", "a.b"):
        client.channel.queue_bind("q", "x", key)
    client.publish("a.b", "m", exchange="x")
    assert client.ready("q") == ["m"]


def test_an_exchange_behind_an_exchange_passes_on_under_the_name_published_to(client: Client) -> None:
    exchange(client, "source")
    exchange(client, "target")
    client.declare("q")
    client.channel.queue_bind("q", "target")
    client.channel.exchange_bind("target", "source")
    client.publish("k", "m", exchange="source")
    assert client.get("q").exchange == "source"


def test_exchanges_bound_in_a_circle_end(client: Client) -> None:
    exchange(client, "a")
    exchange(client, "b")
    client.declare("q")
    client.channel.exchange_bind("a", "b")
    client.channel.exchange_bind("b", "a")
    client.channel.queue_bind("q", "b")
    client.publish("k", "m", exchange="a")
    assert client.ready("q") == ["m"]


def test_an_alternate_exchange_gets_what_routes_nowhere_and_counts_as_routed(client: Client) -> None:
    exchange(client, "ae")
    exchange(client, "x", "direct", arguments={"alternate-exchange": "ae"})
    client.declare("q")
    client.channel.queue_bind("q", "ae")
    client.heard()
    client.publish("k", "m", exchange="x", mandatory=True)
    assert client.heard() == []
    assert client.ready("q") == ["m"]


def test_the_default_exchange_as_alternate_exchange_leads_nowhere(client: Client) -> None:
    exchange(client, "x", "direct", arguments={"alternate-exchange": ""})
    client.declare("q")
    client.publish("q", "m", exchange="x", mandatory=True)
    assert isinstance(client.heard()[-1], events.Return)
    assert client.ready("q") == []


def test_alternate_exchanges_in_a_circle_return_the_message(client: Client) -> None:
    exchange(client, "a", arguments={"alternate-exchange": "b"})
    exchange(client, "b", arguments={"alternate-exchange": "a"})
    client.publish("k", "m", exchange="a", mandatory=True)
    assert [type(said) for said in client.heard()] == [events.Return]


def test_an_alternate_exchange_that_there_is_not_is_as_none(client: Client) -> None:
    exchange(client, "x", arguments={"alternate-exchange": "missing"})
    client.publish("k", "m", exchange="x", mandatory=True)
    assert [type(said) for said in client.heard()] == [events.Return]


def test_an_auto_delete_exchange_goes_with_its_last_binding(client: Client) -> None:
    exchange(client, "x", auto_delete=True)
    client.declare("q")
    client.channel.queue_bind("q", "x", "a")
    client.channel.queue_bind("q", "x", "b")
    client.channel.queue_unbind("q", "x", "a")
    assert exchanges(client) == ["x"]
    client.channel.queue_unbind("q", "x", "b")
    assert exchanges(client) == []


def test_a_queue_that_goes_takes_its_bindings_and_their_auto_delete_exchanges_along(client: Client) -> None:
    exchange(client, "x", auto_delete=True)
    client.declare("q")
    client.channel.queue_bind("q", "x")
    client.channel.queue_delete("q")
    assert exchanges(client) == []
    assert client.broker.binding_snapshots() == []


def test_deleting_an_exchange_takes_an_auto_delete_exchange_before_it_along(client: Client) -> None:
    exchange(client, "source", auto_delete=True)
    exchange(client, "target")
    client.channel.exchange_bind("target", "source")
    client.channel.exchange_delete("target")
    assert exchanges(client) == []


def test_an_exchange_in_use_is_not_deleted_if_unused_is_asked_for(client: Client) -> None:
    exchange(client, "x")
    client.declare("q")
    client.channel.queue_bind("q", "x")
    client.channel.exchange_delete("x", if_unused=True)
    assert client.heard()[-1].text == "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"


def test_unbinding_what_is_not_there_is_no_error(client: Client) -> None:
    client.channel.queue_unbind("missing", "missing", "k")
    client.channel.exchange_unbind("missing", "missing", "k")
    client.channel.exchange_delete("missing")
    assert [type(said) for said in client.heard()] == [
        events.QueueUnbindOk,
        events.ExchangeUnbindOk,
        events.ExchangeDeleteOk,
    ]


def test_binding_looks_for_the_exchange_before_the_queue(client: Client) -> None:
    client.channel.queue_bind("missing", "none", "k")
    assert client.heard()[-1].text == "NOT_FOUND - no exchange 'none' in vhost '/'"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda channel: channel.exchange_declare("", "direct"), "operation not permitted on the default exchange"),
        (lambda channel: channel.exchange_declare("", passive=True), "operation not permitted on the default exchange"),
        (lambda channel: channel.exchange_delete(""), "operation not permitted on the default exchange"),
        (lambda channel: channel.queue_bind("q", "", "k"), "operation not permitted on the default exchange"),
        (
            lambda channel: channel.exchange_delete("amq.topic"),
            "deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            lambda channel: channel.exchange_declare("amq.mine"),
            "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (lambda channel: channel.queue_declare("amq.mine"), "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
    ],
)
def test_what_is_rabbitmqs_own_is_refused(client: Client, call: object, text: str) -> None:
    client.declare("q")
    call(client.channel)  # type: ignore[operator]  # a case
    assert client.heard()[-1].text == f"ACCESS_REFUSED - {text}"


@pytest.mark.parametrize(
    ("version", "exchange_", "order"),
    [("3.10", "", "ba"), ("4.3", "", "ba"), ("3.10", "amq.fanout", "ba"), ("4.3", "amq.fanout", "ab")],
)
def test_queues_get_a_message_in_an_order_of_their_names(
    connect: Callable[..., Client], version: str, exchange_: str, order: str
) -> None:
    client = connect(version)
    for queue in "ab":
        client.declare(queue)
        client.channel.queue_bind(queue, "amq.fanout")
        client.consume(queue, queue)
    client.heard()
    client.publish("a", "m", exchange=exchange_, headers={"CC": ["b"]})
    assert [tag for tag, _ in client.delivered()] == list(order)


@pytest.mark.parametrize(("version", "is_refused"), [("3.10", False), ("4.0", False), ("4.3", True)])
def test_from_4_3_on_a_topic_binding_has_two_hashes_at_most(
    connect: Callable[..., Client], version: str, *, is_refused: bool
) -> None:
    client = connect(version)
    client.declare("q")
    client.channel.queue_bind("q", "amq.topic", "#.a#.#")
    client.channel.queue_bind("q", "amq.topic", "#.a.#.#")
    text = "PRECONDITION_FAILED - Topic binding key '#.a.#.#' uses 3 '#' wildcards, at most 2 are allowed"
    assert (getattr(client.heard()[-1], "text", "") == text) is is_refused


def test_what_is_wrong_with_a_binding_comes_behind_a_missing_queue_and_before_a_locked_one(client: Client) -> None:
    client.stranger().channel.queue_declare("locked", exclusive=True)
    codes = []
    for number, queue in enumerate(("missing", "locked"), 2):
        other = client.another(number)
        other.channel.queue_bind(queue, "amq.topic", "#.#.#")
        codes.append(client.heard()[-1].code)
    assert codes == [404, 406]


@pytest.mark.parametrize(("version", "code"), [("3.10", 404), ("4.0", 404), ("4.3", 403)])
def test_from_4_3_on_there_is_an_exchange_for_the_log(connect: Callable[..., Client], version: str, code: int) -> None:
    client = connect(version)
    client.publish("k", "m", exchange="amq.rabbitmq.log")
    assert client.heard()[-1].code == code


def test_a_message_with_carbon_copies_goes_to_one_queue_of_a_local_random_exchange(client: Client) -> None:
    exchange(client, "x", "x-local-random")
    for queue in "ab":
        client.declare(queue)
        client.channel.queue_bind(queue, "x")
    client.publish("k", "m", exchange="x", headers={"CC": ["a", "b"]})  # scenario x_local_random_cc
    assert sorted([*client.ready("a"), *client.ready("b")]) == ["m"]


def test_a_local_random_exchange_refuses_a_key_before_it_is_seen_whose_queue_it_is(client: Client) -> None:
    exchange(client, "x", "x-local-random")
    client.stranger().channel.queue_declare("theirs", exclusive=True)
    client.declare("quorum", arguments={"x-queue-type": "quorum"})
    told = []
    for number, (queue, key) in enumerate([("theirs", "k"), ("theirs", ""), ("quorum", ""), ("missing", "k")]):
        another = client.another(number + 2)
        another.channel.queue_bind(queue, "x", key)
        told.append(another.heard()[-1].text.split(" queue")[0])
    assert told == [  # scenario x_local_random_bind_errors
        "PRECONDITION_FAILED - Non empty binding 'k' key not permitted",
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked",
        "PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type",
        "NOT_FOUND - no",
    ]


def test_no_exchange_is_bound_behind_a_local_random_exchange(client: Client) -> None:
    exchange(client, "x", "x-local-random")
    exchange(client, "behind")
    client.channel.exchange_bind("behind", "x")
    assert client.heard()[-1].text == "PRECONDITION_FAILED - Destination not found"


def test_a_dead_letter_goes_where_its_own_keys_lead_through_a_modulus_hash_exchange(client: Client) -> None:
    exchange(client, "x", "x-modulus-hash")
    for queue in "abc":
        client.declare(queue)
        client.channel.queue_bind(queue, "x")
    for key in ("c", "key"):  # scenario x_modulus_hash_three: c goes to b, key to c
        name = f"dies-as-{key}"
        client.declare(name, arguments={"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": key})
        client.publish(name, key, expiration="0")
    assert [client.ready(queue) for queue in "abc"] == [[], ["c"], ["key"]]
