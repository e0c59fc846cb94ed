"""Several nodes: which is tried when, for how long, and what is said when none can be connected to."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.pika_link import PikaLink
from tests.unit.pika_link.conftest import PASSWORD, Recorder

START = pika.spec.Connection.Start(server_properties={}, mechanisms="PLAIN", locales="en_US")


@pytest.fixture
def record_all(make_link: Callable[..., PikaLink]) -> Callable[..., Recorder]:
    """Make a recorder on a link to several ports of this machine."""

    def record_all(*ports: int, **settings: Any) -> Recorder:
        nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        return Recorder(make_link(f"amqp://user:{PASSWORD}@{nodes}/%2f", **settings))

    return record_all


class Ports:
    """Ports that note in which order they were connected to."""

    def __init__(self, serve: Callable[[Callable[[socket.socket], None]], int]) -> None:
        self._serve = serve
        self.tried: list[str] = []

    def hangs_up(self, name: str) -> int:
        return self._serve(lambda peer: (self.tried.append(name), peer.close()))  # type: ignore[arg-type,func-returns-value]  # a statement

    def is_silent(self, name: str) -> int:
        def silent(peer: socket.socket) -> None:
            self.tried.append(name)
            while peer.recv(4096):
                pass

        return self._serve(silent)

    def refuses_the_login(self, name: str) -> int:
        def refuse(peer: socket.socket) -> None:
            self.tried.append(name)
            peer.recv(8)
            peer.sendall(pika.frame.Method(0, START).marshal())
            peer.recv(4096)
            close = pika.spec.Connection.Close(403, "ACCESS_REFUSED - Login was refused", 0, 0)
            peer.sendall(pika.frame.Method(0, close).marshal())
            with contextlib.suppress(OSError):
                peer.recv(4096)
            peer.close()

        return self._serve(refuse)

    def opens(self, name: str) -> int:
        """Serve a port as a broker does up to the open connection, and hang up when the client says one word more."""

        def accept(peer: socket.socket) -> None:
            self.tried.append(name)
            peer.recv(8)
            tune, opened = pika.spec.Connection.Tune(10, 131_072, 0), pika.spec.Connection.OpenOk()
            for answer in (START, tune, opened):
                peer.sendall(pika.frame.Method(0, answer).marshal())
                frames = b""
                while not frames.endswith(b"\xce"):
                    frames += peer.recv(4096)
            peer.close()

        return self._serve(accept)


@pytest.fixture
def ports(serve: Any) -> Ports:
    return Ports(serve)


def test_the_next_node_is_tried_where_one_refuses(record_all: Any, ports: Ports, closed_port: int, caplog: Any) -> None:
    recorder = record_all(closed_port, ports.opens("b"))
    assert isinstance(recorder.connect(), amqp.ConnectionOpened)
    assert f"no TCP connection with 127.0.0.1:{closed_port}: Connection refused; trying the next node" in caplog.text
    assert PASSWORD not in caplog.text


def test_when_none_answers_each_is_named_with_its_reason(
    record_all: Any, ports: Ports, closed_port: int, caplog: Any
) -> None:
    hangs_up, refuses = ports.hangs_up("b"), ports.refuses_the_login("c")
    lost = record_all(closed_port, hangs_up, refuses).connect()
    assert (lost.stage, lost.code) == ("trying every node", 0)
    first, second, third = lost.text.split("; ")
    assert first == f"no TCP connection with 127.0.0.1:{closed_port}: Connection refused"
    assert second.startswith(f"127.0.0.1:{hangs_up} took the connection and ended it without an AMQP answer")
    assert third == f"127.0.0.1:{refuses}, while logging in: 403 ACCESS_REFUSED - Login was refused"
    assert ports.tried == ["b", "c"]
    assert PASSWORD not in lost.text + caplog.text


def test_a_refusal_names_the_node_that_said_it(record_all: Any, ports: Ports, caplog: Any) -> None:
    refuses = ports.refuses_the_login("a")
    lost = record_all(refuses).connect()
    assert lost.text == f"ACCESS_REFUSED - Login was refused (said by 127.0.0.1:{refuses})"
    assert PASSWORD not in caplog.text


def test_a_refusal_that_all_nodes_agree_on_keeps_its_code(record_all: Any, ports: Ports, caplog: Any) -> None:
    lost = record_all(ports.refuses_the_login("a"), ports.refuses_the_login("b")).connect()
    assert (lost.stage, lost.code) == ("logging in", 403)


def test_silent_nodes_share_connect_timeout(record_all: Any, ports: Ports, caplog: Any) -> None:
    start = time.monotonic()
    silent = [ports.is_silent(name) for name in "abc"]
    lost = record_all(*silent, connect_timeout_ms=300).connect()
    assert time.monotonic() - start < 10
    assert ports.tried == ["a", "b", "c"]
    assert lost.text.startswith(f"127.0.0.1:{silent[0]} took the connection but gave no AMQP answer within 0.1 s; ")


def test_after_a_loss_the_node_behind_the_lost_one_is_tried_first(record_all: Any, ports: Ports, caplog: Any) -> None:
    recorder = record_all(ports.opens("a"), ports.opens("b"), ports.hangs_up("c"))
    for _ in range(3):
        assert isinstance(recorder.connect(), amqp.ConnectionOpened)
        recorder.in_turn(recorder.connection.send, [amqp.OpenChannel(1)])
        assert isinstance(recorder.events.get(timeout=5), amqp.ConnectionLost)
    assert ports.tried == ["a", "b", "c", "a"]


def test_a_loss_names_the_node_that_it_happened_with(record_all: Any, ports: Ports, caplog: Any) -> None:
    first = ports.opens("a")
    recorder = record_all(first, ports.hangs_up("b"))
    assert isinstance(recorder.connect(), amqp.ConnectionOpened)
    recorder.in_turn(recorder.connection.send, [amqp.OpenChannel(1)])
    lost = recorder.events.get(timeout=5)
    assert lost.text.endswith(f"; it was with 127.0.0.1:{first}")


def test_closing_while_a_later_node_is_tried_ends_the_connection(record_all: Any, ports: Ports, caplog: Any) -> None:
    recorder = record_all(ports.hangs_up("a"), silent := ports.is_silent("b"))
    connection = recorder.in_turn(recorder.link.open, "test", recorder.events.put)
    while ports.tried != ["a", "b"]:
        recorder.in_turn(lambda: None)
    recorder.in_turn(connection.close)
    assert recorder.events.get(timeout=5).stage == "closing"
    assert silent


def test_closing_while_an_attempt_is_being_given_up_tries_no_other_node(
    record_all: Any, ports: Ports, caplog: Any
) -> None:
    recorder = record_all(ports.is_silent("a"), ports.opens("b"))

    def give_up_and_close() -> None:
        connection = recorder.link.open("test", recorder.events.put)
        connection.give_up(OSError("an attempt that ends in the same turn"))
        connection.abort()

    recorder.in_turn(give_up_and_close)
    assert recorder.events.get(timeout=5).stage == "closing"
    assert "b" not in ports.tried


def test_a_reset_of_every_node_at_any_moment_fails_the_attempt(record_all: Any, serve: Any, caplog: Any) -> None:
    def reset(peer: socket.socket) -> None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    caplog.set_level("CRITICAL")
    recorder = record_all(*(serve(reset) for _ in range(3)))
    events = [recorder.connect() for _ in range(30)]
    assert {type(event) for event in events} == {amqp.ConnectionLost}
    assert recorder.in_turn(lambda: "alive") == "alive"
