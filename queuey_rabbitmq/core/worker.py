"""The worker: takes jobs from the queues of a set and has them handled, in threads or in the caller's own.

Owns the threads, the life from the first delivery to the last, and the handlers' registration. What becomes of one
job is `dispatcher`'s.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from queuey_rabbitmq.core.attempt import TimeoutWatch
from queuey_rabbitmq.core.backend import check_backend
from queuey_rabbitmq.core.dispatcher import Dispatcher, Rules
from queuey_rabbitmq.core.durations import positive_ms, whole_ms
from queuey_rabbitmq.core.errors import DeadlineExceededError, InvalidConfigError, QueueyError, ShutDownError
from queuey_rabbitmq.core.event_loop import EventLoop
from queuey_rabbitmq.core.handlers import AnyHandler, Handler, Registering, RetryChoice, RetryRules, add_handler
from queuey_rabbitmq.core.hooks import HookChain, Hooks
from queuey_rabbitmq.core.jobs import DeclaredJob, JobT, check_fields, job_of
from queuey_rabbitmq.core.outstanding import Outstanding
from queuey_rabbitmq.core.queue_set import QueueSet, SetT, WorkQueue, check_set
from queuey_rabbitmq.core.real_time import monotonic_s
from queuey_rabbitmq.core.retry import RandomSource, RetryPolicy
from queuey_rabbitmq.core.stop_signals import stop_signals

if TYPE_CHECKING:
    from queuey_rabbitmq.core.backend import Backend, Deliveries

log = logging.getLogger("queuey_rabbitmq.worker")

_THREAD_ENDED = "a thread has ended"
_LOOK = "somebody wants it to look again"

GRACE_S = 30
"""How long a shutdown waits for what runs, where nothing else is said."""

IDLE_ENDS_WITHIN_S = 0.2
"""How long a thread without a job may take to end once there are no more deliveries."""

LOOKS_EVERY_S = 1.0
"""How long a signal may wait to be seen where it ends no wait: it came right before one began, or to another thread."""


class Worker(Generic[SetT]):
    """Handle the jobs of a queue set, whose queues it declares; a context manager.

    `only` names the queues to consume, all of the set without it. `concurrency` bounds the jobs that are handled at
    a time, by default by the sum of the queues' prefetches. `retry` overrides policies by job type or by queue. Of
    the policies for a job, the first that there is holds: the handler's choice for the payload, the override of the
    job type, the override of the queue, the job's, the queue's.

    Handlers that are functions run in the worker's threads, coroutines on its own event loop. When a job's timeout
    passes, a coroutine is cancelled; one that goes on for five more seconds all the same is left to itself. A thread
    cannot be stopped from outside: its attempt counts as failed at once, and so the job may be tried again elsewhere
    while the first handler still runs; the thread takes no other job until that returns. In `step` and in a burst
    nobody watches meanwhile; a handler that took too long has failed when it returns.

    `grace` (seconds or timedelta) is how long a shutdown waits for what runs, `settle_backoff` how long a job stays
    out whose outcome the broker could not be told.
    """

    def __init__(  # noqa: PLR0913 -- each is one thing to decide about a worker, and has a default
        self,
        backend: Backend,
        queues: type[SetT],
        *,
        only: Iterable[WorkQueue[SetT]] | None = None,
        concurrency: int | None = None,
        retry: Mapping[DeclaredJob[SetT, Any] | WorkQueue[SetT], RetryPolicy] | None = None,
        hooks: Iterable[Hooks] = (),
        grace: timedelta | float = GRACE_S,
        settle_backoff: timedelta | float = 5,
        random_source: RandomSource = random.random,
    ) -> None:
        check_backend("Worker", backend)
        check_set("Worker", queues)
        self._queues = queues
        self._configs = {queue.name: queue.config for queue in _chosen(queues, only)}
        self._concurrency = _concurrency(concurrency, sum(config.prefetch for config in self._configs.values()))
        self._grace_ms = _grace_ms(grace, "Worker: grace")
        self._own_handlers: dict[str, Handler] = {}
        self._handlers: dict[str, Handler] = {}
        self._backend = backend
        self._loop = EventLoop()
        self._rules = Rules(
            configs=self._configs,
            handlers=self._handlers,
            retry=RetryRules(self._configs, _checked_overrides(queues, retry or {})),
            hooks=HookChain(hooks),
            random_source=random_source,
            settle_backoff_ms=positive_ms(settle_backoff, name="Worker: settle_backoff"),
        )
        self._dispatcher = Dispatcher(backend, self._rules, self._loop)
        self._deliveries: Deliveries | None = None
        self._events: SimpleQueue[str] = SimpleQueue()
        self._runs = threading.Lock()
        self._stopping = False
        self._ends_at: float | None = None
        self._failures: list[BaseException] = []
        backend.declare(queue.config for queue in queues.__queues__.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    @property
    def settle_failures(self) -> int:
        """Return how many outcomes the broker was not told; each of these jobs is delivered again.

        An ack that was sent and is lost with its connection is none of them, as the broker answers no ack.
        """
        return self._dispatcher.settle_failures

    # ---------------------------------------------------------------------------------------- handlers

    def handler(
        self,
        job: DeclaredJob[SetT, JobT],
        *,
        retry: RetryChoice[JobT] | None = None,
        timeout: timedelta | float | None = None,
    ) -> Registering[JobT]:
        """Make a function, async or not, the handler of a job type in this worker; it takes the job, and its context.

        `retry` chooses a policy by the payload; `timeout` replaces the job's. Raises InvalidConfigError for a second
        handler of a job type, and for a job of another set.
        """
        job_of(self._queues, job, doing="registering a handler of")
        return Registering(lambda function: self.register(job, function, retry=retry, timeout=timeout))

    def register(
        self,
        job: DeclaredJob[SetT, JobT],
        handler: AnyHandler[JobT],
        *,
        retry: RetryChoice[JobT] | None = None,
        timeout: timedelta | float | None = None,
    ) -> None:
        """Register a handler as `handler` does; it may be an object with a method `handle`.

        Such an object may have a method `retry_policy(job)`, its own choice of a policy.
        """
        job_type = job_of(self._queues, job, doing="registering a handler of")
        add_handler(self._own_handlers, job_type, handler, retry=retry, timeout=timeout)
        self._handlers[job_type.name] = self._own_handlers[job_type.name]

    # ------------------------------------------------------------------------------------- its own life

    def step(self, *, timeout: timedelta | float = 0) -> bool:
        """Handle at most one job, in the caller's thread; tell whether there was one.

        Waits up to `timeout` (seconds or timedelta) for a job; without one it takes only what is ready now. What
        the worker has been handed stays with it between steps, until `close`. Not for a worker that runs.
        """
        if self._stopping:
            return False
        deliveries = self._deliveries if self._deliveries is not None else self._consume()
        delivery = deliveries.get(timeout=timeout) if timeout else deliveries.get_ready()
        if delivery is None:
            return False
        self._dispatcher.handle(delivery)
        return True

    def run(self, *, burst: bool = False, signals: bool = True, close_backend: bool = False) -> None:
        """Handle jobs until `shutdown`, or a SIGTERM or SIGINT where it runs in the main thread.

        In a `burst` it handles what is ready, and what becomes ready meanwhile, in the caller's thread, and returns
        when nothing is. Raises the BackendError that ended a consumer, which names its queue, when what ran has
        ended. The backend is left open unless `close_backend`.
        """
        if not self._runs.acquire(blocking=False):
            raise RuntimeError("this worker runs already")
        with ExitStack() as leaving:
            leaving.callback(self._runs.release)
            if close_backend:
                leaving.callback(self._backend.close)
            leaving.callback(self.close)
            if signals and not burst:
                leaving.enter_context(stop_signals(self.shutdown, lambda: self.shutdown(grace=0)))
            if not burst:
                self._serve()
            while burst and self.step():
                pass

    def shutdown(self, *, grace: timedelta | float | None = None) -> None:
        """Ask `run` to end, from any thread or a signal handler; it returns at once.

        The worker takes no more from the broker, handles what it was handed, and waits for what runs, for `grace`
        (seconds or timedelta, by default the worker's own); the rest goes back to the broker then. A worker that was
        shut down does not run again.
        """
        grace_ms = self._grace_ms if grace is None else _grace_ms(grace, "shutdown: grace")
        ends_at = monotonic_s() + grace_ms / 1000
        self._ends_at = ends_at if self._ends_at is None else min(self._ends_at, ends_at)
        self._stopping = True
        self._events.put(_LOOK)

    def close(self) -> None:
        """Give back what was taken and not handled, and end the event loop. Idempotent; `step` starts anew."""
        deliveries, self._deliveries = self._deliveries, None
        try:
            if deliveries is not None:
                deliveries.close()
        finally:
            self._loop.close()

    # ------------------------------------------------------------------------------------------ threads

    def _consume(self) -> Deliveries:
        if self._deliveries is None:
            # The worker's own come last: they are used instead of those that every worker of the set has.
            self._handlers.update(self._queues.__handlers__ | self._own_handlers)
            for handler in self._handlers.values():
                check_fields(handler.job_type)
            self._warn_of_missing_handlers()
            self._loop.open()
            self._deliveries = self._backend.consume(*self._configs.values())
        return self._deliveries

    def _warn_of_missing_handlers(self) -> None:
        jobs = self._queues.__jobs__.values()
        missing = [job.name for job in jobs if job.queue.name in self._configs and job.name not in self._handlers]
        if missing:
            log.warning(
                "worker of %s: no handler for %s; such jobs will be dead-lettered",
                self._queues.__qualname__,
                ", ".join(missing),
            )

    def _serve(self) -> None:
        """Start the threads, and look after them until the last has ended or the grace is over."""
        if self._stopping:
            return
        watch = TimeoutWatch(wake=lambda: self._events.put(_LOOK), overran=self._dispatcher.overran)
        self._dispatcher.watch = watch
        outstanding = Outstanding(wake=lambda: self._events.put(_LOOK))
        self._dispatcher.outstanding = outstanding
        deliveries = self._consume()
        threads = [
            threading.Thread(target=self._work, args=(deliveries,), name=f"queuey worker {number}", daemon=True)
            for number in range(1, self._concurrency + 1)
        ]
        log.info("worker of %s: consuming %s", self._queues.__qualname__, ", ".join(self._configs))
        for thread in threads:
            thread.start()
        self._look_after(len(threads), deliveries, watch, outstanding)
        self._dispatcher.watch = self._dispatcher.outstanding = None
        self.close()
        ends_at = monotonic_s() + IDLE_ENDS_WITHIN_S
        for thread in threads:
            thread.join(max(0.0, ends_at - monotonic_s()))
        while outstanding and monotonic_s() < ends_at:
            with suppress(Empty):
                self._events.get(timeout=max(0.0, ends_at - monotonic_s()))
            outstanding.look()
        if running := sum(thread.is_alive() for thread in threads):
            log.warning(
                "worker of %s: %d jobs still run after the grace of the shutdown; they went back to the broker",
                self._queues.__qualname__,
                running,
            )
        if self._failures:
            raise self._failures[0]

    def _work(self, deliveries: Deliveries) -> None:
        """Handle jobs until there are no more: what each thread does."""
        try:
            while True:
                try:
                    delivery = deliveries.get()
                except DeadlineExceededError:
                    continue  # nobody moves virtual time: a worker waits for jobs as long as it takes
                assert delivery is not None, "a wait without a timeout ended empty-handed"
                self._dispatcher.handle(delivery)
        except ShutDownError as error:
            if not self._stopping:
                self._failures.append(error)  # somebody closed the backend under the worker
        except BaseException as error:  # noqa: BLE001 -- `run` raises it
            self._failures.append(error)
        finally:
            self._events.put(_THREAD_ENDED)

    def _look_after(self, alive: int, deliveries: Deliveries, watch: TimeoutWatch, outstanding: Outstanding) -> None:
        is_told = False
        while alive or outstanding:
            left = [] if self._ends_at is None else [max(0.0, self._ends_at - monotonic_s())]
            if (soonest := watch.seconds_left()) is not None:
                left.append(soonest)
            try:
                event = self._events.get(timeout=min([*left, LOOKS_EVERY_S]))
            except Empty:
                event = _LOOK
            if event is _THREAD_ENDED:
                alive -= 1
            watch.look()
            outstanding.look()
            if self._failures and not self._stopping:
                self.shutdown()
            if self._stopping and not is_told:
                is_told = True
                with suppress(QueueyError):  # it has ended by itself
                    deliveries.stop()
                log.info("worker of %s: shutting down; it takes no more jobs", self._queues.__qualname__)
            if self._ends_at is not None and monotonic_s() >= self._ends_at:
                return


def _chosen(queues: type[SetT], only: Iterable[WorkQueue[SetT]] | None) -> list[WorkQueue[SetT]]:
    """Return the queues to consume, each once, in the order of the set."""
    every = list(queues.__queues__.values())
    if only is None:
        return every
    try:
        wanted = list(only)
    except TypeError:
        raise InvalidConfigError(f"Worker: only: expected a list of queues, got {only!r}") from None
    for queue in wanted:
        if queue not in every:
            raise InvalidConfigError(f"Worker: only: {queue!r} is no queue of {queues.__qualname__}")
    if not wanted:
        raise InvalidConfigError("Worker: only: names no queue; leave it out to consume all")
    return [queue for queue in every if queue in wanted]


def _concurrency(given: int | None, prefetches: int) -> int:
    if given is None:
        return prefetches
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidConfigError(f"Worker: concurrency: expected an integer from 1, got {given!r}")
    return given


def _grace_ms(grace: timedelta | float, name: str) -> int:
    ms = whole_ms(grace, name=name)
    if ms < 0:
        raise InvalidConfigError(f"{name}: must not be negative, got {grace!r}")
    return ms


def _checked_overrides(queues: type[QueueSet], overrides: Mapping[Any, RetryPolicy]) -> Mapping[Any, RetryPolicy]:
    if not isinstance(overrides, Mapping):
        raise InvalidConfigError(f"Worker: retry: expected policies by job type or queue, got {overrides!r}")
    for key, policy in overrides.items():
        if isinstance(key, WorkQueue):
            _chosen(queues, [key])
        else:
            job_of(queues, key, doing="overriding the retry policy of")
        if not isinstance(policy, RetryPolicy):
            raise InvalidConfigError(f"Worker: retry: expected a RetryPolicy for {key!r}, got {policy!r}")
    return overrides
