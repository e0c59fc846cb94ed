"""The pika link on a real RabbitMQ: every command, every event, and how connections and links end."""

from __future__ import annotations

import os
import time
from typing import Any

import pika
import pytest

from queuey_rabbitmq.amqp import (
    Ack,
    Cancel,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    CommandRefused,
    Confirmed,
    ConnectionLost,
    ConnectionOpened,
    ConsumerCancelled,
    ConsumeStarted,
    DeclareQueue,
    Delivered,
    Nack,
    Nacked,
    OpenChannel,
    QueueDeclared,
    Reject,
    Returned,
)
from queuey_rabbitmq.pika_link import stream
from tests.rabbitmq.speaking import confirmed, consume, count, declare, publish, soon, with_url


def test_an_open_connection_knows_the_brokers_properties(make_probe: Any) -> None:
    opened = make_probe().connect()
    assert isinstance(opened, ConnectionOpened)
    assert opened.server_properties["product"] == "RabbitMQ"


def test_a_wrong_password_says_so_and_is_not_shown(
    make_probe: Any, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    probe = make_probe(with_url(rabbitmq_url, login=("guest", "wr0ng-password")))
    lost = probe.connect()
    assert (lost.stage, lost.code) == ("logging in", 403)
    assert lost.text.startswith("ACCESS_REFUSED - Login was refused")
    assert "wr0ng-password" not in f"{lost!r} {lost.cause!r} {caplog.text}"


def test_a_missing_vhost_says_so(make_probe: Any, rabbitmq_url: str) -> None:
    lost = make_probe(with_url(rabbitmq_url, path="/no-such-vhost")).connect()
    assert (lost.stage, lost.code) == ("opening the virtual host", 530)
    assert "vhost no-such-vhost not found" in lost.text


def test_two_connections_share_the_loop_and_one_may_go(probe: Any) -> None:
    first = probe.connection
    assert isinstance(probe.connect(), ConnectionOpened)
    probe.in_turn(first.abort)
    assert probe.next().stage == "closing"
    assert probe.open_channel() == 1


def test_a_connection_is_opened_again_on_the_same_link(probe: Any) -> None:
    for _ in range(3):
        probe.in_turn(probe.connection.close)
        assert probe.next().stage == "closing"
        assert isinstance(probe.connect(), ConnectionOpened)


# ----------------------------------------------------------------------------------------------------- channels


def test_a_channel_closes_as_asked(probe: Any) -> None:
    channel = probe.open_channel()
    probe.send(CloseChannel(channel))
    assert probe.next() == ChannelClosed(channel, 200, "closed as asked")


def test_commands_for_a_channel_that_is_gone_are_dropped(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(CloseChannel(channel), publish(channel, queue), Ack(channel, 1), declare(channel, queue))
    assert isinstance(probe.next(), ChannelClosed)
    probe.send(publish(channel, queue), CloseChannel(channel))
    assert probe.nothing_comes()


def test_commands_behind_the_opening_of_their_channel_wait_for_it(probe: Any, queue: str) -> None:
    probe.send(OpenChannel(1, True), publish(1, queue), publish(1, queue))
    assert probe.next() == ChannelOpened(1)
    confirmed(probe, 1, 2)


def test_a_channel_that_the_broker_closes_takes_no_other_with_it(probe: Any, queue: str) -> None:
    first, second = probe.open_channel(), probe.open_channel()
    probe.send(consume(first, f"{queue}-missing"))
    closed = probe.next()
    assert (closed.channel, closed.code) == (first, 404)
    assert closed.text.startswith("NOT_FOUND - no queue")
    probe.send(publish(second, queue))
    assert probe.next() == Confirmed(second, 1, False)


def test_a_number_of_pika_that_is_used_again_is_another_channel(probe: Any, queue: str) -> None:
    first = probe.open_channel()
    probe.send(publish(first, queue), CloseChannel(first))
    while not isinstance(probe.next(), ChannelClosed):
        pass
    second = probe.open_channel()
    probe.send(publish(second, queue))
    assert probe.next() == Confirmed(second, 1, False)


# --------------------------------------------------------------------------------------------------- publishing


def test_publishes_are_confirmed_and_arrive_as_they_were(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()
    properties = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"x-text": "é", "x-number": 1, "x-flag": True},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "cl",
    }
    probe.send(publish(channel, queue, b"\x00body\xce", **properties))
    assert probe.next() == Confirmed(channel, 1, False)
    _, received, body = operator.basic_get(queue, auto_ack=True)
    assert body == b"\x00body\xce"
    assert {name: getattr(received, name) for name in properties} == properties


def test_an_unroutable_publish_is_returned_before_its_confirm(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(publish(channel, f"{queue}-missing", message_id="m"))
    assert probe.next() == Returned(channel, 312, "NO_ROUTE", "", f"{queue}-missing", "m")
    assert probe.next() == Confirmed(channel, 1, False)


def test_a_full_queue_that_refuses_nacks(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    full = f"{queue}-full"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish", "x-expires": 60_000}
    probe.send(declare(channel, full, **arguments), publish(channel, full))
    assert isinstance(probe.next(), QueueDeclared)
    assert probe.next() == Confirmed(channel, 1, False)
    probe.send(publish(channel, full))
    nacked = probe.next()
    assert isinstance(nacked, Nacked)
    assert (nacked.channel, nacked.delivery_tag) == (channel, 2)


def test_bodies_of_none_one_and_many_frames_go_and_come_whole(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    bodies = [os.urandom(5_000_000), b"", os.urandom(131_064), os.urandom(131_065), b"small"]
    probe.send(*(publish(channel, queue, body) for body in bodies))
    confirmed(probe, channel, len(bodies))
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    assert [probe.next().body for _ in bodies] == bodies


def test_what_is_sent_before_a_close_arrives(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()

    def step() -> None:
        probe.connection.send([publish(channel, queue)] * 100)
        probe.connection.close()

    probe.in_turn(step)
    events = [probe.next()]
    while not isinstance(events[-1], ConnectionLost):
        events.append(probe.next())
    assert soon(lambda: count(operator, queue), 100)


def test_confirms_that_come_together_are_one_turn(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(*(publish(channel, f"{queue}-missing") for _ in range(300)))
    for _ in range(300):
        assert isinstance(probe.next(), Returned)
        assert isinstance(probe.next(), Confirmed)
    turns = [turn for turn in probe.turns if any(isinstance(event, Confirmed) for event in turn)]
    assert len(turns) < 150


def test_a_pika_whose_inside_is_another_serves_as_it_is(
    make_probe: Any, queue: str, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CONNECTION_CLASS", pika.SelectConnection)
    probe = make_probe()
    assert isinstance(probe.connect(), ConnectionOpened)
    channel = probe.open_channel()
    probe.send(*(publish(channel, queue) for _ in range(100)))
    confirmed(probe, channel, 100)
    probe.send(consume(channel, queue, prefetch=100))
    assert isinstance(probe.next(), ConsumeStarted)
    assert [probe.next().delivery_tag for _ in range(100)] == list(range(1, 101))
    probe.send(Ack(channel, 100, True), Cancel(channel, "tag"))
    assert isinstance(probe.next(), ConsumerCancelled)
    assert count(operator, queue) == 0


# ---------------------------------------------------------------------------------------------------- declaring


def test_a_declaration_says_what_is_there(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(publish(channel, queue), declare(channel, queue))
    events = {type(event): event for event in (probe.next(), probe.next())}
    assert events[QueueDeclared] == QueueDeclared(channel, queue, events[QueueDeclared].message_count, 0)


def test_a_publish_is_written_right_behind_its_declaration(probe: Any, queue: str) -> None:
    """DESIGN: the broker drops the publish behind a declaration that it refuses, so it was not held back."""
    channel = probe.open_channel()
    other = f"{queue}-held"
    probe.send(declare(channel, other, **{"x-expires": 60_000}), publish(channel, other))
    assert probe.next() == QueueDeclared(channel, other, 0, 0)
    assert probe.next() == Confirmed(channel, 1, False)


def test_a_refused_declaration_closes_the_channel_and_drops_the_publish_behind_it(
    probe: Any, queue: str, operator: Any
) -> None:
    channel = probe.open_channel()
    probe.send(declare(channel, queue, **{"x-max-length": 1}), publish(channel, queue))
    closed = probe.next()
    assert (closed.channel, closed.code) == (channel, 406)
    assert closed.text.startswith("PRECONDITION_FAILED - inequivalent arg 'x-max-length'")
    assert probe.nothing_comes()
    assert count(operator, queue) == 0


def test_declarations_sent_together_keep_their_publishes_behind_them(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    names = [f"{queue}-{number}" for number in range(5)]
    commands = [c for name in names for c in (declare(channel, name, **{"x-expires": 60_000}), publish(channel, name))]
    probe.send(*commands)
    events = [probe.next() for _ in range(5)]
    while sum(isinstance(event, QueueDeclared) for event in events) < len(names):
        events.append(probe.next())
    assert [event.queue for event in events if isinstance(event, QueueDeclared)] == names
    assert not [event for event in events if isinstance(event, Returned)]


def test_a_passive_declaration_of_nothing_is_refused(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(DeclareQueue(channel=channel, queue=f"{queue}-missing", passive=True, arguments={}))
    assert probe.next().code == 404


# ------------------------------------------------------------------------------------------------------ refused


def test_a_publish_that_cannot_be_written_has_no_number(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    bad = publish(channel, queue, headers={"x": object()})
    worse = publish(channel, "q" * 256)
    probe.send(
        publish(channel, queue), bad, publish(channel, queue), worse, worse, publish(channel, f"{queue}-missing")
    )
    refused = [probe.next() for _ in range(3)]
    assert [(type(event), event.command) for event in refused] == [(CommandRefused, c) for c in (bad, worse, worse)]
    numbers = set()
    while numbers != {1, 2, 3}:
        event = probe.next()
        if isinstance(event, Confirmed):
            assert event.delivery_tag in {1, 2, 3}
            numbers |= {n for n in (1, 2, 3) if n == event.delivery_tag or (event.multiple and n < event.delivery_tag)}
    probe.send(publish(channel, queue))
    assert probe.next() == Confirmed(channel, 4, False)


def test_behind_a_declaration_that_cannot_be_written_nothing_goes(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()
    bad = declare(channel, queue, **{"x-strange": object()})
    probe.send(bad, publish(channel, queue))
    assert [probe.next().command, probe.next().command] == [bad, publish(channel, queue)]
    probe.send(publish(channel, queue))
    assert probe.next() == Confirmed(channel, 1, False)
    assert count(operator, queue) == 1


def test_a_command_refused_at_the_end_of_a_turn_is_told_at_once(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    bad = [publish(channel, queue, headers={"x": object()})]
    probe.end_of_turn = lambda: probe.connection.send([bad.pop()]) if bad else None
    start = time.monotonic()
    probe.in_turn(lambda: None)
    assert isinstance(probe.next(), CommandRefused)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "command",
    [
        lambda channel: consume(channel, "q" * 256),
        lambda channel: consume(channel, "q", prefetch=70_000),
        lambda channel: consume(channel, "q", prefetch=-1),
        lambda channel: declare(channel, "q" * 256),
    ],
)
def test_a_command_that_cannot_be_written_leaves_the_channel_as_it_was(probe: Any, queue: str, command: Any) -> None:
    channel = probe.open_channel()
    probe.send(command(channel))
    assert isinstance(probe.next(), CommandRefused)
    probe.send(declare(channel, queue))
    assert isinstance(probe.next(), QueueDeclared)


def test_a_channel_more_than_there_are_numbers_is_refused(make_probe: Any, rabbitmq_url: str) -> None:
    probe = make_probe(with_url(rabbitmq_url, query="channel_max=1"))
    probe.connect()
    probe.open_channel()
    probe.send(OpenChannel(2))
    assert probe.next().command == OpenChannel(2)


# ---------------------------------------------------------------------------------------------------- consuming


def test_deliveries_come_and_are_settled(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()
    probe.send(*(publish(channel, queue, str(number).encode(), message_id=str(number)) for number in range(5)))
    confirmed(probe, channel, 5)
    consumer = probe.open_channel(confirms=False)
    probe.send(consume(consumer, queue))
    assert probe.next() == ConsumeStarted(consumer, "tag")
    deliveries = [probe.next() for _ in range(5)]
    assert [(d.delivery_tag, d.body, d.properties.message_id) for d in deliveries] == [
        (number + 1, str(number).encode(), str(number)) for number in range(5)
    ]
    first = deliveries[0]
    assert (first.channel, first.consumer_tag, first.exchange, first.routing_key) == (consumer, "tag", "", queue)
    assert first.redelivered is False
    probe.send(Nack(consumer, 4, True), Reject(consumer, 5, False), Ack(consumer, 3, True))
    again = probe.next()
    assert isinstance(again, Delivered)
    assert (again.redelivered, again.body) == (True, b"3")
    probe.send(Reject(consumer, again.delivery_tag, True))
    probe.send(CloseChannel(consumer))
    while not isinstance(probe.next(), ChannelClosed):
        pass
    assert soon(lambda: count(operator, queue), 1)


def test_prefetch_bounds_what_is_unsettled(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(*(publish(channel, queue) for _ in range(5)))
    confirmed(probe, channel, 5)
    consumer = probe.open_channel(confirms=False)
    probe.send(consume(consumer, queue, prefetch=2))
    assert [type(probe.next()) for _ in range(3)] == [ConsumeStarted, Delivered, Delivered]
    assert probe.nothing_comes()
    probe.send(Ack(consumer, 2, True))
    assert [probe.next().delivery_tag, probe.next().delivery_tag] == [3, 4]


def test_deliveries_that_come_together_are_few_turns(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(*(publish(channel, queue) for _ in range(500)))
    confirmed(probe, channel, 500)
    consumer = probe.open_channel(confirms=False)
    probe.send(consume(consumer, queue, prefetch=500))
    assert isinstance(probe.next(), ConsumeStarted)
    for _ in range(500):
        assert isinstance(probe.next(), Delivered)
    turns = [turn for turn in probe.turns if any(isinstance(event, Delivered) for event in turn)]
    assert len(turns) < 250


def test_a_cancelled_consumer_gets_nothing_more(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    probe.send(Cancel(channel, "tag"))
    assert probe.next() == ConsumerCancelled(channel, "tag", False)
    probe.send(publish(channel, queue), Cancel(channel, "tag"))
    assert probe.next() == Confirmed(channel, 1, False)
    assert probe.nothing_comes()


def test_a_consumer_whose_queue_is_deleted_is_cancelled_by_the_broker(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    operator.queue_delete(queue)
    assert probe.next() == ConsumerCancelled(channel, "tag", True)
    probe.send(Cancel(channel, "tag"))
    assert probe.nothing_comes()


def test_an_ack_of_nothing_closes_the_channel(probe: Any) -> None:
    channel = probe.open_channel()
    probe.send(Ack(channel, 1))
    closed = probe.next()
    assert (closed.channel, closed.code) == (channel, 406)
    assert closed.text == "PRECONDITION_FAILED - unknown delivery tag 1"
