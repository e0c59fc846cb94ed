"""What the proxy makes of what a client and its broker say, octet by octet."""

from __future__ import annotations

import struct

import pytest

from pytest_queuey.faults import frames
from pytest_queuey.faults.conversation import Conversation, Script

GREETING = b"AMQP\x00\x00\x09\x01"
OPEN = frames.frame(frames.METHOD, 1, frames.CHANNEL_OPEN + b"\x00")
SELECT = frames.frame(frames.METHOD, 1, frames.CONFIRM_SELECT + b"\x00")
TOP = 1 << 63


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def content(channel: int, method: bytes, body: bytes, *, pieces: int = 1) -> bytes:
    header = frames.frame(frames.HEADER, channel, struct.pack(">HHQH", 60, 0, len(body), 0))
    size = -(-len(body) // pieces) or 1
    bodies = [frames.frame(frames.BODY, channel, body[at : at + size]) for at in range(0, len(body), size)]
    return frames.frame(frames.METHOD, channel, method) + header + b"".join(bodies)


def publish(body: bytes = b"body", *, channel: int = 1, mandatory: bool = True, pieces: int = 1) -> bytes:
    method = frames.PUBLISH + b"\x00\x00" + short("") + short("work") + bytes([mandatory])
    return content(channel, method, body, pieces=pieces)


def deliver(body: bytes, *, channel: int = 1, pieces: int = 1) -> bytes:
    method = frames.DELIVER + short("tag") + struct.pack(">QB", 1, 0) + short("") + short("work")
    return content(channel, method, body, pieces=pieces)


def consume(queue: str, tag: str) -> bytes:
    return frames.frame(frames.METHOD, 1, frames.CONSUME + b"\x00\x00" + short(queue) + short(tag) + b"\x00" + bytes(4))


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return frames.confirming(frames.ACK, 1, tag, multiple=multiple)


def nack(tag: int) -> bytes:
    return frames.confirming(frames.NACK, 1, tag)


class Between:
    """A conversation on a channel in confirm mode, and whether it asked for a cut."""

    def __init__(self) -> None:
        self.script = Script()
        self.cuts = 0
        self.said = Conversation(self.script, self.cut)
        self.said.client_says(GREETING + OPEN + SELECT)
        assert self.to_broker() == GREETING + OPEN + SELECT

    def cut(self) -> None:
        self.cuts += 1

    def to_broker(self) -> bytes:
        octets = bytes(self.said.for_broker)
        self.said.for_broker.clear()
        return octets

    def to_client(self) -> bytes:
        octets = bytes(self.said.for_client)
        self.said.for_client.clear()
        return octets


@pytest.fixture
def between() -> Between:
    return Between()


def test_without_faults_everything_passes_as_it_came(between: Between) -> None:
    everything = publish(pieces=3) + consume("work", "t") + frames.frame(8, 0, b"") + publish(b"")
    for octet in everything:
        between.said.client_says(bytes([octet]))
    assert between.to_broker() == everything
    back = deliver(b"body", pieces=2) + ack(1) + frames.frame(8, 0, b"")
    for octet in back:
        between.said.broker_says(bytes([octet]))
    assert between.to_client() == back


def test_a_broker_of_another_protocol_is_heard(between: Between) -> None:
    between.said.broker_says(b"AMQP\x00\x01\x00\x00")
    between.said.broker_says(b"anything")
    assert between.to_client() == b"AMQP\x00\x01\x00\x00anything"


def test_a_nacked_publish_stays_here_and_the_numbers_after_it_are_the_clients(between: Between) -> None:
    between.script.nacks = 2
    between.said.client_says(publish(b"1") + publish(b"2", pieces=2) + publish(b"3") + publish(b"4"))
    assert between.to_broker() == publish(b"3") + publish(b"4")
    assert between.to_client() == nack(1) + nack(2)
    between.said.broker_says(ack(1))
    between.said.broker_says(ack(2, multiple=True))
    assert between.to_client() == ack(3) + ack(4, multiple=True)


def test_numbers_that_the_broker_skips_lie_between_those_that_it_counts(between: Between) -> None:
    between.said.client_says(publish(b"1"))
    between.script.nacks = 1
    between.said.client_says(publish(b"2") + publish(b"3"))
    between.to_client()
    between.said.broker_says(ack(1) + ack(2))
    assert between.to_client() == ack(1) + ack(3)


def test_only_publishes_with_confirms_are_nacked(between: Between) -> None:
    between.script.nacks = 1
    opened = frames.frame(frames.METHOD, 2, frames.CHANNEL_OPEN + b"\x00")
    between.said.client_says(opened + publish(channel=2))
    assert between.to_broker() == opened + publish(channel=2)
    assert between.script.nacks == 1


def test_a_returned_publish_comes_back_with_its_content_and_is_confirmed(between: Between) -> None:
    between.script.returns = 1
    between.said.client_says(publish(b"not mandatory", mandatory=False) + publish(b"mandatory"))
    assert between.to_broker() == publish(b"not mandatory", mandatory=False)
    method = frames.RETURN + struct.pack(">H", 312) + short("NO_ROUTE") + short("") + short("work")
    assert between.to_client() == content(1, method, b"mandatory") + ack(2)


def test_an_answer_waits_for_the_end_of_a_delivery_on_its_channel(between: Between) -> None:
    delivery = deliver(b"a long body", pieces=2)
    between.said.broker_says(delivery[:-10])
    between.script.nacks = 1
    between.said.client_says(publish())
    between.said.broker_says(delivery[-10:])
    assert between.to_client() == delivery + nack(1)


def test_connections_are_cut_at_the_confirm_of_the_last_publish_and_nothing_passes_behind_it(between: Between) -> None:
    between.script.left = 2
    between.said.client_says(publish(b"1") + publish(b"2") + publish(b"3"))
    assert between.to_broker() == publish(b"1") + publish(b"2")
    between.said.broker_says(ack(1))
    assert (between.to_client(), between.cuts) == (ack(1), 0)
    between.said.broker_says(ack(2) + deliver(b"too late"))
    assert (between.to_client(), between.cuts) == (b"", 1)


def test_a_cut_after_the_confirm_lets_it_pass(between: Between) -> None:
    between.script.left, between.script.confirms_last = 1, True
    between.said.client_says(publish())
    between.said.broker_says(ack(1) + deliver(b"too late"))
    assert (between.to_client(), between.cuts) == (ack(1), 1)


def test_a_confirm_of_many_that_covers_the_last_counts(between: Between) -> None:
    between.script.left = 1
    between.said.client_says(publish())
    between.said.broker_says(ack(TOP, multiple=True))
    assert between.cuts == 1


def test_an_alarm_stops_a_client_at_its_first_publish_until_it_ends(between: Between) -> None:
    between.script.alarm = "low on memory"
    between.said.client_says(consume("work", "t") + publish() + consume("work", "u"))
    assert between.to_broker() == consume("work", "t")
    assert between.to_client() == frames.blocked("low on memory")
    assert not between.said.reads_client
    between.script.alarm = None
    between.said.unblock()
    assert between.to_broker() == publish() + consume("work", "u")
    assert between.to_client() == frames.unblocked()
    assert between.said.reads_client


def test_consumers_of_a_queue_are_cancelled_on_both_sides_behind_their_last_delivery(between: Between) -> None:
    started = [frames.frame(frames.METHOD, 1, frames.CONSUME_OK + short(tag)) for tag in ("t", "other")]
    between.said.client_says(consume("work", "t") + consume("elsewhere", "other"))
    between.said.broker_says(b"".join(started))
    between.to_broker()
    between.to_client()
    between.said.cancel_consumers(b"work")
    assert between.to_broker() == frames.cancelling(1, b"t", wants_answer=True)
    assert between.said.awaits_cancel
    between.said.broker_says(deliver(b"last") + frames.frame(frames.METHOD, 1, frames.CANCEL_OK + short("t")))
    assert between.to_client() == deliver(b"last") + frames.cancelling(1, b"t", wants_answer=False)
    assert not between.said.awaits_cancel


def test_a_cancel_waits_for_the_end_of_a_publish_on_its_channel(between: Between) -> None:
    between.said.client_says(consume("work", "t"))
    between.said.broker_says(frames.frame(frames.METHOD, 1, frames.CONSUME_OK + short("t")))
    message = publish(b"a long body", pieces=2)
    between.said.client_says(message[:-10])
    between.said.cancel_consumers(b"work")
    between.said.client_says(message[-10:])
    assert between.to_broker() == consume("work", "t") + message + frames.cancelling(1, b"t", wants_answer=True)
