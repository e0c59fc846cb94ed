"""How operations end: once, with their slot given back and their future resolved after the turn. Sends nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import CancelledError

from queuey_rabbitmq.amqp import Link
from queuey_rabbitmq.core.errors import (
    BackendError,
    DeadlineExceededError,
    OutcomeUnknownError,
    PublishRefusedError,
    UnroutableError,
)
from queuey_rabbitmq.session.in_flight import InFlightBound
from queuey_rabbitmq.session.operations import DeclareOperation, Operation, PublishOperation

NOT_FOUND = 404


def remedy(code: int, otherwise: str) -> str:
    """Say what to do about a declaration that the broker refused."""
    if code == NOT_FOUND:  # of a queue that is declared, and not only looked for: rabbit_amqqueue:not_found
        return "The queue is there, on a node that is down: what needs it can go on when that node is back."
    return otherwise


class Endings:
    """Ends operations. Only inside a turn."""

    def __init__(self, link: Link, bound: InFlightBound) -> None:
        self._link = link
        self._bound = bound

    def succeed(self, operation: Operation) -> None:
        """End an operation that has no result but its success."""
        if not operation.finished:
            operation.finished = True
            if isinstance(operation, DeclareOperation) and operation.ended is not None:
                operation.ended(None)
            self._link.resolve(operation.future, None)

    def fail(self, operation: Operation, error: BaseException) -> None:
        """End an operation with an error, unless it has ended."""
        if operation.finished:
            return
        operation.finished = True
        if isinstance(operation, PublishOperation):
            if not operation.sent:
                self.release(operation)
            if operation.otherwise is not None:
                operation.otherwise()
        elif isinstance(operation, DeclareOperation) and operation.ended is not None:
            operation.ended(error)
        self._link.fail(operation.future, error)

    def may_go(self, operation: PublishOperation) -> bool:
        """Tell whether a message is still to be sent; end its operation where its delivery has been lost meanwhile.

        Nor is it sent where nobody waits for it any more, having cancelled its future.
        """
        if operation.future.cancelled():
            self.fail(operation, CancelledError())
        if operation.finished:
            self.release(operation)
            return False
        error = None if operation.unless is None else operation.unless()
        if error is not None:
            self.release(operation)
            self.fail(operation, error)
        return error is None

    def unfinished(self, waiting: Iterable[PublishOperation]) -> deque[PublishOperation]:
        """Return which of the messages that wait are still to be sent; the others give their slots back.

        A message that waits is in no buffer and at no broker, though it may have been sent before, on a connection
        that was lost.
        """
        still_waiting: deque[PublishOperation] = deque()
        for operation in waiting:
            if operation.finished:
                self.release(operation)
            else:
                still_waiting.append(operation)
        return still_waiting

    def release(self, *operations: PublishOperation) -> None:
        """Give back the slots of messages that are in flight no more.

        Not at its deadline: what was sent and is not settled still takes room, in a buffer or at a broker that does
        not read, and a producer that is slowed by that is the point of the bound.
        """
        messages = size = 0
        for operation in operations:
            if operation.holds_slot:
                operation.holds_slot = False
                messages += 1
                size += len(operation.message.body)
        if messages:
            for slot in self._bound.leave(size, messages=messages):
                self._link.resolve(slot, None)

    def confirmed(self, operation: PublishOperation) -> None:
        """End a publish that the broker has answered with an ack: it has the message, or returned it before."""
        if operation.holds_slot:
            self.release(operation)
        if operation.finished:
            return
        if operation.returned is not None:
            queue = operation.message.queue
            self.fail(
                operation,
                UnroutableError(
                    f"publishing to queue '{queue}': the message is unroutable, there is no such queue "
                    f"(the broker returned it: {operation.returned}). Declare the queue, then publish again."
                ),
            )
            return
        operation.finished = True
        error = operation.then() if operation.then is not None else None
        if error is None:
            self._link.resolve(operation.future, None)
        else:
            self._link.fail(operation.future, error)

    def nacked(self, operation: PublishOperation) -> None:
        """End a publish that the broker has refused."""
        self.release(operation)
        self.fail(
            operation,
            PublishRefusedError(
                f"{operation.doing}: the broker refused the message (basic.nack), so it does not have it; "
                "the queue is at its length limit, is a quorum queue that has lost its leader, or the broker had an "
                "internal error. Publish it again later."
            ),
        )

    def refused_here(self, operation: Operation, error: Exception) -> None:
        """End an operation whose command could not be written in AMQP; nothing of it was sent."""
        if isinstance(operation, PublishOperation):
            self.release(operation)
        failure = BackendError(f"{operation.doing}: it cannot be written in AMQP, so nothing was sent: {error}")
        failure.__cause__ = error
        self.fail(operation, failure)

    def not_sent(self, operation: PublishOperation, why: BackendError) -> None:
        """End a publish for which there is no channel."""
        if operation.sent:  # on a connection that was lost
            self.unknown(operation, why)
            return
        self.release(operation)
        failure = BackendError(f"{operation.doing}: nothing was sent: {why}")
        failure.__cause__ = why
        self.fail(operation, failure)

    def unknown(self, operation: PublishOperation, why: BaseException) -> None:
        """End a publish that was sent and will never be answered."""
        self.release(operation)
        error = OutcomeUnknownError(
            f"{operation.doing}: sent, but not confirmed before this happened: {why}. The broker may or may not have "
            "the message; publishing it again can make a duplicate."
        )
        error.__cause__ = why
        self.fail(operation, error)

    def overdue(self, operation: Operation, why: str | None) -> None:
        """End an operation whose deadline has come; `why` says what kept the broker from it, where that is known."""
        message = f"{operation.doing}: not done within {operation.timeout_ms / 1000:g} s"
        if isinstance(operation, PublishOperation) and operation.sent:
            message += "; it was sent and not confirmed, so the broker may or may not have it"
        elif isinstance(operation, PublishOperation):
            message += "; it was not sent, so the broker does not have it"
        if why is not None:
            message += f". {why}"
        self.fail(operation, DeadlineExceededError(f"{message}."))
