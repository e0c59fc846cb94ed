"""Fanout exchanges: every binding matches."""

from collections.abc import Collection, Sequence

from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


class FanoutMatcher:
    """All bindings. Routing key and arguments play no part."""

    def __init__(self) -> None:
        self._destinations: dict[Binding, Destination] = {}

    def check(self, binding: Binding, queue_type: str | None) -> None:
        """Accept any binding."""

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        self._destinations[binding] = binding.destination

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        del self._destinations[binding]

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return every destination."""
        return self._destinations.values()
