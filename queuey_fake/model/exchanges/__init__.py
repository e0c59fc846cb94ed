"""Exchanges: one small unit for each type, and what all of them share.

Owns what an exchange is and how its type chooses among its bindings. Routes nothing further: alternate exchanges and
exchanges behind exchanges are the vhost's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table
from queuey_fake.model.versions import Version


class Matcher(Protocol):
    """How one type of exchange chooses among its bindings."""

    def check(self, arguments: Table) -> None:
        """Refuse arguments that a binding to such an exchange cannot have. Raises ChannelException."""

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""

    def match(self, routing_key: str, headers: Table | None) -> Iterable[Destination]:
        """Return where a message goes; a destination may be named more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange of a vhost."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    alternate_exchange: str | None = None
    matcher: Matcher


def new_exchange(
    name: str,
    type_: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    vhost: str,
) -> Exchange:
    """Make an exchange. Raises ChannelException for an alternate-exchange that is no string."""
    raise NotImplementedError


def check_type(type_: str, *, version: Version) -> None:
    """Raise ChannelException or, in 3.10, ConnectionException for a type that there is not."""
    raise NotImplementedError


def assert_equivalent(
    current: Exchange,
    *,
    type_: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    vhost: str,
) -> None:
    """Raise ChannelException unless a second declaration says what the first said."""
    raise NotImplementedError


PREDECLARED = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.trace", "topic"),
    ("amq.topic", "topic"),
)
