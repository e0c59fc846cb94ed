"""Arguments of queues and consumers: what RabbitMQ accepts, what it compares on a second declaration, what they mean."""

from dataclasses import dataclass

from queuey_fake.model.fields import Table
from queuey_fake.model.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What the arguments of a queue ask for; None where they ask for nothing."""

    queue_type: str  # "classic" or "quorum"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: str = "at-most-once"  # or "at-least-once"; quorum queues only
    max_priority: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"  # or "reject-publish", "reject-publish-dlx"
    single_active_consumer: bool = False
    delivery_limit: int | None = None  # quorum queues only; the version's default is filled in


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProperties:
    """What a declaration says of a queue, for comparing a second one with the first."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What the arguments of a consumer ask for."""

    priority: int = 0


def queue_settings(properties: QueueProperties, *, queue: str, vhost: str, version: Version) -> QueueSettings:
    """Check what a first declaration says and return what it means. Raises ChannelException or ConnectionException."""
    raise NotImplementedError


def assert_equivalent(
    current: QueueProperties, given: QueueProperties, *, queue: str, vhost: str, version: Version
) -> None:
    """Raise ChannelException unless a second declaration says what the first said.

    Exclusive access (405) is the caller's to check before.
    """
    raise NotImplementedError


def consumer_settings(
    arguments: Table, *, queue: str, queue_type: str, vhost: str, version: Version
) -> ConsumerSettings:
    """Check the arguments of basic.consume and return what they mean. Raises ChannelException."""
    raise NotImplementedError


def expiration_ms(expiration: str | None) -> int | None:
    """Return the milliseconds of a message's `expiration` property. Raises ChannelException."""
    raise NotImplementedError
