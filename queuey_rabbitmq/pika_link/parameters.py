"""What a link is told about its broker, and pika's connection parameters made from that.

Owns the URL, and so the credentials: they are in no text and no representation that leaves this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pika

from queuey_rabbitmq.core.errors import InvalidConfigError

TCP_SHARE = 0.8
"""How much of connect_timeout one address of the host may take, so that one which swallows packets leaves time for
the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """A broker, and how to connect to it; options in the URL's query win over those here."""

    url: str = field(repr=False)
    heartbeat: int = 10
    """Seconds; 0 switches heartbeats off."""
    connect_timeout_ms: int = 10_000
    """For the whole of it: name, TCP, TLS, AMQP, login, virtual host."""
    connection_name: str | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)


class BrokerParameters:
    """The parsed settings. Raises InvalidConfigError for a URL or properties that can never work."""

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._parameters = _parse(settings)
        self.connect_timeout_ms = settings.connect_timeout_ms
        self.address = f"{self._parameters.host}:{self._parameters.port}"
        self.user = str(getattr(self._parameters.credentials, "username", ""))
        self.virtual_host = str(self._parameters.virtual_host)
        self.tls = self._parameters.ssl_options is not None

    def named(self, name: str) -> pika.URLParameters:
        """Return pika's parameters for a connection that the operator sees under this name."""
        ours = self._settings.connection_name
        self._parameters.client_properties = {
            **(self._parameters.client_properties or {}),
            "connection_name": f"{ours} {name}" if ours else name,
        }
        return self._parameters


def _parse(settings: LinkSettings) -> pika.URLParameters:
    if "capabilities" in settings.client_properties:
        raise InvalidConfigError(
            "connection_properties: 'capabilities' is not for an application to say; "
            "without the client's own, the broker would announce neither cancelled consumers nor alarms"
        )
    try:
        split = urlsplit(settings.url)
        if split.scheme not in {"amqp", "amqps"} or split.fragment or "@" in split.query:
            raise ValueError  # noqa: TRY301 -- one text for all, below: pika's own quote parts of the URL
        parameters = pika.URLParameters(settings.url)
    except Exception:  # noqa: BLE001 -- pika raises what it comes upon; the text is ours, without credentials
        raise InvalidConfigError(
            "the broker's URL cannot be used (it is not shown, as it may hold a password). It must read "
            "amqp://user:password@host:port/vhost or amqps://...; special characters in user, password and vhost "
            "are percent-encoded (the vhost / is %2f); the query may hold the options of pika.URLParameters"
        ) from None
    if parameters.heartbeat is None:
        parameters.heartbeat = settings.heartbeat
    # Attempts are repeated by whoever decides on reconnection, which is not pika.
    parameters.connection_attempts = 1
    parameters.socket_timeout = settings.connect_timeout_ms / 1000 * TCP_SHARE
    # The whole of it is bounded by the connection's own timer, which several addresses of one host share.
    parameters.stack_timeout = None
    # What a blocked connection means is decided above the port, which is told.
    parameters.blocked_connection_timeout = None
    parameters.client_properties = {**(parameters.client_properties or {}), **settings.client_properties}
    return parameters
