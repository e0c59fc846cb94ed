"""Bindings: which exchange leads where, by source and by destination.

Owns the set of bindings of one vhost and its two directions. Knows neither exchanges nor queues, only their names, and
matches nothing: that is each exchange type's own affair (`exchanges`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from queuey_fake.model import table_codec
from queuey_fake.model.fields import Table

_K = TypeVar("_K")


class Destination(NamedTuple):
    """Where a binding leads: `kind` is "queue" or "exchange"."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding. Two are the same when source, key, destination and arguments are (rabbit_binding:add).

    The order of the arguments' keys does not count; their types do.
    """

    source: str
    routing_key: str
    destination: Destination
    arguments: Table = field(compare=False)
    identity: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make of the arguments what equality and hashing can look at."""
        object.__setattr__(self, "identity", table_codec.encode_table(dict(sorted(self.arguments.items()))))


class Bindings:
    """All bindings of one vhost, in the order in which they were made."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[Binding, None]] = {}
        self._by_destination: dict[Destination, dict[Binding, None]] = {}

    def __contains__(self, binding: Binding) -> bool:
        return binding in self._by_source.get(binding.source, ())

    def add(self, binding: Binding) -> bool:
        """Add the binding; return whether it is new."""
        if binding in self:
            return False
        self._by_source.setdefault(binding.source, {})[binding] = None
        self._by_destination.setdefault(binding.destination, {})[binding] = None
        return True

    def remove(self, binding: Binding) -> bool:
        """Take the binding away; return whether it was there."""
        if binding not in self:
            return False
        _drop(self._by_source, binding.source, binding)
        _drop(self._by_destination, binding.destination, binding)
        return True

    def of_source(self, exchange: str) -> list[Binding]:
        """Return the bindings that start at the exchange."""
        return list(self._by_source.get(exchange, ()))

    def of_destination(self, destination: Destination) -> list[Binding]:
        """Return the bindings that lead to the destination."""
        return list(self._by_destination.get(destination, ()))

    def has_source(self, exchange: str) -> bool:
        """Return whether any binding starts at the exchange."""
        return exchange in self._by_source


def _drop(index: dict[_K, dict[Binding, None]], key: _K, binding: Binding) -> None:
    del index[key][binding]
    if not index[key]:
        del index[key]
