"""The producer: makes a job's envelope and puts it on its queue; a job id is returned once the broker has the job.

Owns the three ways to enqueue, each also for many jobs at once or for asyncio. Knows no handler.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self

from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.errors import InvalidConfigError, JobsNotConfirmedError
from queuey_rabbitmq.core.hooks import HookChain, Hooks
from queuey_rabbitmq.core.jobs import Job, JobType, job_of
from queuey_rabbitmq.core.queue_set import SetT, check_set

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from queuey_rabbitmq.core.backend import Backend

Delay = timedelta | float


class Producer(Generic[SetT]):
    """Enqueue the jobs of a queue set, whose queues it declares. Any thread.

    Every method returns when the broker has confirmed the job, and raises the backend's errors; the ones that end in
    `_async` are the same for asyncio, and keep no event loop waiting. A job of another set is refused before anything
    is sent, with InvalidConfigError.
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
        check_set("Producer", queues)
        self._backend = backend
        self._queues = queues
        self._hooks = HookChain(hooks)
        self._new_job_id = new_job_id
        self._lock = Lock()
        self._own_sender: tuple[int, ThreadPoolExecutor] | None = None

    # -------------------------------------------------------------------------------------- for threads

    def enqueue(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None = None) -> uuid.UUID:
        """Put a job on its queue; return its id.

        `priority` is from 0, ordinary work, to the queue's `max_priority`. `correlation_id` ties the job to a
        request, or to other jobs.
        """
        envelope = self._envelope(job, priority=priority, correlation_id=correlation_id)
        self._backend.publish(envelope)
        return self._enqueued(envelope)

    def enqueue_after(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Put a job on its queue after `delay` (seconds or timedelta), at priority 0; it waits as a retry does."""
        envelope = self._envelope(job, correlation_id=correlation_id)
        self._backend.publish(envelope, delay=delay)
        return self._enqueued(envelope, delay)

    def defer(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Hold a job for `delay` (seconds or timedelta); it comes at the queue's top priority, before the backlog."""
        envelope = self._held_envelope(job, correlation_id)
        self._backend.defer(envelope, delay)
        return self._enqueued(envelope, delay)

    def enqueue_many(
        self, jobs: Iterable[Job[SetT]], *, priority: int = 0, correlation_id: str | None = None
    ) -> list[uuid.UUID]:
        """Put many jobs on their queues, as many in flight at a time as the backend allows; return their ids in order.

        All are checked before the first is sent. Raises JobsNotConfirmedError, which says exactly which jobs were not
        confirmed and why; all others are enqueued.
        """
        envelopes = [self._envelope(job, priority=priority, correlation_id=correlation_id) for job in jobs]
        errors = self._backend.publish_many(envelopes)
        if self._hooks:
            for index, envelope in enumerate(envelopes):
                if index not in errors:
                    self._enqueued(envelope)
        job_ids = [envelope.job_id for envelope in envelopes]
        if errors:
            raise JobsNotConfirmedError(job_ids, errors)
        return job_ids

    # -------------------------------------------------------------------------------------- for asyncio

    async def enqueue_async(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None = None) -> uuid.UUID:
        """Do what `enqueue` does, for asyncio."""
        envelope = self._envelope(job, priority=priority, correlation_id=correlation_id)
        await self._confirmed(partial(self._backend.publish_nowait, envelope))
        return self._enqueued(envelope)

    async def enqueue_after_async(
        self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None
    ) -> uuid.UUID:
        """Do what `enqueue_after` does, for asyncio."""
        envelope = self._envelope(job, correlation_id=correlation_id)
        await self._confirmed(partial(self._backend.publish_nowait, envelope, delay=delay))
        return self._enqueued(envelope, delay)

    async def defer_async(self, job: Job[SetT], delay: Delay, *, correlation_id: str | None = None) -> uuid.UUID:
        """Do what `defer` does, for asyncio."""
        envelope = self._held_envelope(job, correlation_id)
        await self._confirmed(partial(self._backend.defer_nowait, envelope, delay))
        return self._enqueued(envelope, delay)

    async def enqueue_many_async(
        self, jobs: Iterable[Job[SetT]], *, priority: int = 0, correlation_id: str | None = None
    ) -> list[uuid.UUID]:
        """Do what `enqueue_many` does, for asyncio."""
        import asyncio

        return await asyncio.to_thread(self.enqueue_many, jobs, priority=priority, correlation_id=correlation_id)

    async def _confirmed(self, send: Callable[[], Future[None]]) -> None:
        """Send from a thread of the producer's own, as sending waits while too much is in flight; await the confirm."""
        import asyncio

        sent = await asyncio.wrap_future(self._sender().submit(send))
        await asyncio.wrap_future(sent)

    def _sender(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            pid = os.getpid()
            if self._own_sender is None or self._own_sender[0] != pid:  # its thread stays behind in a fork
                executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queuey producer")
                self._own_sender = (pid, executor)
            return self._own_sender[1]

    # ---------------------------------------------------------------------------------------- envelopes

    def _envelope(self, job: Job[SetT], *, priority: int = 0, correlation_id: str | None) -> Envelope:
        job_type = job_of(self._queues, type(job), doing="enqueuing")
        config = job_type.queue.config
        if priority and not (isinstance(priority, int) and 0 <= priority <= config.top_priority):
            raise InvalidConfigError(
                f"enqueuing {type(job).__qualname__}: priority: expected an integer from 0 to {config.top_priority}, "
                f"the max_priority of queue '{config.name}', got {priority!r}"
            )
        return self._new_envelope(job_type, job, priority, correlation_id)

    def _held_envelope(self, job: Job[SetT], correlation_id: str | None) -> Envelope:
        job_type = job_of(self._queues, type(job), doing="deferring")
        return self._new_envelope(job_type, job, job_type.queue.config.top_priority, correlation_id)

    def _new_envelope(
        self, job_type: JobType[Any, Any], job: Job[SetT], priority: int, correlation_id: str | None
    ) -> Envelope:
        return Envelope(
            job_id=self._new_job_id(),
            job_type=job_type.name,
            queue=job_type.queue.name,
            enqueued_at_ms=self._backend.now_ms(),
            payload=job,
            priority=priority,
            correlation_id=correlation_id,
        )

    def _enqueued(self, envelope: Envelope, delay: Delay | None = None) -> uuid.UUID:
        if self._hooks:
            wait = None if delay is None else timedelta(milliseconds=whole_ms(delay))
            self._hooks.tell("enqueued", envelope, wait)
        return envelope.job_id
