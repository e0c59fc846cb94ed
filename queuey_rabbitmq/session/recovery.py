"""Coming back: opening lost connections again, declaring what was declared, and resuming what waited.

Decides by the ReconnectPolicy alone. Refusals that no waiting mends (credentials, a virtual host that does not exist)
end it at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Literal, Protocol

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import BackendError, ChannelClosedError, DeadlineExceededError
from queuey_rabbitmq.core.reconnect import Attempt, ReconnectPolicy
from queuey_rabbitmq.session.connection import SessionConnection, lost_error
from queuey_rabbitmq.session.consuming import ConsumerChannel
from queuey_rabbitmq.session.declaring import ReplayChannel
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import DeclareOperation, QueueDeclaration

log = logging.getLogger("queuey_rabbitmq")

NOT_MENDED_BY_WAITING = frozenset({403, 530})
"""ACCESS_REFUSED and NOT_ALLOWED, when they answer an attempt to open a connection."""
NOT_FOUND = 404
MAX_DELAY_S = 365 * 24 * 3600.0
"""What a policy's delay counts for at most, infinity included; no timer takes that."""
LOOK_EVERY_MS = 500
"""How often it is looked whether a declaration is answered; nothing waits any longer for one that was out twice."""
LANES = 32
"""How many declarations are out at a time once one was not answered."""


class RecoveringSession(Protocol):
    """What recovery needs of its session."""

    def later(self, delay_ms: int, step: Callable[[], object]) -> None:
        """Do something in a turn after a while."""

    def declaring(
        self, declarations: list[QueueDeclaration], ended: Callable[[BaseException | None], None]
    ) -> DeclareOperation:
        """Return a declaration whose deadline is watched."""

    def resume(self, connection: SessionConnection) -> None:
        """Go on with what waited for a connection."""


class Replay:
    """What was declared is declared again, one queue after the other; one that is refused keeps no other from it.

    RabbitMQ 4 does not answer a declaration while the node of a classic queue is down (seen on clusters of 4.0 and
    4.3): it is left alone, and those behind it are declared beside each other. `go_on` follows when every other one was
    answered.
    """

    def __init__(
        self,
        connection: SessionConnection,
        session: RecoveringSession,
        endings: Endings,
        declarations: Iterable[QueueDeclaration],
        go_on: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._session = session
        self._endings = endings
        self._left = deque(declarations)
        self._go_on = go_on
        self._awaited: dict[ReplayChannel, DeclareOperation] = {}
        self._seen: set[DeclareOperation] = set()
        """What was out, on an open channel, when it was last looked."""

    def begin(self) -> None:
        """Declare the first."""
        if not self._left:
            self._go_on()
            return
        self._next(ReplayChannel(self._connection, self._endings))
        self._session.later(LOOK_EVERY_MS, self._look)

    def _next(self, channel: ReplayChannel) -> None:
        if not self._left:
            self._close(channel)
            if not self._awaited:
                self._go_on()
            return
        operation = self._session.declaring([self._left.popleft()], partial(self._ended, channel))
        self._awaited[channel] = operation
        channel.declare(operation)

    def _ended(self, channel: ReplayChannel, error: BaseException | None) -> None:
        is_awaited = self._awaited.pop(channel, None) is not None
        connection = self._connection
        if connection.state != "open":
            return  # it is tried again, and all of this with it
        if isinstance(error, DeadlineExceededError) and channel.state != "open" and not connection.is_ready:
            connection.abort()  # it opens no channel: it is lost again, and so is tried again
            return
        if error is not None:
            log.error("declaring again what was declared before: %s", error)
        if is_awaited:
            self._next(channel)
        else:
            self._close(channel)

    def _look(self) -> None:
        """Wait no longer for what was out already when it was last looked."""
        if not self._awaited:
            return
        passed = [channel for channel, operation in self._awaited.items() if operation in self._seen]
        for channel in passed:
            queue = self._awaited.pop(channel).current.queue
            log.warning("declaring queue '%s' again: the broker does not answer; going on without it", queue)
        if passed:
            for _ in range(min(LANES - len(self._awaited), len(self._left))):
                self._next(ReplayChannel(self._connection, self._endings))
        if not self._awaited:
            self._go_on()
            return
        self._seen = {operation for channel, operation in self._awaited.items() if channel.state == "open"}
        self._session.later(LOOK_EVERY_MS, self._look)

    def _close(self, channel: ReplayChannel) -> None:
        if channel.state == "open":
            self._connection.send([amqp.CloseChannel(channel.number)])


class Recovery:
    """What a session does about what it has lost."""

    def __init__(self, session: RecoveringSession, endings: Endings, policy: ReconnectPolicy | None) -> None:
        self._session = session
        self._endings = endings
        self._policy = policy
        self._failures: dict[SessionConnection, int] = {}
        self.topology: dict[str, QueueDeclaration] = {}
        """What was declared, in order: it exists again before a connection that has come back is used."""
        self.last_error: BackendError | None = None
        """What happened to a connection that is not back yet."""

    def retries(self, connection: SessionConnection, event: amqp.ConnectionLost) -> bool:
        """Have a lost connection opened again, if the policy says so; tell whether it will be."""
        error = lost_error(connection.name, event)
        if event.code in NOT_MENDED_BY_WAITING and event.stage != "open":
            return False
        failures = self._failures.get(connection, 0)
        delay_s = self._next_delay(failures, error, "connection")
        if delay_s is None:
            return False
        self._failures[connection] = failures + 1
        self.last_error = error
        assert self._policy is not None, "without a policy nothing is tried again"
        connection.republishes = self._policy.republish
        self._session.later(round(delay_s * 1000), connection.open)
        log.warning("%s; trying again in %.3g s (attempt %d)", error, delay_s, failures + 1)
        return True

    def connection_opened(self, connection: SessionConnection) -> None:
        """Declare what was declared, then resume."""

        def resume() -> None:
            self._failures.pop(connection, None)
            if not self._failures:
                self.last_error = None
            log.info("the %s connection is back", connection.name)
            connection.is_ready = True
            self._session.resume(connection)

        Replay(connection, self._session, self._endings, self.topology.values(), resume).begin()

    def consumer_lost(self, consumer: ConsumerChannel, error: BackendError) -> None:
        """Have a consumer opened again on its connection, if the policy says so, or end it."""
        is_missing = isinstance(error, ChannelClosedError) and error.code == NOT_FOUND
        delay_s = None
        if not (is_missing and consumer.queue not in self.topology):
            delay_s = self._next_delay(consumer.failures - 1, error, "consumer")
        if delay_s is None:
            consumer.end(error)
            return
        log.warning("%s; consuming again in %.3g s (attempt %d)", error, delay_s, consumer.failures)
        self._session.later(round(delay_s * 1000), partial(self._reopen, consumer, consumer.number))

    def _reopen(self, consumer: ConsumerChannel, lost: int) -> None:
        """Declare what was declared, then consume again in place of the channel that was lost."""

        def is_wanted() -> bool:
            # A connection that is lost meanwhile resumes its consumers itself when it is back, on other channels.
            return not consumer.has_ended and consumer.connection.is_ready and consumer.number == lost

        def reopen() -> None:
            if is_wanted():
                consumer.reopen()

        if is_wanted():
            Replay(consumer.connection, self._session, self._endings, self.topology.values(), reopen).begin()

    def _next_delay(
        self, failures: int, error: BackendError, rebuilding: Literal["connection", "consumer"]
    ) -> float | None:
        if self._policy is None:
            return None
        try:
            delay_s = self._policy.next_delay(Attempt(failures=failures, error=error, rebuilding=rebuilding))
            if isinstance(delay_s, timedelta):
                delay_s = delay_s.total_seconds()
            return None if delay_s is None else min(max(0.0, delay_s), MAX_DELAY_S)
        except Exception:
            log.exception("the reconnect policy failed; giving up")
            return None
