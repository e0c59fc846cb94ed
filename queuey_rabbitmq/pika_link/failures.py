"""What pika's exceptions mean: at which stage a connection failed, and in words for people.

Owns the texts of `ConnectionLost`. Never holds credentials: pika's exceptions carry host, port and the broker's words.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
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
        said = last.text if str(last.node) in last.text else f"{last.text} (said by {last.node})"
        return ConnectionLost(last.stage, last.code, said, last.cause)
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


def gone_wrong_here(node: Node, stage: str, cause: BaseException) -> Attempt:
    """Say what kept this side from connecting; the node has no part in it."""
    return Attempt(node=node, stage=stage, text=f"no connection with {node} could be begun: {cause}", cause=cause)


def failed(node: Node, stage: str, cause: BaseException) -> Attempt:
    """Say why no connection came about, where the broker itself said nothing; `stage` is how far the handshake got."""
    if node.tls is not None and (said := _said_of_tls(node, cause)) is not None:
        return Attempt(node=node, stage=NEGOTIATING_TLS, text=said, cause=cause)
    if stage == CONNECTING:
        reasons = [_reason(error, node) for error in _errors(cause)]
        if reasons:
            text = "; ".join(dict.fromkeys(text for _, text in reasons))
            return Attempt(node=node, stage=reasons[-1][0], text=text, cause=cause)
    text = f"{node} {_HANDSHAKE_ENDED.get(stage, 'ended the connection')}"
    if stage == WAITING:
        text += _TLS_IS_WANTING if node.tls is None else _CERTIFICATE_IS_WANTING
    return Attempt(node=node, stage=stage, text=text, cause=cause)


_HANDSHAKE_ENDED = {
    WAITING: "took the connection and ended it without an AMQP answer: is this the port of a RabbitMQ",
    LOGGING_IN: "ended the connection instead of accepting the login: check user and password",
    OPENING: "ended the connection instead of opening the virtual host: check its name and the user's permissions",
}


_TLS_IS_WANTING = "? Where it is one for TLS, the URL begins with amqps://"
_CERTIFICATE_IS_WANTING = ", and does it accept the certificate of the client, or demand one (certfile, keyfile)?"
"""A broker that refuses it may be gone before its alert is read."""

EXPIRED, NOT_YET_VALID, OTHER_HOST, OTHER_IP = 10, 9, 62, 64
"""OpenSSL's X509_V_ERR_... of that meaning (x509_vfy.h)."""
_REASON = re.compile(r"\[SSL: ([A-Z0-9_]+)\]")
_NO_TLS = re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL|PACKET_LENGTH_TOO_LONG")
_REFUSED_CERTIFICATE = re.compile(
    "ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|(UNSUPPORTED_)?CERTIFICATE(_EXPIRED|_REVOKED|_UNKNOWN)?)$"
)


def _said_of_tls(node: Node, cause: BaseException) -> str | None:
    """Say what TLS has to do with it, if anything. An alert may come after the handshake, with pika's words around."""
    for error in _errors(cause):
        inner = getattr(error, "exception", error)
        if isinstance(inner, ssl.SSLCertVerificationError):
            return _said_of_certificate(node, inner)
    found = _REASON.search(f"{cause!r}")
    if found is None:
        return None
    reason = found[1]
    if _NO_TLS.search(reason):
        return f"{node} does not speak TLS: give the port for TLS, usually 5671, or a URL that begins with amqp://"
    if reason.endswith("ALERT_CERTIFICATE_REQUIRED"):
        return f"{node} demands a certificate of the client: name it by certfile and keyfile"
    if _REFUSED_CERTIFICATE.search(reason):
        return f"{node} does not accept the certificate of the client ({reason}): check certfile"
    return (
        f"no TLS with {node} ({reason}): it may demand a certificate of the client (certfile, keyfile), or share no "
        "version of TLS and no cipher with this one"
    )


def _said_of_certificate(node: Node, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in {EXPIRED, NOT_YET_VALID}:
        return f"the certificate of {node} is out of date ({error.verify_message}); whoever runs the broker renews it"
    if error.verify_code in {OTHER_HOST, OTHER_IP}:
        return (
            f"the certificate of {node} bears another name ({error.verify_message.rstrip('.')}): give the name that it "
            "bears as host, or as server_name_indication"
        )
    return (
        f"the certificate of {node} is not trusted ({error.verify_message}): name the authority that signed it by "
        "cacertfile"
    )


def timed_out(node: Node, stage: str, within_ms: int, cause: BaseException) -> Attempt:
    """Say what did not come within the node's share of connect_timeout."""
    missing = {
        CONNECTING: f"no TCP {'connection and TLS handshake' if node.tls else 'connection'} with {node}",
        WAITING: f"{node} took the connection but gave no AMQP answer",
        LOGGING_IN: f"{node} did not answer the login",
        OPENING: f"{node} did not open the virtual host {node.address.virtual_host!r}",
    }[stage]
    text = f"{missing} within {within_ms / 1000:g} s"
    if stage == CONNECTING and not _is_numeric(node.address.host):
        text += ", its name's resolution included"
    return Attempt(node=node, stage=stage, text=text, cause=cause)


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


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
