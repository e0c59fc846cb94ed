"""Owns the first words with an AMQP port: whether it speaks AMQP 0-9-1, and which RabbitMQ answers.

Refuses to log in.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuey_rabbitmq.pika_link.parameters import Node

_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_FRAME_HEAD = 7
_METHOD_FRAME = b"\x01"


class HandshakeError(Exception):
    """A port does not answer as RabbitMQ does; the message says how far it got."""


def greet(url: str, *, within: float) -> str:
    """Return the version of the first node that answers as RabbitMQ does; several share the time, in seconds per step.

    Raises HandshakeError that says of each why it does not, and InvalidConfigError for files that TLS cannot use.
    """
    from queuey_rabbitmq.pika_link.parameters import BrokerParameters, LinkSettings

    nodes = BrokerParameters(LinkSettings(url=url)).nodes
    refusals = []
    for node in nodes:
        try:
            return _greet(node, within=within / len(nodes))
        except HandshakeError as error:
            refusals.append(str(error))
    raise HandshakeError("; ".join(refusals))


def _greet(node: Node, *, within: float) -> str:
    from pika import frame, spec

    with contextlib.closing(_connected(node, within=within)) as connection:
        try:
            connection.sendall(_PROTOCOL_HEADER)
            start = _read_frame(connection)
        except OSError as error:
            if node.tls is not None and not isinstance(error, TimeoutError):
                raise _failed_tls(node, error) from error  # a refused certificate is told of after the handshake
            raise HandshakeError(f"{node} accepts connections but does not answer AMQP: {error}") from error
    _, decoded = frame.decode_frame(start)
    if not isinstance(decoded, frame.Method) or not isinstance(decoded.method, spec.Connection.Start):
        raise HandshakeError(f"{node} answers AMQP, but not with connection.start: {start[:16]!r}")
    version = (decoded.method.server_properties or {}).get("version", "unknown")
    return version.decode() if isinstance(version, bytes) else str(version)


def _connected(node: Node, *, within: float) -> socket.socket:
    try:
        connection = socket.create_connection((node.address.host, node.address.port), timeout=within)
    except OSError as error:
        raise HandshakeError(f"connecting to {node} failed: {error}") from error
    if node.tls is None:
        return connection
    context: ssl.SSLContext = node.tls.context
    try:
        return context.wrap_socket(connection, server_hostname=node.tls.server_hostname)
    except ssl.SSLError as error:
        raise _failed_tls(node, error) from error
    except OSError as error:
        raise HandshakeError(f"TLS with {node} does not come about: {error}") from error


def _failed_tls(node: Node, error: OSError) -> HandshakeError:
    from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed

    from queuey_rabbitmq.pika_link import failures

    # In the words of production, to which pika brings it in this.
    return HandshakeError(failures.failed(node, failures.WAITING, AMQPConnectionWorkflowFailed([error])).text)


def _read_frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        head = stream.read(_FRAME_HEAD)
        if head[:1] != _METHOD_FRAME or len(head) < _FRAME_HEAD:
            raise OSError(f"it said {head!r}" if head else "it closed the connection")
        return head + stream.read(int.from_bytes(head[3:], "big") + 1)
