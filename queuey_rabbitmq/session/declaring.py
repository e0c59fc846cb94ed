"""Declaring queues: one operation at a time, on a channel of its own, so that a refusal is the current queue's."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import BackendError, DeclareRefusedError
from queuey_rabbitmq.session.connection import ManagedChannel, SessionConnection
from queuey_rabbitmq.session.endings import Endings, remedy
from queuey_rabbitmq.session.operations import DeclareOperation


class DeclareChannel(ManagedChannel):
    """Serves declarations in the order they came.

    When the connection is lost, the one that was sent fails where the broker said why, because it may be the reason:
    RabbitMQ 4.3 closes the connection over a transient queue. One that a mere loss of the connection left without an
    answer is sent again with those that wait: declaring twice is declaring once.
    """

    handlers: ClassVar = {amqp.QueueDeclared: "_declared"}
    repeats: ClassVar[bool] = True
    """Whether it is used again when its connection has come back."""

    def __init__(self, connection: SessionConnection, endings: Endings) -> None:
        super().__init__(connection)
        self._endings = endings
        self._waiting: deque[DeclareOperation] = deque()
        self._current: DeclareOperation | None = None

    def declare(self, operation: DeclareOperation) -> None:
        """Declare the operation's queues, now or when the channel is free."""
        self._waiting.append(operation)
        self.resume()

    def resume(self) -> None:
        """Go on with what waits, where that is possible now."""
        if self._current is not None and self._current.finished:
            self._leave_channel()
        if self.state != "open":
            if self._waiting:
                self.open()
            return
        while self._current is None and self._waiting:
            operation = self._waiting.popleft()
            if not operation.finished:
                self._current = operation
                self._send(operation)

    def opened(self) -> None:
        """Go on with what waited for the channel."""
        self.resume()

    def not_opened(self, error: BackendError) -> None:
        """Fail what waited for the channel."""
        waiting, self._waiting = self._waiting, deque()
        for operation in waiting:
            self._fail(operation, error)

    def refused(self, event: amqp.CommandRefused) -> None:
        """Fail the operation: one of its declarations cannot be written."""
        # What was written before it is still answered, on this channel; so the channel is given up with it.
        if self._current is not None:
            self._endings.refused_here(self._current, event.error)
            self.connection.send([amqp.CloseChannel(self.number)])

    def closed(self, code: int, text: str) -> None:
        """Fail the current operation with what the broker said about its current queue."""
        operation, self._current = self._current, None
        if operation is not None:
            refused = operation.current
            durability = "durable" if refused.durable else "transient"
            self._endings.fail(
                operation,
                # The broker names only the first of what differs.
                DeclareRefusedError(
                    f"declaring queue '{refused.queue}', {durability}, with {refused.arguments}: the broker refused "
                    f"it: {code} {text}. "
                    + remedy(
                        code, "If it exists with other arguments, declare it as it is, or drain and delete it first."
                    ),
                    code=code,
                    text=text,
                ),
            )
        self.resume()

    def lost(self, error: BackendError) -> None:
        """Send the operation again when the connection is back, or fail it."""
        operation, self._current = self._current, None
        if operation is None:
            return
        if self.repeats and self.connection.comes_back and self.connection.was_lost_in_silence:
            operation.declared = 0
            self._waiting.appendleft(operation)
        else:
            self._fail(operation, error)

    def _fail(self, operation: DeclareOperation, error: BackendError) -> None:
        failure = type(error)(f"{operation.doing}: {error}")
        failure.__cause__ = error
        self._endings.fail(operation, failure)

    def _send(self, operation: DeclareOperation) -> None:
        self.connection.send(
            [
                amqp.DeclareQueue(
                    channel=self.number,
                    queue=declaration.queue,
                    durable=declaration.durable,
                    arguments=declaration.arguments,
                )
                for declaration in operation.declarations
            ]
        )

    def _declared(self, _event: amqp.QueueDeclared) -> None:
        operation = self._current
        assert operation is not None, "the broker answered a declaration that nobody made"
        operation.declared += 1
        if operation.declared == len(operation.declarations):
            self._current = None
            self._endings.succeed(operation)
            self.resume()

    def forget_finished(self) -> None:
        """Drop what waited until its deadline."""
        self._waiting = deque(operation for operation in self._waiting if not operation.finished)
        self.resume()

    def _leave_channel(self) -> None:
        """Go on without the channel on which something was not answered until its deadline.

        RabbitMQ 4 answers nothing while the node of a classic queue is down, the close of the channel neither.
        """
        self._current = None
        self.state = "closed"
        self.connection.forget_channel(self.number)
        self.connection.send([amqp.CloseChannel(self.number)])


class ReplayChannel(DeclareChannel):
    """Declares what was declared before on a connection that has come back, before anything else uses it."""

    opens_early = True
    repeats = False

    def lost(self, error: BackendError) -> None:
        """Fail everything: what is declared on the next connection begins anew."""
        super().lost(error)
        self.not_opened(error)
