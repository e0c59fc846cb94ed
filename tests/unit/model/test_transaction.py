from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from queuey_fake.model import events

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


@pytest.fixture
def tx(client: Client) -> Client:
    client.declare("d")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"})
    client.channel.tx_select()
    assert client.heard() == [events.TxSelectOk(1)]
    return client


def test_publishes_take_effect_at_commit(tx: Client) -> None:
    tx.publish("q", "a")
    assert tx.ready("q") == []
    tx.channel.tx_commit()
    assert tx.heard() == [events.TxCommitOk(1)]
    assert tx.ready("q") == ["a"]


def test_a_rollback_forgets_publishes_and_makes_settlements_undone(tx: Client) -> None:
    tx.another(2).publish("q", "a")
    tx.get("q", ack=False)
    tx.publish("q", "b")
    tx.channel.basic_ack(1)
    tx.channel.tx_rollback()
    assert tx.heard() == [events.TxRollbackOk(1)]
    assert tx.ready("q") == []
    tx.channel.basic_nack(1)
    tx.channel.tx_commit()
    assert tx.ready("q") == ["a"]


def test_returns_come_before_the_reply(tx: Client) -> None:
    tx.publish("nowhere", "a", mandatory=True)
    assert tx.heard() == []
    tx.channel.tx_commit()
    returned, reply = tx.heard()
    assert (returned.code, reply) == (312, events.TxCommitOk(1))


def test_publishes_go_before_settlements(tx: Client) -> None:
    tx.another(2).publish("q", "old")
    tx.get("q", ack=False)
    tx.channel.basic_reject(1, requeue=False)
    tx.publish("d", "new")
    tx.channel.tx_commit()
    assert tx.ready("d") == ["new", "old"]


def test_settlements_of_one_kind_are_merged_and_applied_by_tag(tx: Client) -> None:
    tx.another(2).publish("q", "1", "2", "3")
    tx.consume("q", "t")
    for tag in (3, 1, 2):
        tx.channel.basic_nack(tag, requeue=False)
    tx.channel.tx_commit()
    assert tx.ready("d") == ["1", "2", "3"]


def test_an_ack_between_two_rejects_keeps_them_apart(tx: Client) -> None:
    tx.another(2).publish("q", "1", "2", "3")
    tx.consume("q", "t")
    tx.channel.basic_nack(3, requeue=False)
    tx.channel.basic_ack(2)
    tx.channel.basic_nack(1, requeue=False)
    tx.channel.tx_commit()
    assert tx.ready("d") == ["3", "1"]


def test_an_uncommitted_ack_makes_no_room(tx: Client) -> None:
    tx.consume("q", "t", prefetch=1)
    tx.another(2).publish("q", "1", "2")
    tx.heard()
    tx.channel.basic_ack(1)
    assert tx.delivered() == []
    tx.channel.tx_commit()
    assert tx.delivered() == [("t", "2")]


def test_closing_before_commit_gives_back_what_was_acked(tx: Client) -> None:
    tx.another(2).publish("q", "a")
    tx.get("q", ack=False)
    tx.channel.basic_ack(1)
    tx.channel.close()
    assert tx.ready("q") == ["a"]


def commit_to_deleted_queue(client: Client, queue_type: str) -> list[events.Event]:
    client.declare("q", arguments={"x-queue-type": queue_type})
    client.channel.tx_select()
    client.publish("q", "a", mandatory=True)
    client.stranger().channel.queue_delete("q")
    client.heard()
    client.channel.tx_commit()
    return client.heard()


def test_3_10_returns_at_commit_what_was_routed_to_a_queue_that_is_gone(connect: Callable[..., Client]) -> None:
    said = commit_to_deleted_queue(connect("3.10"), "classic")
    assert [type(each) for each in said] == [events.Return, events.TxCommitOk]


def test_4_0_fails_the_commit_where_a_classic_queue_is_gone(connect: Callable[..., Client]) -> None:
    assert commit_to_deleted_queue(connect("4.0"), "classic")[0].text == "PRECONDITION_FAILED - partial tx completion"
    assert commit_to_deleted_queue(connect("4.0"), "quorum") == [events.TxCommitOk(1)]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_4_3_closes_the_connection_where_a_queue_is_gone(connect: Callable[..., Client], queue_type: str) -> None:
    (closed,) = commit_to_deleted_queue(connect("4.3"), queue_type)
    reason = '{not_found,{resource,<<"/">>,queue,<<"q">>}}'
    assert (closed.code, closed.text) == (506, f"RESOURCE_ERROR - failed to deliver message: {reason}")


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_a_queue_of_the_same_name_does_not_stand_in_for_one_that_is_gone(
    connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.declare("q")
    client.channel.tx_select()
    client.publish("q", "a")
    other = client.stranger()
    other.channel.queue_delete("q")
    other.declare("q")
    client.channel.tx_commit()
    assert client.heard()[-1].text == "PRECONDITION_FAILED - partial tx completion"
    assert client.ready("q") == []


def test_3_10_delivers_at_commit_to_a_queue_that_was_not_there_at_the_publish(connect: Callable[..., Client]) -> None:
    client = connect("3.10")
    client.channel.tx_select()
    client.publish("q", "a", mandatory=True)
    client.stranger().declare("q")
    client.channel.tx_commit()
    assert client.heard()[-1] == events.TxCommitOk(1)
    assert client.ready("q") == ["a"]


def test_a_quorum_queue_takes_a_commit_whole_that_fills_it_and_fails_none_when_it_is_full(tx: Client) -> None:
    tx.declare("full", arguments={"x-queue-type": "quorum", "x-max-length": 0, "x-overflow": "reject-publish"})
    for bodies in ("ab", "cd"):
        tx.publish("full", *bodies)
        tx.channel.tx_commit()
        assert tx.heard()[-1] == events.TxCommitOk(1)
        assert tx.ready("full") == ["a", "b"]


def test_a_full_queue_fails_the_commit(tx: Client) -> None:
    tx.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    tx.publish("full", "a")
    tx.channel.tx_commit()
    assert tx.heard()[-1].text == "PRECONDITION_FAILED - partial tx completion"


def test_deliveries_come_after_the_reply(tx: Client) -> None:
    tx.consume("q", "t")
    tx.heard()
    tx.publish("q", "a")
    tx.channel.tx_commit()
    assert [type(said) for said in tx.heard()] == [events.TxCommitOk, events.Deliver]


def test_a_commit_that_fails_delivers_nothing_to_the_channel(tx: Client) -> None:
    tx.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    tx.consume("q", "t")
    tx.heard()
    tx.publish("q", "a")
    tx.publish("full", "b")
    tx.channel.tx_commit()
    assert [type(said) for said in tx.heard()] == [events.ChannelClose]
    assert tx.ready("q") == ["a"]


def test_a_channel_is_in_one_mode(tx: Client) -> None:
    tx.channel.confirm_select()
    assert tx.heard()[-1].text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    other = tx.another(2)
    other.channel.confirm_select()
    other.channel.tx_select()
    assert tx.heard()[-1].text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"


def test_commit_and_rollback_need_a_transaction(client: Client) -> None:
    client.channel.tx_commit()
    assert client.heard()[-1].text == "PRECONDITION_FAILED - channel is not transactional"
