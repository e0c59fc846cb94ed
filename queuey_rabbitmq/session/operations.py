"""What an application has asked for and waits for: values to send, and operations with a future and a deadline.

Knows no channel. An operation ends once: whoever ends it first wins, and an answer that comes later is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from queuey_rabbitmq.amqp import Properties


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue as it is declared."""

    queue: str
    durable: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Message(msgspec.Struct, frozen=True):
    """A message for the default exchange."""

    queue: str
    properties: Properties
    body: bytes

    @property
    def doing(self) -> str:
        """Say what an operation with this message was doing, for error messages."""
        return f"publishing to queue '{self.queue}'"


class Operation(Protocol):
    """Something with a deadline that can be failed from outside."""

    finished: bool
    deadline_ms: int
    timeout_ms: int
    future: Future[None]

    @property
    def doing(self) -> str:
        """Say what was being done, for error messages."""


class PublishOperation:
    """One message on its way, with the hold queue that must be declared right before it, if any.

    What a delivery's outcome adds, each run in a turn: `unless` is asked right before the message is sent, and its
    error ends the operation instead; `then` settles the delivery once the message is confirmed, and may answer with
    the error that the future is to end with; `otherwise` follows a failure.
    """

    __slots__ = (
        "deadline_ms",
        "declaration",
        "finished",
        "future",
        "holds_slot",
        "message",
        "otherwise",
        "returned",
        "sent",
        "then",
        "timeout_ms",
        "unless",
    )

    def __init__(
        self,
        message: Message,
        *,
        deadline_ms: int,
        timeout_ms: int,
        declaration: QueueDeclaration | None = None,
        unless: Callable[[], BaseException | None] | None = None,
        then: Callable[[], BaseException | None] | None = None,
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        self.message = message
        self.declaration = declaration
        self.deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.unless = unless
        self.then = then
        self.otherwise = otherwise
        self.future: Future[None] = Future()
        self.finished = False
        self.holds_slot = False
        """Whether it counts in the bound of what is in flight."""
        self.sent = False
        """Whether the broker may have it."""
        self.returned: str | None = None
        """What the broker said when it returned the message as unroutable."""

    @property
    def doing(self) -> str:
        """Say what was being done, for error messages."""
        return self.message.doing

    @property
    def size(self) -> int:
        """Return what the message counts for in the bound of bytes in flight."""
        return len(self.message.body)


class DeclareOperation:
    """Queues to declare in order; the first refusal fails it and leaves those before it declared."""

    __slots__ = ("deadline_ms", "declarations", "declared", "ended", "finished", "future", "timeout_ms")

    def __init__(
        self,
        declarations: Sequence[QueueDeclaration],
        *,
        deadline_ms: int,
        timeout_ms: int,
        ended: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        self.declarations = declarations
        self.ended = ended
        """Told in the turn that ends it, with its error if it has one."""
        self.declared = 0
        self.deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.future: Future[None] = Future()
        self.finished = False

    @property
    def current(self) -> QueueDeclaration:
        """Return the declaration that the broker is to answer next."""
        return self.declarations[self.declared]

    @property
    def doing(self) -> str:
        """Say what was being done, for error messages."""
        return f"declaring queue '{self.current.queue}'"


class Step:
    """Anything else with a future and a deadline: connecting, starting or closing a consumer."""

    __slots__ = ("deadline_ms", "doing", "finished", "future", "timeout_ms")

    def __init__(self, doing: str, *, deadline_ms: int, timeout_ms: int) -> None:
        self.doing = doing
        self.deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.future: Future[None] = Future()
        self.finished = False
