"""What pika's exceptions mean: at which stage a connection failed, and in words for people.

Owns the texts of `ConnectionLost`. Never holds credentials: pika's exceptions carry host, port and the broker's words.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pika.exceptions
from pika.adapters.utils import connection_workflow as workflow

from queuey_rabbitmq.amqp import ConnectionLost
from queuey_rabbitmq.pika_link.parameters import Node

RESOLVING = "resolving the host name"
CONNECTING = "connecting"
NEGOTIATING_TLS = "negotiating TLS"
WAITING = "waiting for an AMQP answer"
LOGGING_IN = "logging in"
OPENING = "opening the virtual host"
OPEN = "open"
CLOSING = "closing"


TRYING_ALL = "trying every node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to connect to one node that came to nothing."""

    node: Node
    stage: str
    """How far it got."""
    code: int = 0
    """The broker's, where it gave one."""
    text: str
    cause: BaseException


def lost(attempts: Sequence[Attempt]) -> ConnectionLost:
    """Say in one event why no node could be connected to, in the order in which they were tried."""
    last = attempts[-1]
    if len(attempts) == 1:
        return ConnectionLost(last.stage, last.code, last.text, last.cause)
    codes = {attempt.code for attempt in attempts}
    stages = {attempt.stage for attempt in attempts}
    return ConnectionLost(
        last.stage if len(stages) == 1 else TRYING_ALL,
        # What waiting does not mend, it does not mend only where all say so.
        last.code if len(codes) == 1 else 0,
        "; ".join(dict.fromkeys(_with_node(attempt) for attempt in attempts)),
        last.cause,
    )


def _with_node(attempt: Attempt) -> str:
    if str(attempt.node) in attempt.text:
        return attempt.text
    said = f"{attempt.code} {attempt.text}" if attempt.code else attempt.text
    return f"{attempt.node}, while {attempt.stage}: {said}"


def refused(node: Node, stage: str, code: int, text: str, cause: BaseException) -> Attempt:
    """Keep the broker's own words."""
    return Attempt(node=node, stage=stage, code=code, text=text, cause=cause)


def failed(node: Node, stage: str, cause: BaseException) -> Attempt:
    """Say why no connection came about, where the broker itself said nothing; `stage` is how far the handshake got."""
    if stage == CONNECTING:
        reasons = [_reason(error, node) for error in _errors(cause)]
        if reasons:
            text = "; ".join(dict.fromkeys(text for _, text in reasons))
            return Attempt(node=node, stage=reasons[-1][0], text=text, cause=cause)
    text = f"{node} {_HANDSHAKE_ENDED.get(stage, 'ended the connection')}"
    return Attempt(node=node, stage=stage, text=text, cause=cause)


_HANDSHAKE_ENDED = {
    WAITING: "took the connection and ended it without an AMQP answer: is this the port of a RabbitMQ?",
    LOGGING_IN: "ended the connection instead of accepting the login: check user and password",
    OPENING: "ended the connection instead of opening the virtual host: check its name and the user's permissions",
}


def timed_out(node: Node, stage: str, within_ms: int, cause: BaseException) -> Attempt:
    """Say what did not come within the node's share of connect_timeout."""
    missing = {
        CONNECTING: f"no TCP {'connection and TLS handshake' if node.tls else 'connection'} with {node}",
        WAITING: f"{node} took the connection but gave no AMQP answer",
        LOGGING_IN: f"{node} did not answer the login",
        OPENING: f"{node} did not open the virtual host {node.address.virtual_host!r}",
    }[stage]
    return Attempt(node=node, stage=stage, text=f"{missing} within {within_ms / 1000:g} s", cause=cause)


def _errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of the single addresses that a host name has, out of pika's wrappings."""
    if isinstance(error, pika.exceptions.AMQPConnectionError) and error.args:
        wrapped = error.args[0]
        error = wrapped if isinstance(wrapped, BaseException) else error
    if isinstance(error, workflow.AMQPConnectionWorkflowFailed):
        yield from error.exceptions


def _reason(error: BaseException, node: Node) -> tuple[str, str]:
    inner = error.exception if isinstance(error, workflow.AMQPConnectorPhaseErrorBase) else error
    if isinstance(inner, socket.gaierror):
        return RESOLVING, f"the host of {node} is not known: {inner.strerror}"
    if isinstance(error, workflow.AMQPConnectorTransportSetupError):
        return NEGOTIATING_TLS, f"no TLS with {node}: {inner}"
    if isinstance(inner, TimeoutError):
        return CONNECTING, f"{node} did not answer the TCP connection in time"
    said = inner.strerror if isinstance(inner, OSError) else str(inner)
    return CONNECTING, f"no TCP connection with {node}: {said}"


def ended(error: BaseException) -> tuple[int, str]:
    """Return the broker's code and text for the end of an open connection, or 0 and what pika noticed."""
    if isinstance(error, pika.exceptions.ConnectionClosed):
        return error.reply_code, error.reply_text
    return 0, str(error) or type(error).__name__
