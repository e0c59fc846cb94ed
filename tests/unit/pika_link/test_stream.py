"""What leans on the inside of pika: that it fits the pika that is installed, and what happens with one it does not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.select_connection import IOLoop

from queuey_rabbitmq.pika_link import stream


@pytest.fixture
def connection(make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that never connects, and what it hands to its transport."""
    connection = stream.FastConnection(pika.ConnectionParameters(), custom_ioloop=make_loop())
    connection.pieces = []
    monkeypatch.setattr(pika.SelectConnection, "_adapter_emit_data", lambda self, data: self.pieces.append(data))
    return connection


@pytest.fixture
def make_loop() -> None:
    loop = IOLoop()
    yield lambda: loop
    loop.close()


def test_the_installed_pika_can_be_coalesced() -> None:
    assert stream.CONNECTION_CLASS is stream.FastConnection
    assert stream._is_fit()


@pytest.mark.parametrize("hook", [None, lambda *_: None])
def test_a_pika_with_another_hook_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, hook: Any) -> None:
    monkeypatch.setattr(pika.SelectConnection, "_adapter_emit_data", hook)
    assert not stream._is_fit()


def test_frames_leave_in_order_as_one_piece(connection: Any) -> None:
    for frame in (b"a", b"bc", b"d"):
        connection._adapter_emit_data(frame)
    assert connection.pieces == []
    connection.flush()
    connection.flush()
    assert connection.pieces == [b"abcd"]


def test_pieces_stay_small_and_large_frames_alone(connection: Any) -> None:
    large = b"x" * stream.MAX_JOINED_BYTES
    half = b"y" * (stream.MAX_JOINED_BYTES // 2)
    for frame in (b"a", large, b"b", half, half, b"c"):
        connection._adapter_emit_data(frame)
    connection.flush()
    assert connection.pieces == [b"a", large, b"b" + half, half + b"c"]


def test_frames_of_a_closed_connection_are_dropped(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection._adapter_emit_data(b"late")
    monkeypatch.setattr(pika.SelectConnection, "is_closed", True)
    connection.flush()
    monkeypatch.undo()
    connection.flush()
    assert connection.pieces == []


def test_a_pika_that_is_not_coalesced_needs_no_flush(make_loop: Any) -> None:
    connection = pika.SelectConnection(pika.ConnectionParameters(), custom_ioloop=make_loop())
    stream.flusher(connection)()


def test_a_pika_without_the_inner_way_to_drop_is_closed(make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = pika.SelectConnection(pika.ConnectionParameters(), custom_ioloop=make_loop())
    monkeypatch.setattr(pika.SelectConnection, "_terminate_stream", None)
    closed = []
    monkeypatch.setattr(connection, "close", lambda: closed.append(True))
    stream.drop(connection, pika.exceptions.AMQPConnectionError("on purpose"))
    assert closed == [True]


class Transport:
    """What pika's transport without TLS is seen of."""

    _MAX_RECV_BYTES = 4096
    _MAX_CONSUME_BYTES = 100_000

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.buffered = 0

    def get_write_buffer_size(self) -> int:
        return self.buffered


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def connected(connection: Any, sock: socket.socket) -> Transport:
    connection._transport = transport = Transport(sock)
    connection._on_stream_connected()
    connection.flush()
    connection.pieces.clear()
    return transport


def test_what_the_socket_takes_goes_without_waiting_for_the_loop(connection: Any, ends: Any) -> None:
    transport = connected(connection, ends[0])
    assert ends[1].recv(100) == b"AMQP\x00\x00\x09\x01"
    connection.emit(b"at once")
    connection.flush()
    assert ends[1].recv(100) == b"at once"
    assert connection.pieces == []
    assert (transport._MAX_RECV_BYTES, transport._MAX_CONSUME_BYTES) == (stream.READ_BYTES, 1)


def test_nothing_overtakes_what_waits_in_the_transport(connection: Any, ends: Any) -> None:
    connected(connection, ends[0]).buffered = 1
    connection.emit(b"behind it")
    connection.flush()
    assert connection.pieces == [b"behind it"]


def test_what_the_socket_does_not_take_is_left_to_the_transport(connection: Any, ends: Any) -> None:
    connected(connection, ends[0])
    ends[1].recv(100)
    whole = b"x" * 100_000
    for _ in range(20):
        connection.emit(whole)
        connection.flush()
    left = sum(map(len, connection.pieces))
    received = 0
    ends[1].setblocking(False)
    while True:
        try:
            received += len(ends[1].recv(1_000_000))
        except BlockingIOError:
            break
    assert left > 0
    assert received + left == 20 * len(whole)


def test_an_error_of_the_socket_is_left_to_the_transport_too(connection: Any, ends: Any) -> None:
    connected(connection, ends[0])
    ends[1].close()
    connection.emit(b"to nobody")
    connection.flush()
    assert connection.pieces == [b"to nobody"]


def test_a_transport_that_is_not_as_it_was_known_is_used_as_it_is(connection: Any, ends: Any) -> None:
    connection._transport = type("Another", (), {"_sock": ends[0]})()
    connection._on_stream_connected()
    connection.flush()
    assert connection.pieces == [b"AMQP\x00\x00\x09\x01"]
