"""A peer that resets connections as it accepts them fails attempts to connect, and never the link."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from queuey_rabbitmq import amqp

ATTEMPTS = 150
"""About one reset in ten comes between the two steps where pika trips over it."""


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_a_reset_at_any_moment_fails_the_attempt_and_leaves_the_link_alive(
    record: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", logger="pika")
    recorder = record(serve(reset))
    events = [recorder.connect() for _ in range(ATTEMPTS)]
    assert {type(event) for event in events} == {amqp.ConnectionLost}
    assert {event.stage for event in events} <= {"connecting", "waiting for an AMQP answer"}
    assert recorder.in_turn(lambda: "alive") == "alive"
