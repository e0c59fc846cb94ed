"""A backend's session as an application's threads see it: calls that check, hand over to the turns, and wait.

Refuses to touch anything that the turns own: what runs in them is `session.driven`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import DeadlineExceededError, QueueyError
from queuey_rabbitmq.core.reconnect import ReconnectPolicy
from queuey_rabbitmq.session.consuming import ConsumerChannel, Settlement, lost_delivery
from queuey_rabbitmq.session.driven import DrivenSession
from queuey_rabbitmq.session.in_flight import InFlightBound
from queuey_rabbitmq.session.operations import (
    Completion,
    DeclareOperation,
    Message,
    Operation,
    PublishOperation,
    QueueDeclaration,
    Step,
)

log = logging.getLogger("queuey_rabbitmq")

GRACE_MS = 1_000
"""How much later than the session a waiting thread gives up: only a link that is stuck lets it come to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session needs to know, in ms, messages and bytes."""

    connect_timeout_ms: int
    operation_timeout_ms: int
    close_timeout_ms: int
    max_in_flight: int
    max_in_flight_bytes: int
    reconnect: ReconnectPolicy | None


class Session:
    """Everything between a backend and a link."""

    def __init__(self, link: amqp.Link, settings: SessionSettings) -> None:
        self._link = link
        self._settings = settings
        self._bound = self._new_bound()
        self._driven = DrivenSession(
            link, self._bound, settings.reconnect, operation_timeout_ms=settings.operation_timeout_ms
        )
        self._closing_lock = Lock()
        self._closing: Step | None = None
        link.attach(self._driven)
        _sessions.add(self)

    def connect(self) -> None:
        """Open both connections. Raises ConnectError, which says at which stage it failed."""
        # The link bounds both attempts, and says how far they came; this is only in case that it does not.
        step = self._step("connecting to the broker", self._settings.connect_timeout_ms + GRACE_MS)
        self._link.run(partial(self._driven.connect, step))
        try:
            self.wait(step)
        except BaseException as error:
            with suppress(QueueyError):  # the link has died, and both connections with it
                self._link.run(partial(self._driven.give_up, error))
            self._link.close(self._settings.close_timeout_ms)
            raise

    def declare(self, declarations: list[QueueDeclaration]) -> None:
        """Declare queues in order. Raises DeclareRefusedError with what differs; those before it stay declared."""
        self.check_may_wait()
        timeout_ms = self._settings.operation_timeout_ms
        operation = DeclareOperation(declarations, deadline_ms=self._deadline(timeout_ms), timeout_ms=timeout_ms)
        self._link.run(partial(self._driven.declare, operation))
        self.wait(operation)

    def publish(
        self,
        message: Message,
        *,
        declaration: QueueDeclaration | None = None,
        unless: Callable[[], BaseException | None] | None = None,
        then: Callable[[], BaseException | None] | None = None,
        otherwise: Callable[[], None] | None = None,
        future: Future[None] | None = None,
        in_line: bool = False,
    ) -> PublishOperation:
        """Start to publish a message, right behind the declaration of its hold queue where there is one.

        Waits while too much is in flight, up to the operation's deadline; `in_line`, the operation waits instead of
        its caller. The operation ends with the confirm, and then so does `future`, where there is one; `unless`,
        `then` and `otherwise` are as PublishOperation says.
        """
        timeout_ms = self._settings.operation_timeout_ms
        operation = PublishOperation(
            message=message,
            deadline_ms=self._deadline(timeout_ms),
            timeout_ms=timeout_ms,
            declaration=declaration,
            unless=unless,
            then=then,
            otherwise=otherwise,
            future=Completion() if future is None else future,
        )
        slot = self._bound.enter(len(message.body))
        if slot is not None and in_line:
            self._line_up(operation, slot)
            return operation
        if slot is not None:
            self._wait_for_slot(slot, operation)
        operation.holds_slot = True
        try:
            self._link.run(partial(self._driven.submit, operation, self._driven.publish))
        except BaseException:
            for granted in self._bound.leave(operation.size):
                granted.set_result(None)
            raise
        return operation

    def check_may_wait(self) -> None:
        """Raise BackendError where waiting would block the turns, before anything is sent."""
        self._link.check_may_wait()

    def wait(self, operation: Operation) -> None:
        """Wait until an operation has ended. Raises its error."""
        self._link.wait(operation.future, operation.deadline_ms + GRACE_MS)

    def consume(self, queue: str, prefetch: int, mailbox: amqp.Mailbox[Any]) -> ConsumerChannel:
        """Start a consumer that puts (itself, Delivered), and in the end (itself, Ended), into the mailbox."""
        self.check_may_wait()
        step = self._step(f"consuming queue '{queue}'", self._settings.operation_timeout_ms)
        started: list[ConsumerChannel] = []
        self._link.run(partial(self._driven.consume, step, queue, prefetch, mailbox, started))
        try:
            self.wait(step)
        except BaseException:
            for consumer in started:
                self._link.run(partial(consumer.stop, self._step("giving up a consumer", GRACE_MS)))
            raise
        return started[0]

    def settle(
        self, consumer: ConsumerChannel, channel: int, delivery_tag: int, settlement: Settlement, *, after_ms: int = 0
    ) -> None:
        """Settle a delivery of a consumer's channel, after a while. Raises DeliveryLost where that is gone."""
        self.check_current(consumer, channel)
        step = partial(consumer.settle, channel, delivery_tag, settlement)
        self._link.run(partial(self._driven.later, after_ms, step) if after_ms > 0 else step)

    def check_current(self, consumer: ConsumerChannel, channel: int) -> None:
        """Raise DeliveryLost, and count it, where deliveries of that channel can no longer be settled."""
        if not consumer.is_current(channel):
            self._driven.settled_too_late()
            raise lost_delivery(consumer.queue)

    def check(self, consumer: ConsumerChannel) -> bool:
        """Wait until what the broker has ready for a consumer is in its mailbox; tell whether more is coming."""
        step = self._step(f"looking into queue '{consumer.queue}'", self._settings.operation_timeout_ms)
        self._link.run(partial(self._driven.submit, step, consumer.check))
        self.wait(step)
        return consumer.has_more

    def drain(self, consumer: ConsumerChannel) -> None:
        """Let a consumer take no more; it ends with ShutDownError once the last that is on its way has come."""
        self._link.run(consumer.drain)

    def stop(self, consumers: Iterable[ConsumerChannel]) -> None:
        """End consumers; what was not settled goes back. Raises what kept one from it when all have been ended."""
        timeout_ms = self._settings.close_timeout_ms
        steps = [(self._step(f"closing the consumer of queue '{c.queue}'", timeout_ms), c) for c in consumers]
        try:
            for step, consumer in steps:
                self._link.run(partial(self._driven.stop, step, consumer))
        except QueueyError:
            return  # the link has ended, and every consumer with it
        failures = []
        for step, _ in steps:
            try:
                self.wait(step)
            except QueueyError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close the consumers, wait for what is in flight, and close the connections, all within close_timeout.

        What is not confirmed by then fails, and is reported in the log. Idempotent.
        """
        timeout_ms = self._settings.close_timeout_ms
        with self._closing_lock:
            is_first = self._closing is None
            step = self._closing = self._closing or self._step("closing the backend", timeout_ms)
        try:
            if is_first:
                self._link.run(partial(self._driven.close, step))
            self.wait(step)
        except DeadlineExceededError:
            log.warning("closing the backend: the broker did not answer within %g s; dropped it", timeout_ms / 1000)
        except QueueyError as error:
            log.debug("closing the backend: %s", error)
        self._link.close(timeout_ms)

    def later(self, delay_ms: int, step: Callable[[], object]) -> None:
        """Do something in a turn after `delay_ms`, unless the session has ended by then. Only inside a turn."""
        self._driven.later(delay_ms, step)

    def monotonic_ms(self) -> int:
        """Return the present on the timeline of deadlines."""
        return self._link.monotonic_ms()

    def future(self) -> Future[None]:
        """Return a future for a caller to wait for, to be ended by `publish`."""
        return self._link.future()

    def mailbox(self) -> amqp.Mailbox[Any]:
        """Return a mailbox for a consumer's deliveries."""
        return self._link.mailbox()

    @property
    def stale_settlements(self) -> int:
        """Return how many outcomes came too late for their delivery."""
        return self._driven.stale_settlements

    def enter_fork(self) -> None:
        """Get new locks in a forked process, where those who may have held the old ones are not; the link refuses."""
        self._bound = self._new_bound()
        self._closing_lock = Lock()
        self._driven.enter_fork()

    def _new_bound(self) -> InFlightBound:
        return InFlightBound(messages=self._settings.max_in_flight, bytes_=self._settings.max_in_flight_bytes)

    def _deadline(self, timeout_ms: int) -> int:
        return self._link.monotonic_ms() + timeout_ms

    def _step(self, doing: str, timeout_ms: int) -> Step:
        return Step(doing, deadline_ms=self._deadline(timeout_ms), timeout_ms=timeout_ms)

    def _wait_for_slot(self, slot: Future[None], operation: PublishOperation) -> None:
        try:
            self._link.wait(slot, operation.deadline_ms)
        except BaseException as error:
            for granted in self._bound.give_up(slot, operation.size):
                granted.set_result(None)
            if isinstance(error, DeadlineExceededError):
                raise DeadlineExceededError(
                    f"{operation.doing}: not sent within {operation.timeout_ms / 1000:g} s, because as much as "
                    "max_in_flight and max_in_flight_bytes allow is waiting for the broker's confirms. "
                    f"{self._driven.hindrance() or ''}"
                ) from error
            raise

    def _line_up(self, operation: PublishOperation, slot: Future[None]) -> None:
        """Let an operation be sent when it has its slot; its deadline is watched meanwhile."""

        def granted(slot: Future[None]) -> None:
            if slot.exception() is None:
                with suppress(QueueyError):  # the link has ended, and every operation with it
                    self._link.run(partial(self._driven.let_go, operation))

        operation.otherwise = partial(self._driven.leave_line, slot, operation.otherwise)
        self._link.run(partial(self._driven.submit, operation, lambda _: None))
        slot.add_done_callback(granted)


_sessions: WeakSet[Session] = WeakSet()


def _enter_fork() -> None:
    for session in _sessions:
        session.enter_fork()


if hasattr(os, "register_at_fork"):  # systems that do not fork do not have it
    os.register_at_fork(after_in_child=_enter_fork)
