"""What pika's exceptions mean: at which stage a connection failed, and in words for people.

Owns the texts of `ConnectionLost`. Never holds credentials: pika's exceptions carry host, port and the broker's words.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pika.exceptions
from pika.adapters.utils import connection_workflow as workflow

from queuey_rabbitmq.amqp import ConnectionLost
from queuey_rabbitmq.pika_link.parameters import BrokerParameters

RESOLVING = "resolving the host name"
CONNECTING = "connecting"
NEGOTIATING_TLS = "negotiating TLS"
WAITING = "waiting for an AMQP answer"
LOGGING_IN = "logging in"
OPENING = "opening the virtual host"
OPEN = "open"
CLOSING = "closing"


def attempt_failed(error: BaseException, stage: str, broker: BrokerParameters) -> ConnectionLost:
    """Say why no connection came about, where the broker itself said nothing; `stage` is how far the handshake got."""
    if stage == CONNECTING:
        reasons = [_reason(attempt, broker) for attempt in _attempts(error)]
        if reasons:
            return ConnectionLost(reasons[-1][0], 0, "; ".join(dict.fromkeys(text for _, text in reasons)), error)
    return ConnectionLost(stage, 0, f"{broker.address} {_HANDSHAKE_ENDED.get(stage, 'ended the connection')}", error)


_HANDSHAKE_ENDED = {
    WAITING: "took the connection and ended it without an AMQP answer: is this the port of a RabbitMQ?",
    LOGGING_IN: "ended the connection instead of accepting the login: check user and password",
    OPENING: "ended the connection instead of opening the virtual host: check its name and the user's permissions",
}


def timed_out(stage: str, broker: BrokerParameters, error: BaseException) -> ConnectionLost:
    """Say what did not come within connect_timeout."""
    missing = {
        CONNECTING: f"no TCP {'connection and TLS handshake' if broker.tls else 'connection'} with {broker.address}",
        WAITING: f"{broker.address} took the connection but gave no AMQP answer",
        LOGGING_IN: f"{broker.address} did not answer the login",
        OPENING: f"{broker.address} did not open the virtual host {broker.virtual_host!r}",
    }[stage]
    return ConnectionLost(stage, 0, f"{missing} within {broker.connect_timeout_ms / 1000:g} s", error)


def _attempts(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of the single attempts, one per address of the host, out of pika's wrappings."""
    if isinstance(error, pika.exceptions.AMQPConnectionError) and error.args:
        wrapped = error.args[0]
        error = wrapped if isinstance(wrapped, BaseException) else error
    if isinstance(error, workflow.AMQPConnectionWorkflowFailed):
        yield from error.exceptions


def _reason(attempt: BaseException, broker: BrokerParameters) -> tuple[str, str]:
    inner = attempt.exception if isinstance(attempt, workflow.AMQPConnectorPhaseErrorBase) else attempt
    if isinstance(inner, socket.gaierror):
        return RESOLVING, f"the host of {broker.address} is not known: {inner.strerror}"
    if isinstance(attempt, workflow.AMQPConnectorTransportSetupError):
        return NEGOTIATING_TLS, f"no TLS with {broker.address}: {inner}"
    if isinstance(inner, TimeoutError):
        return CONNECTING, f"{broker.address} did not answer the TCP connection in time"
    said = inner.strerror if isinstance(inner, OSError) else str(inner)
    return CONNECTING, f"no TCP connection with {broker.address}: {said}"


def ended(error: BaseException) -> tuple[int, str]:
    """Return the broker's code and text for the end of an open connection, or 0 and what pika noticed."""
    if isinstance(error, pika.exceptions.ConnectionClosed):
        return error.reply_code, error.reply_text
    return 0, str(error) or type(error).__name__
