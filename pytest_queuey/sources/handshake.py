"""Owns the first words with an AMQP port: whether it speaks AMQP 0-9-1, and which RabbitMQ answers.

Refuses to log in.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from urllib.parse import urlsplit

_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_FRAME_HEAD = 7
_METHOD_FRAME = b"\x01"


class HandshakeError(Exception):
    """A port does not answer as RabbitMQ does; the message says how far it got."""


def address(url: str) -> tuple[str, int]:
    """Return host and port of an AMQP URL."""
    parts = urlsplit(url)
    return parts.hostname or "localhost", parts.port or (5671 if parts.scheme == "amqps" else 5672)


def greet(url: str, *, within: float) -> str:
    """Return the version of the RabbitMQ that listens there; raises HandshakeError within so many seconds per step."""
    from pika import frame, spec

    host, port = address(url)
    where = f"{host}:{port}"
    try:
        connection = socket.create_connection((host, port), timeout=within)
    except OSError as error:
        raise HandshakeError(f"connecting to {where} failed: {error}") from error
    with contextlib.closing(connection):
        try:
            if url.startswith("amqps:"):
                connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
            connection.sendall(_PROTOCOL_HEADER)
            start = _read_frame(connection)
        except OSError as error:
            raise HandshakeError(f"{where} accepts connections but does not answer AMQP: {error}") from error
    _, decoded = frame.decode_frame(start)
    if not isinstance(decoded, frame.Method) or not isinstance(decoded.method, spec.Connection.Start):
        raise HandshakeError(f"{where} answers AMQP, but not with connection.start: {start[:16]!r}")
    version = (decoded.method.server_properties or {}).get("version", "unknown")
    return version.decode() if isinstance(version, bytes) else str(version)


def _read_frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        head = stream.read(_FRAME_HEAD)
        if head[:1] != _METHOD_FRAME or len(head) < _FRAME_HEAD:
            raise OSError(f"it said {head!r}" if head else "it closed the connection")
        return head + stream.read(int.from_bytes(head[3:], "big") + 1)
