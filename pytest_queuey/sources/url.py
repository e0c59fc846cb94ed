"""Owns the broker that somebody else runs: whether its URL can be used, and what is said where it cannot.

Refuses to start, end or configure it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_queuey.sources.handshake import HandshakeError, greet
from pytest_queuey.sources.server import RealServer, SourceError
from queuey_rabbitmq import broker_urls

if TYPE_CHECKING:
    from typing import Self

_ANSWERS_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class UrlServer:
    """A broker that was running before and stays."""

    server: RealServer

    @classmethod
    def start(cls, url: str, ctl: tuple[str, ...]) -> Self:
        """Take the broker at a URL; nothing is started and nothing is asked yet."""
        return cls(RealServer(source="url", what=without_password(url), url=url, ctl=ctl))

    def close(self) -> None:
        """Leave it as it is."""


def check(server: RealServer) -> str:
    """Log in, and return the version; raises SourceError that says at which stage that failed."""
    from queuey_rabbitmq import ConnectError, InvalidConfigError, RabbitMqBackend, RabbitMqOptions

    options = RabbitMqOptions(connect_timeout=_ANSWERS_WITHIN, connection_name="queuey: can tests run here?")
    try:
        version = greet(server.url, within=_ANSWERS_WITHIN)
        RabbitMqBackend.with_options(server.url, options).close()
    except (HandshakeError, ConnectError, InvalidConfigError) as error:
        raise SourceError(f"{server.what}: {error}") from error
    return version


def without_password(url: str) -> str:
    """Return a URL that may be printed."""
    parts = broker_urls.split(url)
    user = f"{parts.username}@" if parts.username else ""
    nodes = ",".join(map(str, broker_urls.parse(url)))
    return f"{parts.scheme}://{user}{nodes}{parts.path}"  # a parameter may be a password too
