"""Direct exchanges: the routing key equals the binding's."""

from collections.abc import Iterable

from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


class DirectMatcher:
    """The bindings by their routing key. Arguments play no part."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, Destination]] = {}

    def check(self, routing_key: str, arguments: Table) -> None:
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

    def match(self, routing_key: str, headers: Table | None) -> Iterable[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the destinations that are bound with this key."""
        return self._by_key.get(routing_key, {}).values()
