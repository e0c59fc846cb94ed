"""Owns a link that notes the name of every queue which goes through it to be declared, hold queues included.

That is the one way to know them where nobody can list queues. Refuses to change anything: all else is the link's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from queuey_rabbitmq import amqp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class RememberingLink:
    """A link, and the names of the queues that were declared through it."""

    def __init__(self, link: amqp.Link, declared: set[str]) -> None:
        self._declared = declared
        self.attach = link.attach
        self.now_ms = link.now_ms
        self.monotonic_ms = link.monotonic_ms
        self.run = link.run
        self.check_may_wait = link.check_may_wait
        self.future = link.future
        self.close = link.close
        self._link = link

    def open(self, name: str, on_event: Callable[[amqp.Event], None]) -> amqp.Connection:
        """Start to connect, to a connection that notes declarations."""
        return _RememberingConnection(self._link.open(name, on_event), self._declared)

    def resolve(self, future: amqp.Pending[T], result: T) -> None:
        """Give a future its result when the turn is over."""
        self._link.resolve(future, result)

    def fail(self, future: amqp.Pending[Any], error: BaseException) -> None:
        """Give a future its error when the turn is over."""
        self._link.fail(future, error)

    def wait(self, future: amqp.Pending[T], deadline_ms: int) -> T:
        """Wait for a future that a turn resolves."""
        return self._link.wait(future, deadline_ms)

    def mailbox(self) -> amqp.Mailbox[Any]:
        """Return a new mailbox."""
        return self._link.mailbox()


class _RememberingConnection:
    def __init__(self, connection: amqp.Connection, declared: set[str]) -> None:
        self._connection = connection
        self._declared = declared
        self.close = connection.close
        self.abort = connection.abort

    def send(self, commands: Sequence[amqp.Command]) -> None:
        """Write the commands, after noting the queues that they declare."""
        self._declared.update(command.queue for command in commands if isinstance(command, amqp.DeclareQueue))
        self._connection.send(commands)
