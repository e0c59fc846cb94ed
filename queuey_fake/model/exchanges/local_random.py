"""Exchanges of the type x-local-random: each message goes to one of the classic queues that are bound.

Owns what such an exchange takes for a binding, and whose turn it is (rabbit_exchange_type_local_random). Rolls no dice:
where RabbitMQ picks at random, the bindings take turns. Every queue of a broker with one node is local.
"""

from collections.abc import Collection, Sequence

from queuey_fake.model import errors
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


class LocalRandomMatcher:
    """All bindings; a queue that is bound twice has two chances. The routing key of a message plays no part."""

    def __init__(self) -> None:
        self._destinations: dict[Binding, Destination] = {}
        self._turn = 0

    def check(self, binding: Binding, queue_type: str | None) -> None:
        """Refuse a key, and whatever is no classic queue."""
        if binding.routing_key:
            raise errors.binding_key_not_permitted(binding.routing_key)
        if queue_type is None:
            raise errors.destination_is_no_queue()
        if queue_type != "classic":
            raise errors.queue_type_not_valid(queue_type)

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        self._destinations[binding] = binding.destination

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        del self._destinations[binding]

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the destination whose turn it is."""
        if not self._destinations:
            return ()
        self._turn += 1
        destinations = list(self._destinations.values())
        return (destinations[(self._turn - 1) % len(destinations)],)
