"""A backend's session: two connections, what runs on them, and the life from connecting to closing.

Two connections, because a resource alarm of the broker blocks connections that publish, and then answers nothing on
them, not even close: with one, a blocked producer would stop the acks too, and the queue could never drain. Holds
and publishes go over one, consumers and declarations over the other.

Methods for an application's threads wait on futures; everything with an underscore runs in turns.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import (
    BackendError,
    ConnectError,
    DeadlineExceededError,
    QueueyError,
    ShutDownError,
)
from queuey_rabbitmq.core.reconnect import ReconnectPolicy
from queuey_rabbitmq.session.connection import SessionConnection, lost_error
from queuey_rabbitmq.session.consuming import ConsumerChannel, Settlement, lost_delivery
from queuey_rabbitmq.session.deadlines import Deadlines
from queuey_rabbitmq.session.declaring import DeclareChannel
from queuey_rabbitmq.session.endings import Endings
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
from queuey_rabbitmq.session.publishing import LARGE_BODY_BYTES, PublishChannel, SoloPool
from queuey_rabbitmq.session.recovery import Recovery

log = logging.getLogger("queuey_rabbitmq")

SOLO_CHANNELS = 8
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
        self._endings = Endings(link, self._bound)
        self._deadlines = Deadlines()
        self._publishing = SessionConnection(link, "publish", self)
        self._consuming = SessionConnection(link, "consume", self)
        self._publisher = PublishChannel(self._publishing, self._endings)
        self._solo = SoloPool(self._publishing, self._endings, channels=SOLO_CHANNELS)
        self._declarer = DeclareChannel(self._consuming, self._endings)
        self._recovery = Recovery(self, self._endings, settings.reconnect)
        self._consumers: dict[str, ConsumerChannel] = {}
        self._tags = 0
        self._connecting: Step | None = None
        self._was_connected = False
        """Whether both connections were open once: from then on a lost one may come back."""
        self._closing_lock = Lock()
        self._closing: Step | None = None
        self._disconnecting: Step | None = None
        self._down: QueueyError | None = None
        """Why nothing can be done any more."""
        self._stale_settlements = 0
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = itertools.count()
        link.attach(self)
        _sessions.add(self)

    # ------------------------------------------------------------------------------------ for threads

    def connect(self) -> None:
        """Open both connections. Raises ConnectError, which says at which stage it failed."""
        # The link bounds both attempts, and says how far they came; this is only in case that it does not.
        step = self._step("connecting to the broker", self._settings.connect_timeout_ms + GRACE_MS)
        self._link.run(partial(self._connect, step))
        try:
            self.wait(step)
        except BaseException as error:
            self._link.run(partial(self._give_up, error))
            self._link.close(self._settings.close_timeout_ms)
            raise

    def declare(self, declarations: list[QueueDeclaration]) -> None:
        """Declare queues in order. Raises DeclareRefusedError with what differs; those before it stay declared."""
        self.check_may_wait()
        timeout_ms = self._settings.operation_timeout_ms
        operation = DeclareOperation(declarations, deadline_ms=self._deadline(timeout_ms), timeout_ms=timeout_ms)
        self._link.run(partial(self._submit, operation, self._declarer.declare))
        self.wait(operation)
        self._recovery.topology.update((declaration.queue, declaration) for declaration in declarations)

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
            self._link.run(partial(self._submit, operation, self._perform))
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
        self._link.run(partial(self._consume, step, queue, prefetch, mailbox, started))
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
        self._link.run(partial(self.later, after_ms, step) if after_ms > 0 else step)

    def check_current(self, consumer: ConsumerChannel, channel: int) -> None:
        """Raise DeliveryLost, and count it, where deliveries of that channel can no longer be settled."""
        if not consumer.is_current(channel):
            self.settled_too_late()
            raise lost_delivery(consumer.queue)

    def check(self, consumer: ConsumerChannel) -> bool:
        """Wait until what the broker has ready for a consumer is in its mailbox; tell whether more is coming."""
        step = self._step(f"looking into queue '{consumer.queue}'", self._settings.operation_timeout_ms)
        self._link.run(partial(self._submit, step, consumer.check))
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
                self._link.run(partial(self._stop, step, consumer))
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
                self._link.run(partial(self._close, step))
            self.wait(step)
        except DeadlineExceededError:
            log.warning("closing the backend: the broker did not answer within %g s; dropped it", timeout_ms / 1000)
        except QueueyError as error:
            log.debug("closing the backend: %s", error)
        self._link.close(timeout_ms)

    def later(self, delay_ms: int, step: Callable[[], object]) -> None:
        """Do something in a turn after `delay_ms`, unless the session has ended by then. Only inside a turn."""
        heapq.heappush(self._timers, (self._deadline(delay_ms), next(self._sequence), step))

    def monotonic_ms(self) -> int:
        """Return the present on the timeline of deadlines."""
        return self._link.monotonic_ms()

    def mailbox(self) -> amqp.Mailbox[Any]:
        """Return a mailbox for a consumer's deliveries."""
        return self._link.mailbox()

    @property
    def stale_settlements(self) -> int:
        """Return how many outcomes came too late for their delivery."""
        return self._stale_settlements

    def enter_fork(self) -> None:
        """Get new locks in a forked process, where those who may have held the old ones are not; the link refuses."""
        self._bound = self._new_bound()
        self._closing_lock = Lock()

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
                    f"{self._hindrance() or ''}"
                ) from error
            raise

    def _line_up(self, operation: PublishOperation, slot: Future[None]) -> None:
        """Let an operation be sent when it has its slot; its deadline is watched meanwhile."""

        def granted(slot: Future[None]) -> None:
            if slot.exception() is None:
                with suppress(QueueyError):  # the link has ended, and every operation with it
                    self._link.run(partial(self._let_go, operation))

        operation.otherwise = partial(self._leave_line, slot, operation.otherwise)
        self._link.run(partial(self._submit, operation, lambda _: None))
        slot.add_done_callback(granted)

    def _hindrance(self) -> str | None:
        if self._publishing.blocked is not None:
            return f"The broker blocks publishers: {self._publishing.blocked}"
        if self._recovery.last_error is not None:
            return f"There is no connection: {self._recovery.last_error}"
        return None

    # -------------------------------------------------------------------------------------- in turns

    def declaring(
        self, declarations: list[QueueDeclaration], ended: Callable[[BaseException | None], None]
    ) -> DeclareOperation:
        """Return a declaration of the session's own, whose deadline is watched."""
        timeout_ms = self._settings.operation_timeout_ms
        deadline_ms = self._deadline(timeout_ms)
        operation = DeclareOperation(declarations, deadline_ms=deadline_ms, timeout_ms=timeout_ms, ended=ended)
        self._deadlines.add(operation)
        return operation

    def _submit(self, operation: Operation, perform: Callable[..., None]) -> None:
        if self._down is not None:
            self._endings.fail(operation, self._down_error(operation.doing))
            return
        self._deadlines.add(operation)
        perform(operation)

    def _perform(self, operation: PublishOperation) -> None:
        alone = operation.declaration is not None or operation.size >= LARGE_BODY_BYTES
        (self._solo.perform if alone else self._publisher.publish)(operation)

    def _let_go(self, operation: PublishOperation) -> None:
        """Send what has stood in line, unless it has ended by now."""
        operation.holds_slot = True
        if self._endings.may_go(operation):
            self._perform(operation)

    def _leave_line(self, slot: Future[None], otherwise: Callable[[], None] | None) -> None:
        for granted in self._bound.forget(slot):
            self._link.resolve(granted, None)
        if otherwise is not None:
            otherwise()

    def _down_error(self, doing: str) -> QueueyError:
        assert self._down is not None, "only a session that is down says so"
        error = type(self._down)(f"{doing}: {self._down}")
        error.__cause__ = self._down
        return error

    def _connect(self, step: Step) -> None:
        self._connecting = step
        self._deadlines.add(step)
        self._publishing.open()
        self._consuming.open()

    def _give_up(self, error: BaseException) -> None:
        if self._down is None:
            self._go_down(ShutDownError(f"the backend never connected: {error}"))
        self._publishing.abort()
        self._consuming.abort()

    def _consume(
        self, step: Step, queue: str, prefetch: int, mailbox: amqp.Mailbox[Any], started: list[ConsumerChannel]
    ) -> None:
        self._tags += 1
        tag = f"queuey-{self._tags}"
        consumer = ConsumerChannel(
            self._consuming,
            self._endings,
            queue=queue,
            tag=tag,
            prefetch=prefetch,
            mailbox=mailbox,
            keeper=self,
        )
        self._submit(step, consumer.start)
        if not step.finished:
            self._consumers[tag] = consumer
            started.append(consumer)

    def consumer_lost(self, consumer: ConsumerChannel, error: BackendError) -> None:
        """Leave it to the recovery."""
        self._recovery.consumer_lost(consumer, error)

    def consumer_ended(self, consumer: ConsumerChannel) -> None:
        """Forget a consumer."""
        self._consumers.pop(consumer.tag, None)

    def settled_too_late(self) -> None:
        """Count it."""
        self._stale_settlements += 1

    def _stop(self, step: Step, consumer: ConsumerChannel) -> None:
        if self._down is not None:  # with the session, its consumers have ended, or do as their connection goes
            self._endings.succeed(step)
        else:
            self._submit(step, consumer.stop)

    def _close(self, step: Step) -> None:
        if self._down is not None:
            self._endings.succeed(step)
            return
        self._disconnecting = step
        self._deadlines.add(step)
        for consumer in list(self._consumers.values()):
            consumer.stop(self._step("closing a consumer", step.timeout_ms))
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Start the handshakes once nothing is in flight: what was published is to be confirmed, not unknown."""
        waiting = any(isinstance(operation, PublishOperation) for operation in self._deadlines.open())
        if not waiting and self._down is None:
            self._go_down(ShutDownError("the backend is closed"))
            self._publishing.close()
            self._consuming.close()
            self._end_if_disconnected()

    def _end_if_disconnected(self) -> None:
        if self._disconnecting is not None and self._publishing.state == self._consuming.state == "closed":
            self._endings.succeed(self._disconnecting)

    def _go_down(self, error: QueueyError) -> None:
        self._down = error
        self._timers.clear()
        for operation in self._deadlines.open():
            if isinstance(operation, PublishOperation) and operation.sent:
                self._endings.unknown(operation, error)
            elif operation is not self._disconnecting:
                self._endings.fail(operation, self._down_error(operation.doing))
        for slot in self._bound.drain():
            self._link.fail(slot, error)
        for consumer in list(self._consumers.values()):
            consumer.end(self._down_error(f"consuming queue '{consumer.queue}'"))

    # what the connections say

    def connection_opened(self, connection: SessionConnection) -> None:
        """Go on once both connections are open; or declare and resume, where one has come back."""
        assert self._connecting is not None, "only an attempt to connect opens connections"
        if self._was_connected:
            self._recovery.connection_opened(connection)
            return
        connection.is_ready = True
        if self._publishing.is_ready and self._consuming.is_ready and not self._connecting.finished:
            self._was_connected = True
            self._endings.succeed(self._connecting)

    def resume(self, connection: SessionConnection) -> None:
        """Go on with what waited for a connection."""
        if connection is self._publishing:
            self._publisher.resume()
            self._solo.resume()
        else:
            self._declarer.resume()
            for consumer in list(self._consumers.values()):
                consumer.open()

    def connection_unblocked(self, _connection: SessionConnection) -> None:
        """Send what waited while the broker did not read."""
        self.resume(self._publishing)

    def comes_back(self, connection: SessionConnection, event: amqp.ConnectionLost) -> bool:
        """Ask the recovery, unless nothing is wanted any more or nothing was ever there."""
        if self._down is not None or not self._was_connected:
            return False
        return self._recovery.retries(connection, event)

    def connection_lost(self, connection: SessionConnection, event: amqp.ConnectionLost) -> None:
        """Fail the attempt to connect; or go down with a connection that does not come back."""
        if connection is self._publishing:
            self._solo.connection_lost()
        if connection.comes_back:
            return
        has_connected = self._connecting is not None and self._connecting.finished
        if self._connecting is not None and not has_connected:
            self._endings.fail(self._connecting, connect_error(event))
        if self._down is None:
            error = lost_error(connection.name, event)
            if has_connected:  # otherwise `connect` raises what happened
                log.error("%s; the backend ends", error)
            self._go_down(error)
            self._publishing.abort()
            self._consuming.abort()
        self._end_if_disconnected()

    # what the link calls (amqp.Driven)

    def end_of_turn(self) -> None:
        """Send the acks of this turn; go on closing when what was in flight has ended."""
        for consumer in self._consumers.values():
            consumer.send_acks()
        if self._disconnecting is not None and self._down is None:
            self._close_when_idle()

    def next_deadline_ms(self) -> int | None:
        """Return when the next operation must have ended, or the next timer is due."""
        soonest = self._deadlines.next_ms()
        if self._timers and (soonest is None or self._timers[0][0] < soonest):
            return self._timers[0][0]
        return soonest

    def on_time(self) -> None:
        """Fail what has not ended by its deadline, and run the timers that are due."""
        now_ms = self._link.monotonic_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            heapq.heappop(self._timers)[2]()
        overdue = self._deadlines.overdue(now_ms)
        for operation in overdue:
            self._endings.overdue(operation, self._hindrance())
            if operation is self._disconnecting:
                self._abort_closing()
        if overdue:
            self._publisher.forget_finished()
            self._solo.forget_finished()
            self._declarer.forget_finished()

    def _abort_closing(self) -> None:
        pending = Counter(operation.doing for operation in self._deadlines.open())
        if pending:
            log.warning(
                "closing the backend: %d operations had not ended: %s%s",
                pending.total(),
                "; ".join(f"{doing} ({count})" for doing, count in pending.most_common(5)),
                " ..." if len(pending) > 5 else "",  # noqa: PLR2004 -- enough to see what kind they are
            )
        if self._down is None:
            self._go_down(ShutDownError("the backend is closed"))
        self._publishing.abort()
        self._consuming.abort()

    def abandon(self, error: BaseException) -> None:
        """Fail everything: the link has died, or was closed under the session, as at the end of the process."""
        down: QueueyError
        if isinstance(error, ShutDownError):
            down = error
        else:
            down = BackendError(f"the link to the broker has died: {error}")
            down.__cause__ = error
        if self._down is None:
            self._go_down(down)
        event = amqp.ConnectionLost("open", 0, str(error), error)
        for consumer in list(self._consumers.values()):
            consumer.connection_lost(lost_error("consume", event))
        if self._disconnecting is not None:
            self._endings.succeed(self._disconnecting)


def connect_error(event: amqp.ConnectionLost) -> ConnectError:
    """Say at which stage a connection could not be made."""
    said = f"{event.code} {event.text}" if event.code else event.text
    error = ConnectError(f"connecting to the broker failed while {event.stage}: {said}")
    error.__cause__ = event.cause
    return error


_sessions: WeakSet[Session] = WeakSet()


def _enter_fork() -> None:
    for session in _sessions:
        session.enter_fork()


if hasattr(os, "register_at_fork"):  # systems that do not fork do not have it
    os.register_at_fork(after_in_child=_enter_fork)
