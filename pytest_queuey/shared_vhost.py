"""Owns one test's part of a virtual host that it shares with others, where none can be made for it.

Names keep tests apart. Over AMQP nobody can list queues, so at the end it deletes what it knows by name: the queues
that backends of the test declared, hold queues included. Refuses every other queue: what a test makes with a client of
its own, it deletes itself.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions

from pytest_queuey import blocking_connection
from pytest_queuey.broker_under_test import NotOnThisBrokerError
from pytest_queuey.remembering_link import RememberingLink
from queuey_rabbitmq import RabbitMqBackend

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

    from queuey_rabbitmq import RabbitMqOptions
    from queuey_rabbitmq.amqp import Link

_GIVES_UP_AFTER = 10.0
_NAME = "queuey: looks at queues of a test"
_NOT_FOUND = 404
_PROBE = "queuey.is-it-there"
_GIVE_CTL = (
    "Give the command that runs rabbitmqctl for the broker: --queuey-rabbitmq-ctl='rabbitmqctl -n NODE'. Then each "
    "test also gets a virtual host of its own."
)


class SharedVhost:
    """One test's part of a virtual host."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._prefix = f"queuey-{secrets.token_hex(4)}."
        self._backends: list[_RememberingBackend] = []
        self._connection: pika.BlockingConnection | None = None

    def name(self, name: str) -> str:
        """Return a name for a queue that no other test meets."""
        return f"{self._prefix}{name}"

    def backend(self, options: RabbitMqOptions, url: str) -> RabbitMqBackend:
        """Return a backend whose declarations are remembered; `url` leads to the virtual host."""
        backend = _RememberingBackend.with_options(url, options)
        self._backends.append(backend)
        return backend

    def queue(self, name: str) -> AmqpQueueLook | None:
        """Return a queue, or None where there is none; this alone renews no lease.

        Binding a queue answers 404 where it is missing and does not reach its process, so its lease runs on
        (measured on 3.10.8, 4.0.5 and 4.3.6, where a passive declare renews it).
        """
        channel = self._channel()
        try:
            channel.queue_bind(name, "amq.direct", _PROBE)
            channel.queue_unbind(name, "amq.direct", _PROBE)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != _NOT_FOUND:
                raise
            return None
        channel.close()
        return AmqpQueueLook(name, self)

    def queues(self) -> list[AmqpQueueLook]:
        """Raise NotOnThisBrokerError: over AMQP nobody can list queues."""
        raise NotOnThisBrokerError(f"over AMQP nobody can list queues. {_GIVE_CTL}")

    def counts(self, name: str) -> tuple[int, int]:
        """Return how many messages are ready in a queue and how many consumers it has; renews its lease."""
        channel = self._channel()
        declared = channel.queue_declare(name, passive=True).method
        channel.close()
        return declared.message_count, declared.consumer_count

    def close(self) -> None:
        """Delete every queue that backends of the test declared; those that are gone are passed over."""
        try:
            for queue in set().union(*(backend.declared_queues for backend in self._backends)):
                channel = self._channel()
                channel.queue_delete(queue)
                channel.close()
        finally:
            if self._connection is not None and self._connection.is_open:
                self._connection.close()

    def _channel(self) -> BlockingChannel:
        if self._connection is None:
            self._connection = blocking_connection.connect(self.url, name=_NAME, within=_GIVES_UP_AFTER)
        return self._connection.channel()


@dataclass(frozen=True, slots=True)
class AmqpQueueLook:
    """A queue that is there, as far as AMQP tells; its counts are asked for when they are read, and renew its lease."""

    name: str
    _vhost: SharedVhost

    @property
    def ready(self) -> int:
        """Return how many messages wait for a consumer."""
        return self._vhost.counts(self.name)[0]

    @property
    def consumers(self) -> int:
        """Return how many consumers it has."""
        return self._vhost.counts(self.name)[1]

    @property
    def unacked(self) -> int:
        """Raise NotOnThisBrokerError: AMQP does not tell."""
        raise NotOnThisBrokerError(f"AMQP does not tell how many messages of a queue are unacked. {_GIVE_CTL}")

    @property
    def arguments(self) -> dict[str, Any]:
        """Raise NotOnThisBrokerError: AMQP does not tell."""
        raise NotOnThisBrokerError(f"AMQP does not tell the arguments of a queue. {_GIVE_CTL}")


class _RememberingBackend(RabbitMqBackend):
    """A backend that notes the names of the queues which it declares."""

    def __init__(self, link: Link, options: RabbitMqOptions | None = None) -> None:
        self.declared_queues: set[str] = set()
        super().__init__(RememberingLink(link, self.declared_queues), options)
