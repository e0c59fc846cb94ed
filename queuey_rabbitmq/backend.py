"""RabbitMqBackend: queuey's `Backend` on RabbitMQ.

Sits on a session and knows no link: the same code runs over a socket and on the broker model in memory. Where a job
goes is `placement`'s; what is done with a delivery is `rabbitmq_delivery`'s.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from queuey_rabbitmq.browsing import Browsing
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import InvalidConfigError, QueueNameTooLongError, QueueyError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.options import RabbitMqOptions
from queuey_rabbitmq.placement import Placed, Placement, check_kind
from queuey_rabbitmq.rabbitmq_delivery import RabbitMqDeliveries
from queuey_rabbitmq.session.operations import PublishOperation
from queuey_rabbitmq.session.session import Session, SessionSettings

if TYPE_CHECKING:
    from queuey_rabbitmq.amqp import Link
    from queuey_rabbitmq.pika_link import PikaLink


class RabbitMqBackend:
    """Keep jobs on a RabbitMQ; synchronous and thread-safe.

    Make one with `connect` or `with_options`. Every publish is mandatory and confirmed before it is reported as done,
    every call has a deadline, and everything that the broker or the link causes is a BackendError.
    """

    def __init__(self, link: Link, options: RabbitMqOptions | None = None) -> None:
        """Connect over a link; how FakeBroker makes a backend. Raises ConnectError."""
        self.options = options or RabbitMqOptions()
        self._link = link
        self._placement = Placement(self.options)
        self._session = Session(
            link,
            SessionSettings(
                connect_timeout_ms=self.options.connect_timeout_ms,
                operation_timeout_ms=self.options.operation_timeout_ms,
                close_timeout_ms=self.options.close_timeout_ms,
                max_in_flight=self.options.max_in_flight,
                max_in_flight_bytes=self.options.max_in_flight_bytes,
                reconnect=self.options.reconnect,
            ),
        )
        self._session.connect()

    @classmethod
    def connect(cls, url: str | Sequence[str]) -> Self:
        """Connect to the broker at an AMQP URL, as `with_options` does with all options left alone."""
        return cls.with_options(url, RabbitMqOptions())

    @classmethod
    def with_options(cls, url: str | Sequence[str], options: RabbitMqOptions) -> Self:
        """Connect to the broker at an AMQP URL, amqp://user:password@host:port/vhost or amqps://...

        A cluster's nodes are separated by commas, host1:port1,host2:port2, or each has a URL of its own. They are
        tried in the order given, and after a loss from the node behind the lost one on. Raises InvalidConfigError
        for a URL that cannot be used, and ConnectError, which says for each node at which stage it failed.
        """
        from queuey_rabbitmq.pika_link import LinkSettings, PikaLink

        check_kind(options, RabbitMqOptions, "connecting")
        link = PikaLink(
            LinkSettings(
                url=url,
                heartbeat=options.heartbeat,
                connect_timeout_ms=options.connect_timeout_ms,
                connection_name=options.connection_name,
                client_properties=options.connection_properties,
                ssl_context=options.ssl_context,
            )
        )
        backend = cls(link, options)
        weakref.finalize(backend, _warn_of_unclosed, link).atexit = False
        return backend

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def now_ms(self) -> int:
        """Return the clock that `Envelope.enqueued_at_ms` is stamped with, in ms since the epoch."""
        return self._link.now_ms()

    def declare(self, queues: Iterable[QueueConfig]) -> None:
        """Create each queue with its dead queue (and its retry queue, in the three-queue topology).

        Raises QueueNameTooLongError, and InvalidConfigError where one has the name of another's dead, retry or hold
        queue, before anything is created; and DeclareRefusedError with what differs where the broker has such a queue
        with other properties; queues before that one stay declared.
        """
        configs = _configs(queues)
        planned = [self._placement.declarations(config) for config in configs]
        self._placement.check_apart(configs)
        for config, declarations in zip(configs, planned, strict=True):
            self._session.declare(declarations)
            self._placement.declared([config])

    def publish(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> None:
        """Put a job on its queue; return when the broker has confirmed it.

        With a `delay` (seconds or timedelta) the job waits like a retry first; a delay of zero or less waits one
        granularity step. Raises UnroutableError where the queue does not exist, UnknownQueueError for a delay on a
        queue not declared here, DelayTooLongError, and other BackendErrors.
        """
        self._link.check_may_wait()
        self._session.wait(self._publish(self._place(envelope, delay)))

    def publish_nowait(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        """Put a job on its queue; the future ends with the broker's confirm, or with the error of `publish`.

        Waits only while `max_in_flight` publishes are in flight. What can be refused without the broker is raised
        here. A callback of the future runs on the link's own thread: it must not block.
        """
        return self._publish_nowait(self._place(envelope, delay))

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Hold a job for `delay` (seconds or timedelta), after which it is on its queue at its own priority.

        Raises as `publish` with a delay does.
        """
        self._link.check_may_wait()
        self._session.wait(self._publish(self._hold(envelope, delay)))

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Hold a job for `delay` (seconds or timedelta); the future ends as that of `publish_nowait` does."""
        return self._publish_nowait(self._hold(envelope, delay))

    def publish_in_line(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        """Put a job on its queue and wait for nothing: while too much is in flight it stands in line.

        The future ends as that of `publish_nowait` does, by the same deadline however long the line is. Cancelled
        before the job was sent, it takes the job out of the line.
        """
        return self._publish_nowait(self._place(envelope, delay), in_line=True)

    def defer_in_line(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Hold a job for `delay` (seconds or timedelta) and wait for nothing, as `publish_in_line` does."""
        return self._publish_nowait(self._hold(envelope, delay), in_line=True)

    def publish_many(self, envelopes: Iterable[Envelope]) -> dict[int, QueueyError]:
        """Put many jobs on their queues, many in flight at a time; return the errors by the jobs' places, from 0.

        When one cannot even be sent, within its deadline or because the backend was closed, no more are, and have the
        same error.
        """
        self._link.check_may_wait()
        errors: dict[int, QueueyError] = {}
        in_flight: deque[tuple[int, PublishOperation]] = deque()
        refused: QueueyError | None = None
        for place, envelope in enumerate(envelopes):
            if refused is not None:
                errors[place] = refused
                continue
            try:
                in_flight.append((place, self._publish(self._place(envelope, None))))
            except QueueNameTooLongError as error:
                errors[place] = error
            except QueueyError as error:
                errors[place] = refused = error
            while in_flight and in_flight[0][1].future.done():
                self._end(*in_flight.popleft(), errors)
        while in_flight:
            self._end(*in_flight.popleft(), errors)
        return errors

    def consume(self, queue: QueueConfig, *more: QueueConfig) -> RabbitMqDeliveries:
        """Start to consume one or more queues; of each, at most its `prefetch` deliveries are unsettled at a time."""
        for config in (queue, *more):
            check_kind(config, QueueConfig, "consuming")
        return RabbitMqDeliveries(self._session, self._placement, self.options, (queue, *more))

    def browse(self, queue: str) -> Browsing:
        """Start to look through any queue, whatever its messages are; they go back in order when it is closed."""
        return Browsing(self._session, queue)

    def close(self) -> None:
        """End consumers, wait for what is in flight, and close the connections, all within close_timeout.

        What was unacked goes back to its queue; what is not confirmed by then fails and is reported in the log.
        Idempotent.
        """
        self._session.close()

    @property
    def stale_settlements(self) -> int:
        """Return how many outcomes came after the channel of their delivery was gone."""
        return self._session.stale_settlements

    def _hold(self, envelope: Envelope, delay: timedelta | float) -> Placed:
        return self._placement.deferred(envelope, delay, doing="deferring a job")

    def _place(self, envelope: Envelope, delay: timedelta | float | None) -> Placed:
        if delay is None:
            return self._placement.now(envelope, doing="publishing a job")
        return self._placement.retried(envelope, delay, doing="publishing a job with a delay")

    def _end(self, place: int, operation: PublishOperation, errors: dict[int, QueueyError]) -> None:
        try:
            if operation.future.done():  # as most have by then, and asking costs less than waiting
                operation.future.result()
            else:
                self._session.wait(operation)
        except QueueyError as error:
            errors[place] = error

    def _publish(self, placed: Placed) -> PublishOperation:
        return self._session.publish(placed.message, declaration=placed.declaration)

    def _publish_nowait(self, placed: Placed, *, in_line: bool = False) -> Future[None]:
        future = self._session.future()
        self._session.publish(placed.message, declaration=placed.declaration, future=future, in_line=in_line)
        return future


def _configs(queues: Iterable[QueueConfig]) -> list[QueueConfig]:
    if isinstance(queues, (QueueConfig, str)):
        raise InvalidConfigError(f"declaring queues: expected several, such as [QueueConfig('emails')], got {queues!r}")
    configs = list(queues)
    for config in configs:
        check_kind(config, QueueConfig, "declaring queues")
    return configs


def _warn_of_unclosed(link: PikaLink) -> None:
    """Warn that nothing is left to close a backend by; it stays open until the process ends, for what still uses it."""
    if link.is_running:
        warnings.warn(
            "a RabbitMqBackend was dropped without being closed: its thread and its connections stay. Call close(), or "
            "use it in a with statement",
            ResourceWarning,
            stacklevel=2,
        )
