"""What an application has asked for and waits for: values to send, and operations with a future and a deadline.

Knows no channel. An operation ends once: whoever ends it first wins, and an answer that comes later is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import msgspec

from queuey_rabbitmq.amqp import Pending, Properties


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


class Completion:
    """The end of an operation, for one thread to wait for: what a Future is, at a fifth of its cost."""

    __slots__ = ("_ended", "_error", "_is_done")

    def __init__(self) -> None:
        self._is_done = False
        self._error: BaseException | None = None
        self._ended = Lock()
        self._ended.acquire()

    def done(self) -> bool:
        """Tell whether the operation has ended."""
        return self._is_done

    def set_result(self, _result: None, /) -> None:
        """End the operation."""
        self._is_done = True
        self._ended.release()

    def set_exception(self, exception: BaseException, /) -> None:
        """End the operation with an error."""
        self._error = exception
        self.set_result(None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, for `timeout` seconds at most; return the error. Raises TimeoutError."""
        if not self._is_done:
            if not self._ended.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError
            self._ended.release()  # for whoever else waits
        return self._error

    def result(self) -> None:
        """Wait for the end; raise the error, if there is one."""
        error = self._error if self._is_done else self.exception()
        if error is not None:
            raise error

    def cancelled(self) -> bool:
        """Tell that nobody can cancel it."""
        return False

    def set_running_or_notify_cancel(self) -> bool:
        """Tell that nobody has cancelled it."""
        return True


class Operation(Protocol):
    """Something with a deadline that can be failed from outside."""

    finished: bool
    deadline_ms: int
    timeout_ms: int

    @property
    def future(self) -> Pending[None]:
        """What ends with the operation."""

    @property
    def doing(self) -> str:
        """Say what was being done, for error messages."""


class PublishOperation(msgspec.Struct, eq=False, kw_only=True):
    """One message on its way, with the hold queue that must be declared right before it, if any.

    What a delivery's outcome adds, each run in a turn: `unless` is asked right before the message is sent, and its
    error ends the operation instead; `then` settles the delivery once the message is confirmed, and may answer with
    the error that the future is to end with; `otherwise` follows a failure.
    """

    message: Message
    deadline_ms: int
    timeout_ms: int
    declaration: QueueDeclaration | None = None
    unless: Callable[[], BaseException | None] | None = None
    then: Callable[[], BaseException | None] | None = None
    otherwise: Callable[[], None] | None = None
    future: Pending[None] = msgspec.field(default_factory=Completion)
    finished: bool = False
    holds_slot: bool = False
    """Whether it counts in the bound of what is in flight."""
    sent: bool = False
    """Whether the broker may have it."""
    returned: str | None = None
    """What the broker said when it returned the message as unroutable."""

    @property
    def size(self) -> int:
        """Return what the message counts for in the bound of bytes in flight."""
        return len(self.message.body)

    @property
    def doing(self) -> str:
        """Say what was being done, for error messages."""
        return self.message.doing


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
        self.future = Completion()
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
        self.future = Completion()
        self.finished = False
