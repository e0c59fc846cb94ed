"""Ports without a broker: at which stage connecting fails, in which words, and that no password is among them."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
import traceback
from typing import Any

import pytest

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.pika_link.parameters import BrokerParameters, LinkSettings

PASSWORD = "sw0rdfish-in-the-url"


def silent(peer: socket.socket) -> None:
    while peer.recv(4096):
        pass


def told(lost: Any) -> None:
    """Everything that a person or a log could get to see of a lost connection."""
    chain = "".join(traceback.format_exception(lost.cause)) if lost.cause else ""
    return f"{lost!r} {lost.text} {lost.cause!r} {chain}"


def test_a_refused_port_says_so(record: Any, closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    lost = record(closed_port).connect()
    assert (lost.stage, lost.code) == ("connecting", 0)
    assert lost.text == f"no TCP connection with 127.0.0.1:{closed_port}: Connection refused"
    assert PASSWORD not in told(lost) + caplog.text


def test_a_name_that_is_not_known_says_so(record: Any, caplog: pytest.LogCaptureFixture) -> None:
    lost = record(5672, host="no-such-host.invalid").connect()
    assert lost.stage == "resolving the host name"
    assert "no-such-host.invalid:5672" in lost.text
    assert PASSWORD not in told(lost) + caplog.text


def test_a_name_server_that_does_not_answer_is_waited_for_no_longer_than_connect_timeout(
    record: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(20) or [])
    recorder = record(5672, host="rabbit.example", connect_timeout_ms=100)
    lost = recorder.connect()
    assert lost.stage == "connecting"
    assert lost.text == "no TCP connection with rabbit.example:5672 within 0.1 s, its name's resolution included"
    answers.set()  # what comes too late harms nobody
    assert recorder.in_turn(lambda: "alive") == "alive"


def test_a_process_that_may_open_no_more_files_says_so_and_connects_when_it_may(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    port = serve(lambda peer: (peer.recv(8), peer.close()))
    recorder = record(port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", no_more)
        lost = recorder.connect()
    assert lost.stage == "connecting"
    assert lost.text == f"no connection with 127.0.0.1:{port} could be begun: [Errno 24] Too many open files"
    assert recorder.connect().stage == "waiting for an AMQP answer"


def test_a_port_that_says_nothing_ends_within_connect_timeout(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    port = serve(silent)
    start = time.monotonic()
    lost = record(port, connect_timeout_ms=200).connect()
    assert time.monotonic() - start < 10
    assert lost.stage == "waiting for an AMQP answer"
    assert lost.text == f"127.0.0.1:{port} took the connection but gave no AMQP answer within 0.2 s"
    assert PASSWORD not in told(lost) + caplog.text


def test_a_port_that_hangs_up_says_so(record: Any, serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    lost = record(serve(lambda peer: (peer.recv(8), peer.close()))).connect()
    assert lost.stage == "waiting for an AMQP answer"
    assert "is this the port of a RabbitMQ" in lost.text
    assert PASSWORD not in told(lost) + caplog.text


def test_a_port_that_answers_another_protocol_says_so(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def http(peer: socket.socket) -> None:
        peer.recv(8)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        peer.close()

    lost = record(serve(http), connect_timeout_ms=500).connect()
    assert lost.stage == "waiting for an AMQP answer"
    assert PASSWORD not in told(lost) + caplog.text


def test_a_port_that_answers_garbage_and_stays_ends_within_connect_timeout(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def garbage(peer: socket.socket) -> None:
        peer.sendall(struct.pack(">BHI", 1, 0, 4) + b"\xff" * 5)
        silent(peer)

    lost = record(serve(garbage), connect_timeout_ms=500).connect()
    assert lost.stage == "waiting for an AMQP answer"


def test_a_port_without_tls_says_so(record: Any, serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    lost = record(serve(lambda peer: peer.sendall(b"AMQP\0\0\x09\x01")), scheme="amqps").connect()
    assert lost.stage == "negotiating TLS"
    assert PASSWORD not in told(lost) + caplog.text


def test_a_port_that_leaves_the_tls_handshake_hanging_ends_within_connect_timeout(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lost = record(serve(silent), scheme="amqps", connect_timeout_ms=200).connect()
    assert lost.stage == "connecting"
    assert "TLS" in lost.text


def test_aborting_while_connecting_ends_the_connection(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record(serve(silent))
    connection = recorder.in_turn(recorder.link.open, "test", recorder.events.put)
    recorder.in_turn(connection.abort)
    recorder.in_turn(connection.abort)
    assert recorder.events.get(timeout=5).stage == "closing"


@pytest.mark.parametrize("rounds", range(6))
def test_closing_at_any_moment_of_connecting_ends_the_connection(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    recorder = record(serve(silent))
    connection = recorder.in_turn(recorder.link.open, "test", recorder.events.put)
    for _ in range(rounds):
        recorder.in_turn(lambda: None)
    recorder.in_turn(connection.close)
    assert isinstance(recorder.events.get(timeout=5), amqp.ConnectionLost)


def test_closing_the_link_while_connecting_leaves_no_thread(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record(serve(silent))
    recorder.in_turn(recorder.link.open, "test", recorder.events.put)
    recorder.link.close(1_000)
    assert not recorder.link._thread.is_alive()


def test_commands_before_the_connection_is_open_are_refused(record: Any, serve: Any) -> None:
    recorder = record(serve(silent))
    connection = recorder.in_turn(recorder.link.open, "test", recorder.events.put)
    recorder.in_turn(connection.send, [amqp.OpenChannel(1)])
    refused = recorder.events.get(timeout=5)
    assert refused.command == amqp.OpenChannel(1)


def test_a_url_that_cannot_be_used_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidConfigError, match="percent-encoded") as refusal:
        BrokerParameters(LinkSettings(url=f"amqp://user:{PASSWORD}@host:{PASSWORD}/"))
    assert PASSWORD not in "".join(traceback.format_exception(refusal.value))


def test_settings_show_no_password() -> None:
    settings = LinkSettings(url=f"amqps://user:{PASSWORD}@host")
    assert PASSWORD not in f"{settings!r} {BrokerParameters(settings).nodes!r}"


def test_options_in_the_url_win_over_those_of_the_settings() -> None:
    broker = BrokerParameters(LinkSettings(url=["amqp://host/?heartbeat=7&channel_max=9", "amqp://host"], heartbeat=10))
    first, second = (broker.named("x", node, within_ms=100) for node in broker.nodes)
    assert (first.heartbeat, first.channel_max, second.heartbeat) == (7, 9, 10)


def test_the_operator_sees_the_name_of_the_connection_and_the_applications() -> None:
    settings = LinkSettings(url="amqp://host", connection_name="mailer", client_properties={"team": "post"})
    broker = BrokerParameters(settings)
    assert broker.named("publish", broker.nodes[0], within_ms=100).client_properties == {
        "team": "post",
        "connection_name": "mailer publish",
    }


def test_capabilities_are_not_for_the_application_to_say() -> None:
    with pytest.raises(InvalidConfigError, match="capabilities"):
        BrokerParameters(LinkSettings(url="amqp://host", client_properties={"capabilities": {}}))
