"""A session as its link drives it: everything that runs in turns, from connecting to the end.

Owns the two connections, what runs on them, the deadlines and timers, and why nothing goes on any more. Two
connections, because a resource alarm of the broker blocks connections that publish, and then answers nothing on
them, not even close: with one, a blocked producer would stop the acks too, and the queue could never drain. Holds
and publishes go over one, consumers and declarations over the other. Refuses to be called outside a turn, but for
what says so.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import BackendError, ConnectError, QueueyError, ShutDownError
from queuey_rabbitmq.core.reconnect import ReconnectPolicy
from queuey_rabbitmq.session.connection import SessionConnection, lost_error
from queuey_rabbitmq.session.consuming import ConsumerChannel
from queuey_rabbitmq.session.deadlines import Deadlines
from queuey_rabbitmq.session.declaring import DeclareChannel
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.in_flight import InFlightBound
from queuey_rabbitmq.session.operations import (
    DeclareOperation,
    Operation,
    PublishOperation,
    QueueDeclaration,
    Step,
)
from queuey_rabbitmq.session.publishing import LARGE_BODY_BYTES, PublishChannel, SoloPool
from queuey_rabbitmq.session.recovery import Recovery

log = logging.getLogger("queuey_rabbitmq")

SOLO_CHANNELS = 8


class DrivenSession:
    """The port's Driven, and what the threads of an application have done in turns."""

    def __init__(
        self, link: amqp.Link, bound: InFlightBound, reconnect: ReconnectPolicy | None, *, operation_timeout_ms: int
    ) -> None:
        self._link = link
        self._bound = bound
        self._operation_timeout_ms = operation_timeout_ms
        self._endings = Endings(link, bound)
        self._deadlines = Deadlines()
        self._publishing = SessionConnection(link, "publish", self)
        self._consuming = SessionConnection(link, "consume", self)
        self._publisher = PublishChannel(self._publishing, self._endings)
        self._solo = SoloPool(self._publishing, self._endings, channels=SOLO_CHANNELS, later=self.later)
        self._declarer = DeclareChannel(self._consuming, self._endings)
        self._recovery = Recovery(self, self._endings, reconnect)
        self._consumers: dict[str, ConsumerChannel] = {}
        self._tags = 0
        self._connecting: Step | None = None
        self._was_connected = False
        """Whether both connections were open once: from then on a lost one may come back."""
        self._disconnecting: Step | None = None
        self._down: QueueyError | None = None
        """Why nothing can be done any more."""
        self._counting = Lock()
        self.stale_settlements = 0
        """How many outcomes came too late for their delivery."""
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = itertools.count()

    # ------------------------------------------------------------------------ what an application asks for

    def connect(self, step: Step) -> None:
        """Start to open both connections."""
        self._connecting = step
        self._deadlines.add(step)
        self._publishing.open()
        self._consuming.open()

    def give_up(self, error: BaseException) -> None:
        """End what never connected."""
        if self._down is None:
            self._go_down(ShutDownError(f"the backend never connected: {error}"))
        self._publishing.abort()
        self._consuming.abort()

    def submit(self, operation: Operation, perform: Callable[..., None]) -> None:
        """Begin an operation, or fail it where nothing goes on any more."""
        if self._down is not None:
            self._endings.fail(operation, self._down_error(operation.doing))
            return
        self._deadlines.add(operation)
        perform(operation)

    def declare(self, operation: DeclareOperation) -> None:
        """Declare queues, and keep those which the broker has for when a connection must come back."""

        def ended(_error: BaseException | None) -> None:
            declared = operation.declarations[: operation.declared]
            self._recovery.topology.update((declaration.queue, declaration) for declaration in declared)

        operation.ended = ended
        self.submit(operation, self._declarer.declare)

    def publish(self, operation: PublishOperation) -> None:
        """Send a message on the shared channel, or alone on one where its refusal would take others with it."""
        alone = operation.declaration is not None or operation.size >= LARGE_BODY_BYTES
        (self._solo.perform if alone else self._publisher.publish)(operation)

    def let_go(self, operation: PublishOperation) -> None:
        """Send what has stood in line, unless it has ended by now."""
        operation.holds_slot = True
        if self._endings.may_go(operation):
            self.publish(operation)

    def leave_line(self, slot: Future[None], otherwise: Callable[[], None] | None) -> None:
        """Give up the slot of what stood in line until its deadline."""
        for granted in self._bound.forget(slot):
            self._link.resolve(granted, None)
        if otherwise is not None:
            otherwise()

    def consume(
        self, step: Step, queue: str, prefetch: int, mailbox: amqp.Mailbox[Any], started: list[ConsumerChannel]
    ) -> None:
        """Start a consumer, and add it to `started` unless nothing goes on any more."""
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
        self.submit(step, consumer.start)
        if not step.finished:
            self._consumers[tag] = consumer
            started.append(consumer)

    def stop(self, step: Step, consumer: ConsumerChannel) -> None:
        """End a consumer."""
        if self._down is not None:  # with the session, its consumers have ended, or do as their connection goes
            self._endings.succeed(step)
        else:
            self.submit(step, consumer.stop)

    def close(self, step: Step) -> None:
        """End the consumers, and the connections once nothing is in flight."""
        if self._down is not None:
            self._endings.succeed(step)
            return
        self._disconnecting = step
        self._deadlines.add(step)
        for consumer in list(self._consumers.values()):
            closing = Step("closing a consumer", deadline_ms=step.deadline_ms, timeout_ms=step.timeout_ms)
            consumer.stop(closing)
        self._close_when_idle()

    # ------------------------------------------------------------------------------------------ any thread

    def hindrance(self) -> str | None:
        """Say what keeps messages from being sent, where that is known."""
        if self._publishing.blocked is not None:
            return f"The broker blocks publishers: {self._publishing.blocked}"
        if self._recovery.last_error is not None:
            return f"There is no connection: {self._recovery.last_error}"
        return None

    def settled_too_late(self) -> None:
        """Count an outcome that came too late for its delivery."""
        with self._counting:
            self.stale_settlements += 1

    def enter_fork(self) -> None:
        """Get a new lock in a forked process, where whoever may have held the old one is not."""
        self._counting = Lock()

    # ----------------------------------------------------------------------------- what the recovery needs

    def later(self, delay_ms: int, step: Callable[[], object]) -> None:
        """Do something in a turn after `delay_ms`, unless the session has ended by then."""
        heapq.heappush(self._timers, (self._link.monotonic_ms() + delay_ms, next(self._sequence), step))

    def declaring(
        self, declarations: list[QueueDeclaration], ended: Callable[[BaseException | None], None]
    ) -> DeclareOperation:
        """Return a declaration of the session's own, whose deadline is watched."""
        timeout_ms = self._operation_timeout_ms
        deadline_ms = self._link.monotonic_ms() + timeout_ms
        operation = DeclareOperation(declarations, deadline_ms=deadline_ms, timeout_ms=timeout_ms, ended=ended)
        self._deadlines.add(operation)
        return operation

    def resume(self, connection: SessionConnection) -> None:
        """Go on with what waited for a connection."""
        if connection is self._publishing:
            self._publisher.resume()
            self._solo.resume()
        else:
            self._declarer.resume()
            for consumer in list(self._consumers.values()):
                consumer.open()

    # ------------------------------------------------------------------ what consumers and connections say

    def consumer_lost(self, consumer: ConsumerChannel, error: BackendError) -> None:
        """Leave it to the recovery."""
        self._recovery.consumer_lost(consumer, error)

    def consumer_ended(self, consumer: ConsumerChannel) -> None:
        """Forget a consumer."""
        self._consumers.pop(consumer.tag, None)

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

    # ------------------------------------------------------------------- what the link calls (amqp.Driven)

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
            self._endings.overdue(operation, self.hindrance())
            if operation is self._disconnecting:
                self._abort_closing()
        if overdue:
            self._publisher.forget_finished()
            self._solo.forget_finished()
            self._declarer.forget_finished()

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

    # --------------------------------------------------------------------------------------------- the end

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

    def _down_error(self, doing: str) -> QueueyError:
        assert self._down is not None, "only a session that is down says so"
        error = type(self._down)(f"{doing}: {self._down}")
        error.__cause__ = self._down
        return error

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


def connect_error(event: amqp.ConnectionLost) -> ConnectError:
    """Say at which stage a connection could not be made."""
    said = f"{event.code} {event.text}" if event.code else event.text
    error = ConnectError(f"connecting to the broker failed while {event.stage}: {said}")
    error.__cause__ = event.cause
    return error
