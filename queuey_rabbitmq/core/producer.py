"""The producer: makes a job's envelope and puts it on its queue; a job id is returned once the broker has the job.

Owns the three ways to enqueue, each also for many jobs at once or for asyncio. Knows no handler.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from queuey_rabbitmq.core.backend import LinedUp, check_backend
from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import (
    DeadlineExceededError,
    InvalidConfigError,
    JobsNotConfirmedError,
    QueueyError,
)
from queuey_rabbitmq.core.hooks import HookChain, Hooks
from queuey_rabbitmq.core.jobs import Job, JobType, job_of
from queuey_rabbitmq.core.queue_set import SetT, check_set

if TYPE_CHECKING:
    from queuey_rabbitmq.core.backend import Backend

T = TypeVar("T")
ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")

Delay = timedelta | float

JOBS_IN_LINE = 200
"""How many jobs `enqueue_many_async` has under way at a time: enough to keep a broker busy, and few enough that the
last in line is not late by its deadline where the backend has fewer in flight."""

JOBS_A_TURN = 50
"""After how many jobs it lets others on the event loop run."""


class Producer(Generic[SetT]):
    """Enqueue the jobs of a queue set, whose queues it declares. Any thread.

    Every method returns when the broker has confirmed the job, and raises the backend's errors; the ones that end in
    `_async` are the same for asyncio, and keep no event loop waiting, whatever the broker does. A job of another set is
    refused before anything is sent, with InvalidConfigError.
    """

    def __init__(
        self,
        backend: Backend,
        queues: type[SetT],
        *,
        hooks: Iterable[Hooks] = (),
        new_job_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._set_up(backend, queues, hooks, new_job_id)
        backend.declare(queue.config for queue in queues.__queues__.values())

    @classmethod
    def new_undeclared(
        cls,
        backend: Backend,
        queues: type[SetT],
        *,
        hooks: Iterable[Hooks] = (),
        new_job_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> Self:
        """Return a producer that declares nothing: `enqueue` needs the queue to exist, the others need it declared.

        For a program that must not create queues, or may not.
        """
        producer = cls.__new__(cls)
        producer._set_up(backend, queues, hooks, new_job_id)  # noqa: SLF001 -- its own class
        return producer

    def _set_up(
        self, backend: Backend, queues: type[SetT], hooks: Iterable[Hooks], new_job_id: Callable[[], uuid.UUID]
    ) -> None:
        check_backend("Producer", backend)
        check_set("Producer", queues)
        self._backend = backend
        self._queues = queues
        self._hooks = HookChain(hooks)
        self._new_job_id = new_job_id
        self._line = backend if isinstance(backend, LinedUp) else None

    # -------------------------------------------------------------------------------------- for threads

    def enqueue(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None = None) -> uuid.UUID:
        """Put a job on its queue; return its id.

        `priority` is from 0, ordinary work, to the queue's `max_priority`. `correlation_id` ties the job to a
        request, or to other jobs.
        """
        envelope = self._envelope(job, priority=priority, correlation_id=correlation_id)
        return self._send(envelope, None, self._backend.publish)

    def enqueue_after(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Put a job on its queue after `delay` (seconds or timedelta), at priority 0; it waits as a retry does."""
        envelope = self._delayed_envelope(job, delay, correlation_id)
        return self._send(envelope, delay, partial(self._backend.publish, delay=delay))

    def defer(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Hold a job for `delay` (seconds or timedelta); it comes at the queue's top priority, before the backlog."""
        envelope = self._held_envelope(job, delay, correlation_id)
        return self._send(envelope, delay, lambda held: self._backend.defer(held, delay))

    def enqueue_many(
        self, jobs: Iterable[Job[SetT]], *, priority: int = 0, correlation_id: str | None = None
    ) -> list[uuid.UUID]:
        """Put many jobs on their queues, as many in flight at a time as the backend allows; return their ids in order.

        All are checked before the first is sent. Raises JobsNotConfirmedError, which says exactly which jobs were not
        confirmed and why; all others are enqueued.
        """
        several = _several(jobs)
        envelopes = [self._envelope(job, priority=priority, correlation_id=correlation_id) for job in several]
        if self._hooks:
            envelopes = [self._hooks.with_headers(envelope, None) for envelope in envelopes]
        with self._failure_told(envelopes):
            errors = self._backend.publish_many(envelopes)
        return self._ended(envelopes, errors)

    def _send(self, envelope: Envelope, delay: Delay | None, send: Callable[[Envelope], None]) -> uuid.UUID:
        if not self._hooks:
            send(envelope)
            return envelope.job_id
        wait = _as_timedelta(delay)
        envelope = self._hooks.with_headers(envelope, wait)
        with self._failure_told([envelope]):
            send(envelope)
        return self._ended([envelope], {}, wait)[0]

    # -------------------------------------------------------------------------------------- for asyncio

    async def enqueue_async(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None = None) -> uuid.UUID:
        """Do what `enqueue` does, for asyncio.

        Where the `await` is cancelled, a job that was not sent yet is not sent any more; one that was sent may be
        enqueued.
        """
        envelope = self._envelope(job, priority=priority, correlation_id=correlation_id)
        if self._line is None:
            return await self._send_async(envelope, None, partial(_in_a_thread, self._backend.publish))
        return await self._send_async(envelope, None, self._line.publish_in_line)

    async def enqueue_after_async(
        self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None
    ) -> uuid.UUID:
        """Do what `enqueue_after` does, for asyncio, and `enqueue_async` where it is cancelled."""
        envelope = self._delayed_envelope(job, delay, correlation_id)
        if self._line is None:
            publish = partial(self._backend.publish, delay=delay)
            return await self._send_async(envelope, delay, partial(_in_a_thread, publish))
        return await self._send_async(envelope, delay, partial(self._line.publish_in_line, delay=delay))

    async def defer_async(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Do what `defer` does, for asyncio, and `enqueue_async` where it is cancelled."""
        envelope = self._held_envelope(job, delay, correlation_id)
        line = self._line
        if line is None:
            defer = self._backend.defer
            return await self._send_async(envelope, delay, partial(_in_a_thread, lambda held: defer(held, delay)))
        return await self._send_async(envelope, delay, lambda held: line.defer_in_line(held, delay))

    async def enqueue_many_async(
        self, jobs: Iterable[Job[SetT]], *, priority: int = 0, correlation_id: str | None = None
    ) -> list[uuid.UUID]:
        """Do what `enqueue_many` does, for asyncio; once a job was not done by its deadline, no more are sent.

        Where the `await` is cancelled, jobs that were not sent yet are not sent any more.
        """
        envelopes: list[Envelope] = []
        for place, job in enumerate(_several(jobs)):
            await _let_others_run(place)
            envelopes.append(self._envelope(job, priority=priority, correlation_id=correlation_id))
        if self._hooks:
            for place, envelope in enumerate(envelopes):
                await _let_others_run(place)
                envelopes[place] = self._hooks.with_headers(envelope, None)
        with self._failure_told(envelopes):
            if self._line is None:
                errors = await _in_a_thread(self._backend.publish_many, envelopes)
            else:
                errors = await _all_in_line(self._line, envelopes)
        return self._ended(envelopes, errors)

    async def _send_async(
        self, envelope: Envelope, delay: Delay | None, send: Callable[[Envelope], Future[None] | Awaitable[None]]
    ) -> uuid.UUID:
        wait = _as_timedelta(delay) if self._hooks else None
        envelope = self._hooks.with_headers(envelope, wait)
        with self._failure_told([envelope]):
            sent = send(envelope)
            await (_confirmed(sent) if isinstance(sent, Future) else sent)
        return self._ended([envelope], {}, wait)[0]

    # ---------------------------------------------------------------------------------------- envelopes

    def _envelope(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None) -> Envelope:
        job_type = self._type_of(job, doing="enqueuing")
        config = job_type.queue.config
        if priority and not (isinstance(priority, int) and 0 <= priority <= config.top_priority):
            raise InvalidConfigError(
                f"enqueuing {type(job).__qualname__}: priority: expected an integer from 0 to {config.top_priority}, "
                f"the max_priority of queue '{config.name}', got {priority!r}"
            )
        return self._new_envelope(job_type, job, priority, correlation_id)

    def _delayed_envelope(self, job: Job[SetT], delay: Delay, correlation_id: str | None) -> Envelope:
        whole_ms(delay, name=f"enqueuing {type(job).__qualname__}: delay")  # None would be no delay at all
        return self._envelope(job, correlation_id=correlation_id)

    def _held_envelope(self, job: Job[SetT], delay: Delay, correlation_id: str | None) -> Envelope:
        whole_ms(delay, name=f"deferring {type(job).__qualname__}: delay")  # before hooks are told of the job
        job_type = self._type_of(job, doing="deferring")
        return self._new_envelope(job_type, job, job_type.queue.config.top_priority, correlation_id)

    def _type_of(self, job: Job[SetT], *, doing: str) -> JobType[Any, Any]:
        if isinstance(job, type):
            name = job.__qualname__
            raise InvalidConfigError(f"{doing} {name}: expected a job, such as {name}(...), got the class itself")
        return job_of(self._queues, type(job), doing=doing)

    def _new_envelope(
        self, job_type: JobType[Any, Any], job: Job[SetT], priority: int, correlation_id: str | None
    ) -> Envelope:
        return Envelope(
            job_id=self._new_job_id(),
            job_type=job_type.name,
            queue=job_type.queue.config.name,
            enqueued_at_ms=self._backend.now_ms(),
            payload=job,
            priority=priority,
            correlation_id=correlation_id,
        )

    # -------------------------------------------------------------------------------------------- hooks

    @contextmanager
    def _failure_told(self, envelopes: Sequence[Envelope]) -> Iterator[None]:
        """Tell the hooks of jobs that were not enqueued, or that nobody waits for any more."""
        try:
            yield
        except BaseException as error:
            for envelope in envelopes:
                self._hooks.tell("enqueue_failed", envelope, error)
            raise

    def _ended(
        self, envelopes: Sequence[Envelope], errors: Mapping[int, QueueyError], delay: timedelta | None = None
    ) -> list[uuid.UUID]:
        """Tell the hooks how each ended; return the ids where all are enqueued."""
        if self._hooks:
            for place, envelope in enumerate(envelopes):
                if place in errors:
                    self._hooks.tell("enqueue_failed", envelope, errors[place])
                else:
                    self._hooks.tell("enqueued", envelope, delay)
        job_ids = [envelope.job_id for envelope in envelopes]
        if errors:
            raise JobsNotConfirmedError(job_ids, errors)
        return job_ids


def _several(jobs: Iterable[T]) -> Iterable[T]:
    if not isinstance(jobs, Iterable):
        raise InvalidConfigError(
            f"enqueuing many jobs: expected several, such as [{type(jobs).__qualname__}(...)], got {jobs!r}"
        )
    return jobs


def _as_timedelta(delay: Delay | None) -> timedelta | None:
    """Return a delay as hooks are told it; what no timedelta can say is the backend's to refuse."""
    if delay is None:
        return None
    ms = whole_ms(delay)
    try:
        return timedelta(milliseconds=ms)
    except OverflowError:
        return timedelta.max if ms > 0 else timedelta.min


async def _confirmed(future: Future[None]) -> None:
    import asyncio

    await asyncio.wrap_future(future)


async def _in_a_thread(work: Callable[[ArgumentT], ResultT], argument: ArgumentT) -> ResultT:
    import asyncio

    return await asyncio.to_thread(work, argument)


async def _let_others_run(place: int) -> None:
    """Give the event loop a turn, after every so many jobs."""
    import asyncio

    if place % JOBS_A_TURN == JOBS_A_TURN - 1:
        await asyncio.sleep(0)


async def _all_in_line(line: LinedUp, envelopes: Sequence[Envelope]) -> Mapping[int, QueueyError]:
    """Send many jobs, so many at a time; return the errors by the jobs' places."""
    errors: dict[int, QueueyError] = {}
    in_flight: deque[tuple[int, Future[None]]] = deque()
    refused: QueueyError | None = None

    async def end_oldest() -> None:
        nonlocal refused
        place, future = in_flight.popleft()
        try:
            await _confirmed(future)
        except QueueyError as error:
            errors[place] = error
            refused = error if isinstance(error, DeadlineExceededError) else refused

    try:
        for place, envelope in enumerate(envelopes):
            await _let_others_run(place)
            while in_flight and (in_flight[0][1].done() or len(in_flight) == JOBS_IN_LINE):
                await end_oldest()
            if refused is not None:
                errors[place] = refused
                continue
            try:
                in_flight.append((place, line.publish_in_line(envelope)))
            except QueueyError as error:
                errors[place] = error
        while in_flight:
            await end_oldest()
    finally:
        for _, future in in_flight:
            future.cancel()
    return errors
