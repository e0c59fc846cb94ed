"""Everything that can be set about a RabbitMqBackend; what belongs to one queue is said by its QueueConfig."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from queuey_rabbitmq import topology
from queuey_rabbitmq.core.durations import positive_ms, whole_ms
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.reconnect import ReconnectPolicy

if TYPE_CHECKING:
    import ssl
    from datetime import timedelta

_MAX_HEARTBEAT = 65535
_MEBIBYTE = 1024 * 1024
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMqOptions:
    """Say how a backend keeps jobs on RabbitMQ; durations are timedelta or seconds.

    Raises InvalidConfigError that names the field which can never work.
    """

    dead_suffix: str = topology.DEFAULT_DEAD_SUFFIX
    """Makes the name of a queue's dead queue."""
    deferred_suffix: str = topology.DEFAULT_DEFERRED_SUFFIX
    """Makes, with the delay in ms, the names of a queue's hold queues."""
    retry_suffix: str | None = None
    """Turns on the three-queue topology: retries and delayed publishes wait in `q` + suffix, one behind the other."""
    declare_dead_letter_queues: bool = True
    """Whether dead queues are declared and published to; without, dead-lettering rejects the delivery."""
    retry_granularity: timedelta | float = 1
    """Retries and delayed publishes wait a multiple of this, rounded up."""
    deferred_granularity: timedelta | float = 1
    """Deferrals wait a multiple of this, rounded up; it bounds how many hold queues there are."""
    hold_lease_margin: timedelta | float = 0
    """How much longer than twice its delay a hold queue outlives its last use, up to a day.

    A broker that stood still (a paused virtual machine, SIGSTOP) finds everything over at once that became due
    meanwhile, and where that is a queue's delay and its lease, it may delete the queue before it gives the jobs back.
    A margin longer than a pause prevents that. All who share the queues must say the same, or RabbitMQ refuses the
    declarations of the others; 0 is what other implementations of these queues say.
    """
    connection_properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Client properties that the operator sees beside the connection."""
    connection_name: str | None = None
    """What the operator sees the connection called."""
    heartbeat: int = 10
    """Seconds, 0 to 65535; 0 asks the broker for none. A peer that is gone without a word is noticed within twice
    (heartbeat + 5) seconds, without heartbeats perhaps never."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """Everything about TLS for amqps URLs, where their own parameters do not say enough: certificates to trust and to
    show, versions, ciphers. Without it, the broker's certificate and the name in it are checked."""
    connect_timeout: timedelta | float = 10
    """The deadline of a connection, from the host name to the open virtual host, however many nodes are tried."""
    operation_timeout: timedelta | float = 30
    """The deadline of every other call; of a publish, waiting for a slot included."""
    close_timeout: timedelta | float = 5
    """The deadline of an orderly farewell; after it the connection is cut."""
    max_in_flight: int = 1000
    """Publishes that may wait for their confirm at a time."""
    max_in_flight_bytes: int = 64 * _MEBIBYTE
    """Bytes of bodies that may wait for their confirm at a time; a larger body goes alone."""
    reconnect: ReconnectPolicy | None = field(default_factory=ReconnectPolicy)
    """Says when to try again after a connection was lost; None never does, and the backend ends with its connection.

    Its `next_delay` is called on the link's own thread and must not block.
    """

    retry_granularity_ms: int = field(init=False, repr=False, compare=False)
    deferred_granularity_ms: int = field(init=False, repr=False, compare=False)
    hold_lease_margin_ms: int = field(init=False, repr=False, compare=False)
    connect_timeout_ms: int = field(init=False, repr=False, compare=False)
    operation_timeout_ms: int = field(init=False, repr=False, compare=False)
    close_timeout_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_suffixes()
        self._check_connection()
        _check_int("max_in_flight", self.max_in_flight, lowest=1)
        _check_int("max_in_flight_bytes", self.max_in_flight_bytes, lowest=1)
        if not isinstance(self.declare_dead_letter_queues, bool):
            raise _invalid("declare_dead_letter_queues", "expected True or False", self.declare_dead_letter_queues)
        for name in (
            "retry_granularity",
            "deferred_granularity",
            "connect_timeout",
            "operation_timeout",
            "close_timeout",
        ):
            ms = positive_ms(getattr(self, name), name=f"RabbitMqOptions: {name}")
            object.__setattr__(self, f"{name}_ms", ms)
        margin_ms = whole_ms(self.hold_lease_margin, name="RabbitMqOptions: hold_lease_margin")
        if not 0 <= margin_ms <= _DAY_MS:
            raise _invalid("hold_lease_margin", "expected from 0 to a day", self.hold_lease_margin)
        object.__setattr__(self, "hold_lease_margin_ms", margin_ms)
        object.__setattr__(self, "connection_properties", MappingProxyType(dict(self.connection_properties)))

    def replace(self, **changes: Any) -> Self:
        """Return the same options with some changed; raise InvalidConfigError for a name that is none."""
        known = {option.name for option in dataclasses.fields(self) if option.init}
        if unknown := sorted(changes.keys() - known):
            raise InvalidConfigError(f"RabbitMqOptions: no such option: {', '.join(unknown)}")
        return dataclasses.replace(self, **changes)

    def _check_suffixes(self) -> None:
        taken: dict[str, str] = {}
        for name in ("dead_suffix", "deferred_suffix", "retry_suffix"):
            suffix = getattr(self, name)
            if name == "retry_suffix" and suffix is None:
                continue
            if not isinstance(suffix, str) or not suffix or suffix != suffix.strip():
                raise _invalid(name, "expected text that is not empty and has no whitespace around it", suffix)
            if suffix in taken:
                raise _invalid(name, f"must differ from {taken[suffix]}, or two queues would have one name", suffix)
            taken[suffix] = name

    def _check_connection(self) -> None:
        _check_int("heartbeat", self.heartbeat, lowest=0, highest=_MAX_HEARTBEAT)
        if self.ssl_context is not None:
            import ssl

            if not isinstance(self.ssl_context, ssl.SSLContext):
                raise _invalid("ssl_context", "expected an ssl.SSLContext", self.ssl_context)
        if not isinstance(self.connection_properties, Mapping):
            raise _invalid("connection_properties", "expected a mapping", self.connection_properties)
        for key in self.connection_properties:
            if not isinstance(key, str):
                raise _invalid("connection_properties", "expected text as keys", key)
        if self.reconnect is not None and not isinstance(self.reconnect, ReconnectPolicy):
            raise _invalid("reconnect", "expected a ReconnectPolicy, or None for no return", self.reconnect)
        if self.connection_name is not None and (not isinstance(self.connection_name, str) or not self.connection_name):
            raise _invalid("connection_name", "expected text, or None for no name", self.connection_name)


def _check_int(name: str, value: object, *, lowest: int, highest: int = sys.maxsize) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise _invalid(name, f"expected an integer from {lowest} to {highest}", value)


def _invalid(name: str, expected: str, got: object) -> InvalidConfigError:
    return InvalidConfigError(f"RabbitMqOptions: {name}: {expected}, got {got!r}")
