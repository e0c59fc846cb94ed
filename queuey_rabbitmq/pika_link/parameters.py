"""What a link is told about its broker, and pika's connection parameters made from that.

Owns the credentials and TLS: nothing secret is in a text or a representation that leaves this module.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika

from queuey_rabbitmq import broker_urls
from queuey_rabbitmq.broker_urls import BrokerAddress, TlsParameters
from queuey_rabbitmq.core.errors import InvalidConfigError

log = logging.getLogger("queuey_rabbitmq")

TCP_SHARE = 0.8
"""How much of a node's time one address of its host name may take, so that one which swallows packets leaves time for
the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """A broker, and how to connect to it; what its URL says wins over what is said here."""

    url: str | Sequence[str] = field(repr=False)
    """See `broker_urls`: one for all nodes, or one for each."""
    heartbeat: int = 10
    """Seconds; 0 switches heartbeats off."""
    connect_timeout_ms: int = 10_000
    """For the whole of it: names, TCP, TLS, AMQP, login, virtual host, and every node that is tried."""
    connection_name: str | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)
    ssl_context: ssl.SSLContext | None = None
    """Everything about TLS but the name that the certificate must bear; for amqps URLs."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the broker, and everything that it takes to connect to it. As text it is host and port."""

    address: BrokerAddress
    tls: pika.SSLOptions | None = field(repr=False)

    def __str__(self) -> str:
        return str(self.address)


class BrokerParameters:
    """The parsed settings. Raises InvalidConfigError for a URL, files or properties that can never work."""

    def __init__(self, settings: LinkSettings) -> None:
        if "capabilities" in settings.client_properties:
            raise InvalidConfigError(
                "connection_properties: 'capabilities' is not for an application to say; "
                "without the client's own, the broker would announce neither cancelled consumers nor alarms"
            )
        self._settings = settings
        self.connect_timeout_ms = settings.connect_timeout_ms
        self.nodes = tuple(
            Node(address, _ssl_options(address, settings.ssl_context)) for address in broker_urls.parse(settings.url)
        )
        self.address = ", ".join(map(str, self.nodes))

    def named(self, name: str, node: Node, *, within_ms: int) -> pika.ConnectionParameters:
        """Return pika's parameters for a connection that the operator sees under this name."""
        ours = self._settings.connection_name
        address = node.address
        limits = {"channel_max": address.channel_max, "frame_max": address.frame_max}
        return pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.virtual_host,
            credentials=pika.PlainCredentials(address.user, address.password),
            ssl_options=node.tls,
            heartbeat=self._settings.heartbeat if address.heartbeat is None else address.heartbeat,
            # Attempts are repeated by whoever decides on reconnection, which is not pika.
            connection_attempts=1,
            socket_timeout=within_ms / 1000 * TCP_SHARE,
            # The whole of it is bounded by the connection's own timer, which several addresses of one host share.
            stack_timeout=None,
            # What a blocked connection means is decided above the port, which is told.
            blocked_connection_timeout=None,
            client_properties={
                **self._settings.client_properties,
                "connection_name": f"{ours} {name}" if ours else name,
            },
            **{limit: value for limit, value in limits.items() if value is not None},
        )


def _ssl_options(address: BrokerAddress, context: ssl.SSLContext | None) -> pika.SSLOptions | None:
    tls = address.tls
    if tls is None:
        if context is not None:
            raise InvalidConfigError(f"ssl_context is given, but the URL of {address} is amqp://, which speaks no TLS")
        return None
    if context is None:
        context = _context(tls)
        if not tls.verify:
            log.warning("the certificate of %s is not checked (verify=verify_none): anyone can pose as it", address)
    elif tls != TlsParameters(server_name=tls.server_name):
        raise InvalidConfigError(
            f"TLS with {address} is described twice: give ssl_context, or certificates and verify in the URL"
        )
    return pika.SSLOptions(context, tls.server_name or address.host)


def _context(tls: TlsParameters) -> ssl.SSLContext:
    """Make a context as the standard library advises: the certificate and the name in it are checked."""
    _check_readable(cacertfile=tls.cacertfile, certfile=tls.certfile, keyfile=tls.keyfile)
    try:
        context = ssl.create_default_context(cafile=tls.cacertfile)
    except OSError as error:
        raise _unusable(f"cacertfile={tls.cacertfile} holds no certificates of authorities in PEM", error) from error
    if tls.certfile is not None:
        key = tls.keyfile or tls.certfile
        try:
            # As a function, so that OpenSSL never asks for it on the terminal.
            context.load_cert_chain(tls.certfile, tls.keyfile, lambda: tls.password or "")
        except OSError as error:
            what = f"certfile={tls.certfile} is no certificate in PEM, or {key} not its key, or encrypted otherwise"
            raise _unusable(what, error) from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_readable(**files: str | None) -> None:
    for name, path in files.items():
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise _unusable(f"{name}={path} cannot be read", error) from error


def _unusable(what: str, error: OSError) -> InvalidConfigError:
    said = getattr(error, "reason", None) or error.strerror or str(error)
    return InvalidConfigError(f"the broker's URL cannot be used: {what} ({said})")
