"""Owns what a test leaves behind in a virtual host that it shares, where none can be made for it.

Over AMQP nobody can list queues, so it deletes what it knows by name: the queues that backends of the test declared.
A hold queue's name is made when a job is held; it deletes itself one TTL after its last job has left it, and only
names that no other test uses (`BrokerUnderTest.name`) keep that job away from later tests. Refuses every other queue.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pika

from queuey_rabbitmq import RabbitMqBackend, RabbitMqOptions, topology

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queuey_rabbitmq import QueueConfig

_GIVES_UP_AFTER = 10.0


class SharedVhost:
    """One test's part of a virtual host."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.prefix = f"queuey-{secrets.token_hex(4)}."
        """Starts the queue names of this test alone."""
        self._declared: dict[str, None] = {}

    def backend(self, options: RabbitMqOptions) -> RabbitMqBackend:
        """Return a backend whose declarations are remembered."""
        backend = _RememberingBackend.with_options(self._url, options)
        backend.declared_queues = self._declared
        return backend

    def delete_queues(self) -> None:
        """Delete every queue that backends of the test declared; those that are gone are passed over."""
        if not self._declared:
            return
        parameters = pika.URLParameters(self._url)
        parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = _GIVES_UP_AFTER
        connection = pika.BlockingConnection(parameters)
        try:
            channel = connection.channel()
            for queue in self._declared:
                channel.queue_delete(queue)
        finally:
            connection.close()


class _RememberingBackend(RabbitMqBackend):
    """A backend that notes the names of the long-lived queues which it declares."""

    declared_queues: dict[str, None]

    def declare(self, queues: Iterable[QueueConfig]) -> None:
        configs = list(queues)
        for config in configs:
            self.declared_queues[config.name] = None
            self.declared_queues[topology.dead_queue_name(config.name, self.options.dead_suffix)] = None
            if self.options.retry_suffix is not None:
                self.declared_queues[topology.retry_queue_name(config.name, self.options.retry_suffix)] = None
        super().declare(configs)
