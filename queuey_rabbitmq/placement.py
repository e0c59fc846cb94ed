"""Where a job goes: which queue its message is published to, and which hold queue must be declared right before.

Pure but for the table of declared queues; sends nothing. Everything is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from queuey_rabbitmq import codec, topology
from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import DelayTooLongError, InvalidConfigError, QueueNameTooLongError, UnknownQueueError
from queuey_rabbitmq.core.queue_config import MAX_NAME_BYTES, QueueConfig
from queuey_rabbitmq.options import RabbitMqOptions
from queuey_rabbitmq.session.operations import Message, QueueDeclaration

# A vhost's default queue type may be quorum, whose queues do not renew their lease on redeclaration. To an existing
# classic queue the argument is the same as none (scenario queue_type_classic_explicit).
CLASSIC = {"x-queue-type": "classic"}


class Placed(NamedTuple):
    """A message, and the hold queue that it needs."""

    message: Message
    declaration: QueueDeclaration | None = None


class Placement:
    """The rules for one set of options, and the queues declared so far."""

    def __init__(self, options: RabbitMqOptions) -> None:
        self._options = options
        self._declared: dict[str, QueueConfig] = {}

    def declarations(self, config: QueueConfig) -> list[QueueDeclaration]:
        """Return the long-lived queues of a work queue, in the order to declare them: q itself comes last.

        Raises QueueNameTooLongError where a name that the queue can come to need passes 255 bytes.
        """
        options = self._options
        longest = topology.longest_queue_name(config.name, options)
        size = len(longest.encode())
        if size > MAX_NAME_BYTES:
            raise QueueNameTooLongError(
                f"declaring queue '{config.name}': its longest queue '{longest}' would have a name of {size} bytes, "
                f"and AMQP allows {MAX_NAME_BYTES}. Nothing was declared; shorten the name by "
                f"{size - MAX_NAME_BYTES} bytes."
            )
        queues = []
        if options.declare_dead_letter_queues:
            name = topology.dead_queue_name(config.name, options.dead_suffix)
            queues.append(QueueDeclaration(name, True, CLASSIC | topology.dead_queue_args(config)))
        if options.retry_suffix is not None:
            name = topology.retry_queue_name(config.name, options.retry_suffix)
            queues.append(QueueDeclaration(name, config.durable, CLASSIC | topology.retry_queue_args(config)))
        queues.append(QueueDeclaration(config.name, config.durable, CLASSIC | topology.queue_args(config)))
        return queues

    def check_apart(self, configs: Iterable[QueueConfig]) -> None:
        """Raise InvalidConfigError where a work queue has the name of a queue that belongs to another of them."""
        options = self._options
        names = {config.name for config in configs}
        dead_suffix = options.dead_suffix if options.declare_dead_letter_queues else None
        for name in sorted(names):
            held, _, delay = name.rpartition(".")
            belongs = [(name, dead_suffix), (name, options.retry_suffix)]
            if delay.isdecimal():
                belongs.append((held, options.deferred_suffix))
            for of, suffix in belongs:
                owner = of.removesuffix(suffix or "")
                if owner != of and owner in names:
                    raise InvalidConfigError(
                        f"declaring queues: '{name}' is the name of a queue that belongs to '{owner}', so it cannot be "
                        "a work queue itself; nothing was declared. Choose another name, or other suffixes in "
                        "RabbitMqOptions"
                    )

    def declared(self, configs: Iterable[QueueConfig]) -> None:
        """Note queues that exist now, so that jobs can be held for them."""
        for config in configs:
            self._declared[config.name] = config

    def now(self, envelope: Envelope, *, doing: str) -> Placed:
        """Place a job on its queue."""
        check_kind(envelope, Envelope, doing)
        queue = envelope.queue
        if len(queue) * 4 > MAX_NAME_BYTES and len(queue.encode()) > MAX_NAME_BYTES:
            raise QueueNameTooLongError(f"publishing to queue '{queue}': AMQP allows {MAX_NAME_BYTES} bytes for a name")
        return Placed(Message(queue, codec.message_properties(envelope), envelope.to_bytes()))

    def retried(self, envelope: Envelope, delay: timedelta | float, *, doing: str) -> Placed:
        """Place a job that waits like a retry: in q.retry where there is one, in a hold queue otherwise."""
        check_kind(envelope, Envelope, doing)
        suffix = self._options.retry_suffix
        if suffix is None:
            return self._held(envelope, delay, self._options.retry_granularity, doing=doing)
        self._config(envelope.queue, doing)
        expiration_ms = topology.retry_expiration_ms(delay, self._options.retry_granularity)
        if expiration_ms is None:
            raise DelayTooLongError(
                f"{doing} on queue '{envelope.queue}': {delay!r} is longer than a retry queue can wait "
                f"({topology.MAX_TTL_MS} ms); nothing was sent."
            )
        properties = codec.message_properties(envelope, expiration_ms=expiration_ms)
        queue = topology.retry_queue_name(envelope.queue, suffix)
        return Placed(Message(queue, properties, envelope.to_bytes()))

    def deferred(self, envelope: Envelope, delay: timedelta | float, *, doing: str) -> Placed:
        """Place a job in the hold queue of its delay."""
        check_kind(envelope, Envelope, doing)
        return self._held(envelope, delay, self._options.deferred_granularity, doing=doing)

    def dead(self, queue: str, envelope: Envelope, reason: str) -> Placed:
        """Place a job in the dead queue of the queue it was consumed from."""
        check_kind(reason, str, "dead-lettering a job: reason")
        name = topology.dead_queue_name(queue, self._options.dead_suffix)
        return Placed(Message(name, codec.dead_letter_properties(envelope, reason), envelope.to_bytes()))

    def malformed(self, queue: str, body: bytes, reason: str) -> Placed:
        """Place a body that is not an envelope in the dead queue, untouched."""
        name = topology.dead_queue_name(queue, self._options.dead_suffix)
        return Placed(Message(name, codec.malformed_properties(queue, reason), body))

    def _held(
        self, envelope: Envelope, delay: timedelta | float, granularity: timedelta | float, *, doing: str
    ) -> Placed:
        queue = envelope.queue
        config = self._config(queue, doing)
        try:
            ttl_ms = topology.deferred_ttl_ms(delay, granularity)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{doing} on queue '{queue}': {error}; nothing was sent") from error
        if ttl_ms is None:
            raise DelayTooLongError(
                f"{doing} on queue '{queue}': {whole_ms(delay)} ms, rounded up to the granularity, is longer than a "
                f"hold queue can wait ({topology.MAX_DEFERRAL_MS} ms, about 24.8 days); nothing was sent."
            )
        name = topology.deferred_queue_name(queue, self._options.deferred_suffix, ttl_ms)
        margin_ms = self._options.hold_lease_margin_ms
        arguments = CLASSIC | topology.deferred_queue_args(config, ttl_ms, lease_margin_ms=margin_ms)
        return Placed(
            Message(name, codec.message_properties(envelope), envelope.to_bytes()),
            QueueDeclaration(name, config.durable, arguments),
        )

    def _config(self, queue: str, doing: str) -> QueueConfig:
        config = self._declared.get(queue)
        if config is None:
            raise UnknownQueueError(queue, doing=doing)
        return config


def check_kind(given: object, kind: type, doing: str) -> None:
    """Raise InvalidConfigError where something is of another kind than what was to be done with it."""
    if not isinstance(given, kind):
        raise InvalidConfigError(f"{doing}: expected {kind.__name__}, got {given!r}; nothing was done")
