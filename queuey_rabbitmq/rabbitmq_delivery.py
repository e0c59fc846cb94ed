"""Deliveries of one queue, and the outcome of each: publish first, ack second, and no ack where the publish failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from queuey_rabbitmq import codec
from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import AlreadySettledError, DeliveryLost, SerializationError, ShutDownError
from queuey_rabbitmq.session.consuming import CHECK_PAUSES_S, ConsumerChannel, Ended, Settlement, lost_delivery

if TYPE_CHECKING:
    from queuey_rabbitmq.amqp import Delivered, ReadableProperties
    from queuey_rabbitmq.core.queue_config import QueueConfig
    from queuey_rabbitmq.options import RabbitMqOptions
    from queuey_rabbitmq.placement import Placed, Placement
    from queuey_rabbitmq.session.operations import PublishOperation
    from queuey_rabbitmq.session.session import Session

log = logging.getLogger("queuey_rabbitmq")

SET_ASIDE_AGAIN_MS = 5_000
"""How long a malformed message that could not be moved stays out before it goes back to its queue."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where deliveries come from, and what their outcomes go through."""

    queue: str
    session: Session
    placement: Placement
    consumer: ConsumerChannel
    has_dead_queue: bool


class RabbitMqDeliveries:
    """The jobs of some queues, as they come: an iterator and a context manager; any thread may take from it.

    A body that is not an envelope never comes out: it is moved to the dead queue with its reason, logged, and the
    next one follows.
    """

    def __init__(
        self, session: Session, placement: Placement, options: RabbitMqOptions, queues: Sequence[QueueConfig]
    ) -> None:
        self._session = session
        self._placement = placement
        self._has_dead_queue = options.declare_dead_letter_queues
        self._mailbox = session.mailbox()
        self._sources: dict[ConsumerChannel, _Source] = {}
        self._closed = False
        self._draining: set[ConsumerChannel] = set()
        try:
            for queue in queues:
                self._start(queue)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[RabbitMqDelivery]:
        return self

    def __next__(self) -> RabbitMqDelivery:
        try:
            delivery = self.get()
        except ShutDownError:
            raise StopIteration from None
        assert delivery is not None, "a wait without a timeout ended empty-handed"
        return delivery

    def get(self, *, timeout: timedelta | float | None = None) -> RabbitMqDelivery | None:
        """Return the next delivery; None when `timeout` (seconds or timedelta) passes first.

        Raises ShutDownError once the consumer or the backend is closed, and the BackendError that ended a consumer
        where the broker or the link did.
        """
        now_ms = self._session.monotonic_ms
        deadline_ms = None if timeout is None else now_ms() + whole_ms(timeout, name="timeout")
        while True:
            # What comes and is no delivery, however often, does not prolong the wait.
            item = self._mailbox.get(None if deadline_ms is None else max(0, deadline_ms - now_ms()))
            if item is None:
                return None
            if (delivery := self._opened(item)) is not None:
                return delivery

    def get_ready(self) -> RabbitMqDelivery | None:
        """Return the next delivery that is ready now, None where there is none; it takes a round trip to the broker.

        For one thread at a time. Raises as `get` does.
        """
        is_sure = False
        for pause_s in CHECK_PAUSES_S:
            delivery = self._get_arrived()
            if delivery is not None:
                return delivery
            more = [self._session.check(consumer) for consumer in self._sources]
            if any(more):
                sleep(pause_s)
            elif is_sure:
                break
            else:
                is_sure = True
        return self._get_arrived()

    def stop(self) -> None:
        """Take no more from the broker; what it has handed over can still be got, and then `get` raises ShutDownError.

        Returns at once.
        """
        self._draining = set(self._sources)
        for consumer in list(self._sources):
            self._session.drain(consumer)

    def close(self) -> None:
        """Stop consuming; what was handed out and not settled goes back to its queue. Idempotent."""
        self._closed = True
        self._session.stop(list(self._sources))

    def _get_arrived(self) -> RabbitMqDelivery | None:
        """Return the next delivery that is here."""
        while (item := self._mailbox.get(0)) is not None:
            if (delivery := self._opened(item)) is not None:
                return delivery
        return None

    def _opened(self, item: tuple[ConsumerChannel, Delivered | Ended]) -> RabbitMqDelivery | None:
        """Return the delivery in what has come, if there is one; raises the error of a consumer that has ended."""
        consumer, event = item
        if isinstance(event, Ended):
            if consumer in self._draining and isinstance(event.error, ShutDownError):
                self._draining.discard(consumer)
                if self._draining:
                    return None  # others may still have something
            self._mailbox.put(item)  # for every other thread that waits, and every later call
            raise event.error
        if self._closed or not consumer.is_current(event.channel):
            return None  # the broker has taken it back
        source = self._sources[consumer]
        try:
            envelope = Envelope.from_bytes(event.body, event.properties.headers)
        except SerializationError as error:
            self._set_aside(source, event, error)
            return None
        return RabbitMqDelivery(source, event, envelope)

    def _start(self, queue: QueueConfig) -> None:
        consumer = self._session.consume(queue.name, queue.prefetch, self._mailbox)
        self._sources[consumer] = _Source(queue.name, self._session, self._placement, consumer, self._has_dead_queue)

    def _set_aside(self, source: _Source, event: Delivered, error: SerializationError) -> None:
        """Move a malformed message out of the way, without making the stream wait for it."""
        queue, session, consumer = source.queue, source.session, source.consumer
        channel, tag = event.channel, event.delivery_tag
        if not source.has_dead_queue:
            log.error("queue '%s': rejecting a message that is not an envelope: %s", queue, error)
            with suppress(DeliveryLost):  # it comes again, and is rejected then
                session.settle(consumer, channel, tag, "reject")
            return
        log.error("queue '%s': moving a message that is not an envelope to its dead queue: %s", queue, error)
        placed = source.placement.malformed(queue, event.body, codec.REASON_MALFORMED)
        give_back = partial(consumer.settle, channel, tag, "requeue")
        moved: Future[None] = Future()
        moved.add_done_callback(partial(_log_unmoved, queue))
        session.publish(
            placed.message,
            unless=lambda: None if consumer.is_current(channel) else lost_delivery(queue),
            then=partial(consumer.settle, channel, tag, "ack"),
            otherwise=partial(session.later, SET_ASIDE_AGAIN_MS, give_back),
            future=moved,
            in_line=True,
        )


def _log_unmoved(queue: str, moved: Future[None]) -> None:
    error = moved.exception()
    if error is not None:
        log.warning(
            "queue '%s': a message that is not an envelope could not be moved to its dead queue: %s (it comes again)",
            queue,
            error,
        )


class RabbitMqDelivery:
    """One RabbitMQ message, decoded into an Envelope, waiting for exactly one outcome.

    A second outcome raises AlreadySettledError; one that comes after the delivery's channel is gone raises
    DeliveryLost, and the broker delivers the message again. retry, defer and dead_letter publish first and ack
    second; one that raises leaves the delivery unsettled, so another outcome may be chosen.
    """

    __slots__ = ("_event", "_lock", "_source", "_state", "envelope")

    def __init__(self, source: _Source, event: Delivered, envelope: Envelope) -> None:
        self.envelope = envelope
        """The job."""
        self._source = source
        self._event = event
        self._lock = Lock()
        self._state: Literal["unsettled", "settling", "settled"] = "unsettled"

    def __repr__(self) -> str:
        return f"<RabbitMqDelivery {self.envelope.job_id} from '{self.queue}', {self._state}>"

    @property
    def queue(self) -> str:
        """Return the queue it was consumed from."""
        return self._source.queue

    @property
    def redelivered(self) -> bool:
        """Return whether the broker has handed this message out before."""
        return self._event.redelivered

    @property
    def properties(self) -> ReadableProperties:
        """Return the message's basic properties, with pika's attribute names."""
        return self._event.properties

    @property
    def body(self) -> bytes:
        """Return the message's body as it came."""
        return self._event.body

    def ack(self) -> None:
        """Report the job as done; it is gone."""
        self._settle("ack")

    def give_back(self, *, after: timedelta | float = 0) -> None:
        """Put the job back on its queue, `after` a while (seconds or timedelta); it is delivered again as redelivered.

        It is settled at once: another outcome raises AlreadySettledError.
        """
        self._settle("requeue", after_ms=whole_ms(after, name="after"))

    def retry(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Publish `envelope` to come back after `delay` (seconds or timedelta), then ack this delivery.

        Raises UnknownQueueError where the queue was not declared through this backend, DelayTooLongError, and other
        BackendErrors; the delivery is unsettled then.
        """
        self._source.session.check_may_wait()
        self._source.session.wait(self._replace(self._retried(envelope, delay)))

    def retry_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Do what `retry` does, without waiting for the broker; the future ends as `retry` would.

        What can be refused without the broker is raised here. The ack follows the confirm on the link's own thread,
        where a callback of the future runs too: it must not block.
        """
        return self._replace_nowait(self._retried(envelope, delay))

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Publish `envelope` to come back after `delay` (seconds or timedelta), then ack this delivery.

        Raises as `retry` does.
        """
        self._source.session.check_may_wait()
        self._source.session.wait(self._replace(self._deferred(envelope, delay)))

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Do what `defer` does, without waiting for the broker; see `retry_nowait`."""
        return self._replace_nowait(self._deferred(envelope, delay))

    def dead_letter(self, reason: str) -> None:
        """Move the job to the dead queue with `reason`, then ack this delivery.

        Where dead-letter queues are off it is rejected instead, which drops it unless the queue has a dead-letter
        exchange of its own.
        """
        if self._source.has_dead_queue:
            self._source.session.check_may_wait()
            self._source.session.wait(self._replace(self._dead(reason)))
        else:
            self._settle("reject")

    def dead_letter_nowait(self, reason: str) -> Future[None]:
        """Do what `dead_letter` does, without waiting for the broker; see `retry_nowait`."""
        if self._source.has_dead_queue:
            return self._replace_nowait(self._dead(reason))
        self._settle("reject")
        rejected: Future[None] = Future()
        rejected.set_result(None)
        return rejected

    def _retried(self, envelope: Envelope, delay: timedelta | float) -> Callable[[], Placed]:
        return lambda: self._source.placement.retried(envelope, delay, doing="retrying a job")

    def _deferred(self, envelope: Envelope, delay: timedelta | float) -> Callable[[], Placed]:
        return lambda: self._source.placement.deferred(envelope, delay, doing="deferring a job")

    def _dead(self, reason: str) -> Callable[[], Placed]:
        return lambda: self._source.placement.dead(self.queue, self.envelope, reason)

    def _settle(self, settlement: Settlement, *, after_ms: int = 0) -> None:
        self._begin()
        try:
            self._source.session.settle(
                self._source.consumer, self._event.channel, self._event.delivery_tag, settlement, after_ms=after_ms
            )
        except BaseException:
            self._unsettled()
            raise
        self._state = "settled"

    def _replace_nowait(self, place: Callable[[], Placed]) -> Future[None]:
        future = self._source.session.future()
        self._replace(place, future=future)
        return future

    def _replace(self, place: Callable[[], Placed], *, future: Future[None] | None = None) -> PublishOperation:
        """Publish what takes the job's place, and ack in the turn that learns of the confirm."""
        source = self._source
        self._begin()
        try:
            placed = place()
            source.session.check_current(source.consumer, self._event.channel)
            return source.session.publish(
                placed.message,
                declaration=placed.declaration,
                unless=self._lost,
                then=self._acked,
                otherwise=self._unsettled,
                future=future,
            )
        except BaseException:
            self._unsettled()
            raise

    def _lost(self) -> BaseException | None:
        is_current = self._source.consumer.is_current(self._event.channel)
        return None if is_current else lost_delivery(self._source.queue)

    def _acked(self) -> BaseException | None:
        self._state = "settled"
        return self._source.consumer.settle(self._event.channel, self._event.delivery_tag, "ack")

    def _begin(self) -> None:
        with self._lock:
            if self._state != "unsettled":
                raise AlreadySettledError(
                    f"settling job {self.envelope.job_id} of queue '{self.queue}': it is {self._state} already; a "
                    "delivery takes exactly one outcome"
                )
            self._state = "settling"

    def _unsettled(self) -> None:
        self._state = "unsettled"
