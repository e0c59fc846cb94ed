"""Headers exchanges: the arguments of a binding are looked for in the headers of a message.

Owns the four forms of x-match (rabbit_exchange_type_headers). Arguments that start with x- count in the with-x forms
only, a void argument asks for the header's presence alone, and not the types of numbers and strings count but their
values.
"""

from collections.abc import Collection, Sequence
from typing import Any

from queuey_fake.model import errors
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import VOID, Field, Table

_MATCHES = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher:
    """All bindings, each asked in turn. The routing key plays no part."""

    def __init__(self, *, exact: bool) -> None:
        """Take whether 1 and 1.0 differ: 3.10 compares with Erlang's ==, 4.x with =:=."""
        self._exact = exact
        self._bindings: dict[Binding, tuple[bool, dict[str, Any]]] = {}

    def check(self, binding: Binding, queue_type: str | None) -> None:  # noqa: ARG002  a matcher's signature
        """Refuse an x-match that is none of the four."""
        match = binding.arguments.get("x-match")
        if match is not None and (match.type != "longstr" or match.value not in _MATCHES):
            raise errors.invalid_x_match(match)

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""
        form = binding.arguments["x-match"].value if "x-match" in binding.arguments else "all"
        wanted = {
            key: self._comparable(field)
            for key, field in binding.arguments.items()
            if key != "x-match" and (form.endswith("with-x") or not key.startswith("x-"))
        }
        self._bindings[binding] = (form.startswith("any"), wanted)

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        del self._bindings[binding]

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return the destinations whose arguments the headers fulfil."""
        present = {key: self._comparable_header(field) for key, field in (headers or {}).items()}
        return [
            binding.destination
            for binding, (any_, wanted) in self._bindings.items()
            if (any if any_ else all)(
                key in present and value in (_PRESENCE, present[key]) for key, value in wanted.items()
            )
        ]

    def _comparable(self, field: Field) -> Any:
        if field == VOID:
            return _PRESENCE
        value = errors.erlang_of(field.value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (float if is_number and not self._exact else type(value), value)

    def _comparable_header(self, field: Field) -> Any:
        # 4.x makes milliseconds of the timestamps in a message's headers; those of bindings stay seconds, so the two
        # are equal no more (mc_amqpl:routing_headers).
        if self._exact and field.type == "timestamp":
            return (int, field.value * 1000)
        return self._comparable(field)


_PRESENCE = (None, None)
