"""A queuey backend that keeps its jobs in an SQLite file: for one machine, with the standard library alone.

It shows what the author of a backend writes. What a backend must do is said by `queuey_rabbitmq.Backend`, and checked
by `pytest_queuey.contract`.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from sqlite3 import DatabaseError
from types import TracebackType
from typing import Protocol, Self

from sqlite_store import NoSuchQueueError, Row, SqliteStore

from queuey_rabbitmq import (
    AlreadySettledError,
    BackendError,
    DelayTooLongError,
    DeliveryLost,
    Envelope,
    QueueConfig,
    QueueyError,
    SerializationError,
    ShutDownError,
    UnknownQueueError,
    UnroutableError,
    topology,
)

log = logging.getLogger("sqlite_backend")

REASON_MALFORMED = "malformed envelope"
_LOOK_EVERY = 0.02
"""Seconds between two looks at the file: other processes put jobs there without a word."""


class Clock(Protocol):
    """The time that a backend lives by."""

    def now_ms(self) -> int:
        """Return the present, in ms since the epoch."""

    def wait(self, changed: threading.Condition, until_ms: int | None) -> None:
        """Wait, with `changed` held, until it is notified or an instant has come; may return earlier."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the present."""
        return time.time_ns() // 1_000_000

    def wait(self, changed: threading.Condition, until_ms: int | None) -> None:
        """Wait for a moment, or until the instant where that is sooner."""
        left = _LOOK_EVERY if until_ms is None else (until_ms - self.now_ms()) / 1000
        changed.wait(max(0.0, min(left, _LOOK_EVERY)))


class SqliteBackend:
    """Jobs on queues in a file; any number of backends, of any number of processes, may share one."""

    deliveries_type: type[SqliteDeliveries]
    delivery_type: type[SqliteDelivery]

    def __init__(self, path: Path, *, clock: Clock | None = None, outlives_power_cuts: bool = True) -> None:
        self.clock = clock or SystemClock()
        self.store = SqliteStore(path, outlives_power_cuts=outlives_power_cuts)
        self.changed = threading.Condition()
        """Guards everything here, and says that something may have come."""
        self._declared: set[str] = set()
        self.consumers: set[SqliteDeliveries] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def now_ms(self) -> int:
        """Return the backend's clock, in ms since the epoch."""
        return self.clock.now_ms()

    def declare(self, queues: Iterable[QueueConfig]) -> None:
        """Make queues; those that are there keep their jobs."""
        queues = list(queues)
        with self.working("declaring queues"):
            for queue in queues:
                self._make_queue(queue)
        self._declared.update(queue.name for queue in queues)

    def publish(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> None:
        """Put a job on its queue, after `delay` where one is given; it is in the file when this returns."""
        due_ms = None if delay is None else self.due_ms("publishing", envelope.queue, delay)
        with self.working(f"publishing to queue '{envelope.queue}'"):
            self.put(envelope, due_ms)

    def publish_nowait(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        """Put a job on its queue; the future is done when this returns, as writing to a file takes no waiting."""
        return _done(lambda: self.publish(envelope, delay=delay))

    def publish_many(self, envelopes: Iterable[Envelope]) -> Mapping[int, QueueyError]:
        """Put many jobs on their queues; return the errors by the jobs' places, from 0."""
        errors: dict[int, QueueyError] = {}
        for number, envelope in enumerate(envelopes):
            try:
                self.publish(envelope)
            except QueueyError as error:
                errors[number] = error
        return errors

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Hold a job for `delay`; it comes back at the envelope's own priority."""
        self.publish(envelope, delay=delay)

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Hold a job for `delay`."""
        return self.publish_nowait(envelope, delay=delay)

    def consume(self, queue: QueueConfig, *more: QueueConfig) -> SqliteDeliveries:
        """Start to consume queues; jobs that consumers of ended processes had are given back first."""
        queues = [queue, *more]
        with self.working("consuming"):
            for each in queues:
                if not self.store.has_queue(each.name):
                    raise BackendError(f"consuming queue '{each.name}': there is no such queue. Declare it first.")
            for consumer in self.store.consumers():
                if not _is_alive(int(consumer.partition(" ")[0])):
                    self.store.give_back_all(consumer)
            deliveries = self.deliveries_type(self, queues)
            self.consumers.add(deliveries)
        return deliveries

    def close(self) -> None:
        """End consumers, give back what was not settled, and close the file. Idempotent."""
        with self.changed:
            try:
                for consumer in list(self.consumers):
                    consumer.close()
            finally:
                self._closed = True
                self.store.close()
                self.changed.notify_all()

    def _make_queue(self, queue: QueueConfig) -> None:
        self.store.make_queue(queue.name, top_priority=queue.top_priority, ttl_ms=queue.message_ttl_ms)

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        """Put a job on its queue, in a transaction that is open."""
        try:
            self.store.put(
                envelope.queue,
                envelope.to_bytes(),
                priority=envelope.priority,
                now_ms=self.now_ms(),
                due_ms=due_ms,
            )
        except NoSuchQueueError as error:
            raise UnroutableError(
                f"publishing to queue '{envelope.queue}': unroutable, there is no such queue. Declare it first."
            ) from error

    def due_ms(self, doing: str, queue: str, delay: timedelta | float) -> int:
        """Return when a job may come back, rounded up to a ms; refuse what cannot be held before anything happens."""
        if queue not in self._declared:
            raise UnknownQueueError(queue, doing=doing)
        return self.now_ms() + self._wait_ms(queue, delay)

    def _wait_ms(self, queue: str, delay: timedelta | float) -> int:
        ms = max(1, _rounded_up_ms(delay))
        if ms > topology.MAX_DEFERRAL_MS:
            raise DelayTooLongError(
                f"holding a job of queue '{queue}' for {ms} ms: at most {topology.MAX_DEFERRAL_MS} ms, which is what "
                "other backends can hold it for. Have the job deferred again when it comes back."
            )
        return ms

    @contextmanager
    def working(self, doing: str) -> Iterator[None]:
        """Do something with the file in one transaction; what it refuses is a BackendError."""
        with self.changed:
            if self._closed:
                raise ShutDownError(f"{doing}: the backend was closed")
            try:
                with self.store.transaction(self.now_ms()):
                    yield
            except DatabaseError as error:
                raise BackendError(f"{doing}: SQLite says: {error}") from error
            self.changed.notify_all()


class SqliteDeliveries:
    """The jobs of some queues: an iterator and a context manager; any thread may take from it."""

    def __init__(self, backend: SqliteBackend, queues: list[QueueConfig]) -> None:
        self._backend = backend
        self._queues = queues
        self._name = f"{os.getpid()} {uuid.uuid4()}"
        self._stopped = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SqliteDelivery:
        try:
            delivery = self.get()
        except ShutDownError:
            raise StopIteration from None
        assert delivery is not None, "a wait without a timeout ended empty-handed"
        return delivery

    def get(self, *, timeout: timedelta | float | None = None) -> SqliteDelivery | None:
        """Return the next delivery; None when `timeout` (seconds or timedelta) passes first."""
        backend = self._backend
        until_ms = None if timeout is None else backend.now_ms() + _rounded_up_ms(timeout)
        with backend.changed:
            while True:
                delivery = self._take()
                now_ms = backend.now_ms()
                if delivery is not None or (until_ms is not None and now_ms >= until_ms):
                    return delivery
                instants = [ms for ms in (until_ms, backend.store.next_due_ms()) if ms is not None]
                backend.clock.wait(backend.changed, min(instants, default=None))

    def get_ready(self) -> SqliteDelivery | None:
        """Return the next delivery that is ready now, None where there is none."""
        with self._backend.changed:
            return self._take()

    def stop(self) -> None:
        """Take no more: nothing is handed over before somebody asks for it, so nothing is left to be got."""
        with self._backend.changed:
            self._stopped = True
            self._backend.changed.notify_all()

    def close(self) -> None:
        """Give back everything that was handed out and not settled. Idempotent."""
        with self._backend.changed:
            if self._closed:
                return
            self._closed = self._stopped = True
            with self._backend.working("closing a consumer"):
                self._let_go()
            self._backend.consumers.discard(self)

    def _let_go(self) -> None:
        self._backend.store.give_back_all(self._name)

    def _take(self) -> SqliteDelivery | None:
        """Take the next job there is; bodies that are none are kept aside on the way."""
        if self._stopped:
            raise ShutDownError(f"consuming {', '.join(queue.name for queue in self._queues)}: the consumer was closed")
        with self._backend.working("consuming"):
            for queue in self._queues:
                while (row := self._next_row(queue)) is not None:
                    try:
                        envelope = Envelope.from_bytes(row.body)
                    except SerializationError as error:
                        self._set_aside(row, error)
                    else:
                        return self._backend.delivery_type(self._backend, self._name, row, envelope)
        return None

    def _next_row(self, queue: QueueConfig) -> Row | None:
        return self._backend.store.take(queue.name, self._name, prefetch=queue.prefetch)

    def _set_aside(self, row: Row, error: SerializationError) -> None:
        log.error("queue '%s': moving a body that is not an envelope to its dead letters: %s", row.queue, error)
        self._backend.store.bury(row.queue, row.body, REASON_MALFORMED)
        self._backend.store.remove(row.place, self._name)


class SqliteDelivery:
    """One job, waiting for exactly one outcome."""

    def __init__(self, backend: SqliteBackend, consumer: str, row: Row, envelope: Envelope) -> None:
        self.envelope = envelope
        self._backend = backend
        self._consumer = consumer
        self._row = row
        self._settled = False

    @property
    def queue(self) -> str:
        """Return the queue it was consumed from."""
        return self._row.queue

    @property
    def redelivered(self) -> bool:
        """Return whether the job was handed out before."""
        return self._row.redelivered

    def ack(self) -> None:
        """Report the job as done."""
        with self._settling("acknowledging"):
            self._remove()

    def give_back(self, *, after: timedelta | float = 0) -> None:
        """Put the job back to its place, `after` a while."""
        with self._settling("giving back"):
            due_ms = self._backend.now_ms() + max(0, _rounded_up_ms(after))
            if not self._backend.store.give_back(self._row.place, self._consumer, due_ms=due_ms):
                raise self._lost("giving back")

    def retry(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Put `envelope` on its queue to come back after `delay`, and remove this job, in one transaction."""
        self._put_off("retrying", envelope, delay)

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Put `envelope` on its queue to come back after `delay`, and remove this job, in one transaction."""
        self._put_off("deferring", envelope, delay)

    def dead_letter(self, reason: str) -> None:
        """Keep the job among the dead letters with `reason`, and remove it, in one transaction."""
        with self._settling("dead-lettering"):
            self._backend.store.bury(self.queue, self.envelope.to_bytes(), reason)
            self._remove()

    def _put_off(self, doing: str, envelope: Envelope, delay: timedelta | float) -> None:
        with self._settling(doing):
            self._backend.put(envelope, self._backend.due_ms(doing, envelope.queue, delay))
            self._remove()

    @contextmanager
    def _settling(self, doing: str) -> Iterator[None]:
        """Take an outcome; one that raises leaves the delivery unsettled, and the file as it was."""
        what = f"{doing} job {self.envelope.job_id} of queue '{self.queue}'"
        with self._backend.changed:
            if self._settled:
                raise AlreadySettledError(f"{what}: it was settled before")
            with self._backend.working(what):
                yield
            self._settled = True

    def _remove(self) -> None:
        if not self._backend.store.remove(self._row.place, self._consumer):
            raise self._lost("settling")

    def _lost(self, doing: str) -> DeliveryLost:
        return DeliveryLost(
            f"{doing} job {self.envelope.job_id} of queue '{self.queue}': its consumer was closed and has given it "
            "back, so it is delivered again"
        )


SqliteBackend.deliveries_type = SqliteDeliveries
SqliteBackend.delivery_type = SqliteDelivery


def _done(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()
    try:
        work()
    except QueueyError as error:
        future.set_exception(error)
    else:
        future.set_result(None)
    return future


def _rounded_up_ms(duration: timedelta | float) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return math.ceil(round(seconds * 1000, 6))  # 0.1 s is 100 ms, though 0.1 is a little more


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
