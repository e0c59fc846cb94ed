"""Exchanges of the type x-modulus-hash: the keys of a message decide which one of the bindings it takes.

Owns the order of the bindings that the hash points into (rabbit_exchange_type_modulus_hash:route).
"""

from collections.abc import Collection, Sequence

from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table, octets_of
from queuey_fake.model.phash2 import phash2

_SPAN = 2**27


class ModulusHashMatcher:
    """All bindings, in the order of where they lead; what is bound twice is there twice. Their keys play no part."""

    def __init__(self) -> None:
        self._bindings: dict[Binding, None] = {}
        self._in_order: list[Destination] = []

    def check(self, binding: Binding, queue_type: str | None) -> None:
        """Accept any binding."""

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        self._bindings[binding] = None
        self._sort()

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        del self._bindings[binding]
        self._sort()

    def _sort(self) -> None:
        destinations = [binding.destination for binding in self._bindings]
        self._in_order = sorted(destinations, key=lambda each: (each.kind, octets_of(each.name)))

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the one destination for these keys, those of CC and BCC among them."""
        if not self._in_order:
            return ()
        number = phash2([octets_of(key) for key in routing_keys], _SPAN)
        return (self._in_order[number % len(self._in_order)],)
