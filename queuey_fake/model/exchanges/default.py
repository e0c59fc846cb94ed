"""The default exchange: every queue is bound to it by its name, and nobody can change that."""

from collections.abc import Collection, Sequence

from queuey_fake.model import errors
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.fields import Table


class DefaultMatcher:
    """The routing key is the queue's name. Whether there is such a queue is for the vhost to see."""

    def check(self, binding: Binding, queue_type: str | None) -> None:  # noqa: ARG002  a matcher's signature
        """Refuse every binding."""
        raise errors.default_exchange_operation()

    def add(self, binding: Binding) -> None:
        """Never called: check refuses every binding."""
        raise AssertionError(f"{binding} on the default exchange")

    def remove(self, binding: Binding) -> None:
        """Never called: there is no binding."""
        raise AssertionError(f"{binding} on the default exchange")

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:  # noqa: ARG002  a matcher's signature
        """Return nothing: what is published to it the vhost routes itself, and an alternate exchange it is in vain.

        Its bindings are in no table that could be asked (rabbit_exchange:route, rabbit_binding:list_for_source).
        """
        return ()
