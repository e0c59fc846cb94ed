"""Direct exchanges: the routing key equals the binding's."""

from collections.abc import Collection, Sequence

from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


class DirectMatcher:
    """The bindings by their routing key. Arguments play no part."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, Destination]] = {}

    def check(self, binding: Binding, queue_type: str | None) -> None:
        """Accept any binding."""

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        self._by_key.setdefault(binding.routing_key, {})[binding] = binding.destination

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        bindings = self._by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.routing_key]

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the destinations that are bound with one of these keys."""
        return [destination for key in routing_keys for destination in self._by_key.get(key, {}).values()]
