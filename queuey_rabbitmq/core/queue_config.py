"""What an application says about one queue. Knows no argument table and no derived queue: `topology` does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from queuey_rabbitmq.core.durations import positive_ms
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.retry import RetryPolicy

if TYPE_CHECKING:
    from datetime import timedelta

MAX_NAME_BYTES = 255
"""A queue's name is an AMQP short string."""

QueueType = Literal["classic", "quorum"]

_MAX_PREFETCH = 65535
_MAX_PRIORITY = 255
_RESERVED_PREFIX = "amq."


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Describe one work queue; raises InvalidConfigError that names the field which can never work."""

    name: str
    prefetch: int = field(default=16, kw_only=True)
    """Deliveries that one consumer holds unsettled at most, 1 to 65535."""
    retry: RetryPolicy = field(default=RetryPolicy.none(), kw_only=True)
    """What happens to a failed job when neither the job nor its handler says."""
    durable: bool = field(default=True, kw_only=True)
    """Whether the queue outlives a restart of the broker."""
    message_ttl: timedelta | float | None = field(default=None, kw_only=True, compare=False)
    """How long a job may wait unconsumed (timedelta or seconds) before the broker drops it."""
    max_priority: int | None = field(default=10, kw_only=True)
    """Highest priority that the broker tells apart, 1 to 255; 0 or None makes no priority queue.

    A quorum queue is not declared with it: what it makes of priorities is its RabbitMQ's. Up to 3.13 nothing, so a
    deferred job returns at the end of the backlog. From 4.0 there are two classes, up to 4 and above, of which the
    higher is served twice as often; a deferred job returns into that, at the end. 4.3 serves higher priorities first,
    as a priority queue does, up to 31; what is above counts as 31 (scenario quorum_priority).
    """
    queue_type: QueueType = field(default="classic", kw_only=True)
    """A quorum queue is replicated, and so survives the loss of a node; it must be durable, and its dead queue is one
    too. Jobs that are held wait in classic queues all the same, each on one node."""
    message_ttl_ms: int | None = field(init=False, repr=False)
    """`message_ttl` in whole ms, rounded up; not clamped to what a broker takes."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        where = f"QueueConfig '{self.name}'"
        _check_int(self.prefetch, f"{where}: prefetch", lowest=1, highest=_MAX_PREFETCH)
        if self.max_priority is not None:
            _check_int(self.max_priority, f"{where}: max_priority", lowest=0, highest=_MAX_PRIORITY)
        if not isinstance(self.durable, bool):
            raise InvalidConfigError(f"{where}: durable: expected True or False, got {self.durable!r}")
        if self.queue_type not in get_args(QueueType):
            raise InvalidConfigError(f"{where}: queue_type: expected 'classic' or 'quorum', got {self.queue_type!r}")
        if self.queue_type == "quorum" and not self.durable:
            raise InvalidConfigError(f"{where}: durable: RabbitMQ has no quorum queue that is not, got False")
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidConfigError(f"{where}: retry: expected a RetryPolicy, got {self.retry!r}")
        ttl = self.message_ttl
        ms = None if ttl is None else positive_ms(ttl, name=f"{where}: message_ttl")
        object.__setattr__(self, "message_ttl_ms", ms)

    @property
    def top_priority(self) -> int:
        """Return the priority at which a deferred job comes back: before all others, or 0 without priorities."""
        return self.max_priority or 0


def _check_int(value: object, name: str, *, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise InvalidConfigError(f"{name}: expected an integer from {lowest} to {highest}, got {value!r}")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidConfigError(f"QueueConfig: name: expected text, got {name!r} ({type(name).__name__})")
    if not name or name != name.strip():
        raise InvalidConfigError(f"QueueConfig: name: must not be empty or start or end with whitespace, got {name!r}")
    if name.startswith(_RESERVED_PREFIX):
        raise InvalidConfigError(f"QueueConfig: name: '{_RESERVED_PREFIX}' is the broker's own prefix, got {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidConfigError(f"QueueConfig: name: {name!r} cannot be written in UTF-8: {error}") from error
    if size > MAX_NAME_BYTES:
        raise InvalidConfigError(
            f"QueueConfig: name: {size} bytes, but a queue's name has at most {MAX_NAME_BYTES}: {name!r}"
        )
