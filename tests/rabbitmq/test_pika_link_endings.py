"""How connections, channels and links of the pika link end on a real RabbitMQ."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.amqp import (
    Confirmed,
    ConnectionOpened,
    ConsumeStarted,
    Delivered,
    OpenChannel,
)
from tests.rabbitmq.speaking import consume, count, publish, soon, with_url

DESCRIPTORS = Path("/proc/self/fd")


def test_closing_says_so_once_and_nothing_more(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    probe.in_turn(probe.connection.close)
    lost = probe.next()
    assert (lost.stage, lost.code) == ("closing", 200)
    for end in (probe.connection.close, probe.connection.abort):
        probe.in_turn(end)
    probe.in_turn(probe.connection.send, [OpenChannel(9)])
    probe.link.close(2_000)
    assert probe.events.empty()


def test_aborting_says_so_once_and_at_once(probe: Any) -> None:
    probe.open_channel()
    start = time.monotonic()
    probe.in_turn(probe.connection.abort)
    assert (probe.next().stage, probe.events.empty()) == ("closing", True)
    assert time.monotonic() - start < 10


def test_aborting_ends_a_close_that_is_under_way(probe: Any) -> None:
    def step() -> None:
        probe.connection.close()
        probe.connection.abort()

    probe.in_turn(step)
    assert (probe.next().stage, probe.events.empty()) == ("closing", True)


def test_a_close_that_nothing_answers_is_ended_by_an_abort(
    make_probe: Any, rabbitmq_url: str, black_hole: Any, queue: str
) -> None:
    probe = make_probe(with_url(rabbitmq_url, port=black_hole.port))
    assert isinstance(probe.connect(), ConnectionOpened)
    channel = probe.open_channel()
    black_hole.swallows.set()
    probe.send(publish(channel, queue, b"x" * 10_000_000))
    probe.in_turn(probe.connection.close)
    with pytest.raises(Empty):
        probe.events.get(timeout=0.2)
    start = time.monotonic()
    probe.in_turn(probe.connection.abort)
    assert probe.next().stage == "closing"
    assert time.monotonic() - start < 10


def test_closing_the_link_drops_in_time_what_does_not_answer(
    make_probe: Any, rabbitmq_url: str, black_hole: Any, queue: str
) -> None:
    threads = threading.active_count()
    probe = make_probe(with_url(rabbitmq_url, port=black_hole.port))
    assert isinstance(probe.connect(), ConnectionOpened)
    black_hole.swallows.set()
    probe.send(OpenChannel(1))
    start = time.monotonic()
    probe.link.close(300)
    assert 0.2 < time.monotonic() - start < 10
    assert not probe.link._thread.is_alive()
    assert soon(threading.active_count, threads)


def test_a_broker_that_falls_silent_is_noticed_by_its_heartbeats(
    make_probe: Any, rabbitmq_url: str, black_hole: Any
) -> None:
    """pika looks every heartbeat + 5 seconds, so that the second look finds it: 12 seconds here."""
    probe = make_probe(with_url(rabbitmq_url, port=black_hole.port), heartbeat=1)
    assert isinstance(probe.connect(), ConnectionOpened)
    black_hole.swallows.set()
    lost = probe.events.get(timeout=20)
    assert (lost.stage, lost.code) == ("open", 0)
    assert "missed heartbeats" in lost.text


def test_closing_the_link_closes_what_is_open(probe: Any, queue: str, operator: Any) -> None:
    channel = probe.open_channel()
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    probe.link.close(2_000)
    assert soon(lambda: operator.queue_declare(queue, passive=True).method.consumer_count, 0)


def test_an_error_in_a_delivery_ends_the_link_and_gives_the_message_back(
    probe: Any, queue: str, operator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    channel = probe.open_channel()
    probe.send(publish(channel, queue))
    assert probe.next() == Confirmed(channel, 1, False)

    def on_event(event: Any) -> None:
        assert not isinstance(event, Delivered), "a bug in a session"

    probe.connection._on_event = on_event
    probe.send(consume(channel, queue))
    probe.link._thread.join(5)
    assert "a bug in a session" in str(probe.death)
    assert soon(lambda: count(operator, queue), 1)


def test_twenty_rounds_leave_no_thread_and_no_descriptor(make_probe: Any, queue: str) -> None:
    threads, descriptors = threading.active_count(), len(list(DESCRIPTORS.iterdir()))
    for number in range(20):
        probe = make_probe()
        probe.connect()
        channel = probe.open_channel()
        probe.send(publish(channel, queue))
        assert probe.next() == Confirmed(channel, 1, False)
        probe.in_turn([probe.connection.close, probe.connection.abort, lambda: None][number % 3])
        probe.link.close(2_000)
    assert threading.active_count() == threads
    assert len(list(DESCRIPTORS.iterdir())) == descriptors


EXIT = """
import sys
from queue import SimpleQueue
from queuey_rabbitmq import amqp
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink
from tests.rabbitmq.speaking import consume, count, publish, soon, with_url

class Nothing:
    def end_of_turn(self): pass
    def next_deadline_ms(self): return None
    def on_time(self): pass
    def abandon(self, error): pass

url, queue = sys.argv[1:]
events = SimpleQueue()
link = PikaLink(LinkSettings(url=url))
link.attach(Nothing())
connections = SimpleQueue()
link.run(lambda: connections.put(link.open("exit", events.put)))
connection = connections.get(timeout=10)
assert isinstance(events.get(timeout=10), amqp.ConnectionOpened)
link.run(lambda: connection.send([amqp.OpenChannel(1)]))
assert events.get(timeout=10) == amqp.ChannelOpened(1)
link.run(lambda: connection.send([amqp.Consume(channel=1, queue=queue, consumer_tag="t", prefetch=10)]))
assert events.get(timeout=10) == amqp.ConsumeStarted(1, "t")
tag = events.get(timeout=10).delivery_tag
link.run(lambda: connection.send([amqp.Ack(1, tag)]))
"""


def test_an_ack_right_before_the_program_ends_without_closing_is_sent(
    rabbitmq_url: str, queue: str, operator: Any
) -> None:
    operator.basic_publish("", queue, b"{}")
    subprocess.run(  # noqa: S603 -- this interpreter, and a program from this file
        [sys.executable, "-c", EXIT, rabbitmq_url, queue], timeout=30, check=True
    )
    assert soon(lambda: operator.queue_declare(queue, passive=True).method.consumer_count, 0)
    assert count(operator, queue) == 0


def test_deliveries_fit_the_ports_own_description(probe: Any, queue: str) -> None:
    channel = probe.open_channel()
    probe.send(publish(channel, queue, headers={"x": 1}))
    assert probe.next() == Confirmed(channel, 1, False)
    probe.send(consume(channel, queue))
    assert isinstance(probe.next(), ConsumeStarted)
    properties = probe.next().properties
    names = [name for name in vars(amqp.ReadableProperties) if not name.startswith("_")]
    assert len(names) == 14
    assert [getattr(properties, name) for name in names].count(None) == 13
