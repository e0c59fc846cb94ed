"""Handlers: functions and objects that do jobs, each registered for one job type, checked when it is registered.

Calls nothing but the handler itself; what becomes of the job is `outcomes`'.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from queuey_rabbitmq.core.durations import positive_ms
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.jobs import DeclaredJob, JobT, JobType, declared
from queuey_rabbitmq.core.queue_set import WorkQueue
from queuey_rabbitmq.core.retry import RetryPolicy

if TYPE_CHECKING:
    from datetime import timedelta

    from queuey_rabbitmq.core.job_context import JobContext
    from queuey_rabbitmq.core.queue_config import QueueConfig

JobT_contra = TypeVar("JobT_contra", contravariant=True)
ResultT = TypeVar("ResultT")

RetryChoice = Callable[[JobT], RetryPolicy | None]
"""What a handler says about one payload; None leaves it to the other policies."""


class HandlerObject(Protocol[JobT_contra]):
    """A handler that is an object; a method `retry_policy(job)`, where it has one, is its own choice of a policy."""

    @property
    def handle(self) -> Callable[[JobT_contra], object] | Callable[[JobT_contra, JobContext], object]:
        """Do the job; takes the job, and its context where it wants one."""


AnyHandler = Callable[[JobT], object] | Callable[[JobT, "JobContext"], object] | HandlerObject[JobT]


@dataclass(frozen=True, slots=True)
class Handler:
    """What does the jobs of one type."""

    job_type: JobType[Any, Any]
    function: Callable[..., object]
    wants_context: bool
    choose_retry: Callable[[Any], RetryPolicy | None] | None
    timeout_ms: int | None

    def chosen_policy(self, payload: object) -> RetryPolicy | None:
        """Return the handler's own choice for a payload, if there is one; raises what its code raises."""
        chosen = None if self.choose_retry is None else self.choose_retry(payload)
        if chosen is not None and not isinstance(chosen, RetryPolicy):
            raise TypeError(f"the handler of {self.job_type.name!r} chose {chosen!r}, which is no RetryPolicy")
        return chosen


class Registering(Generic[JobT]):
    """Decorates a function as the handler of a job type, and returns it unchanged."""

    def __init__(self, register: Callable[[Any], None]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[JobT, JobContext], ResultT]) -> Callable[[JobT, JobContext], ResultT]: ...
    @overload
    def __call__(self, function: Callable[[JobT], ResultT]) -> Callable[[JobT], ResultT]: ...
    def __call__(self, function: Any) -> Any:
        """Register a function that takes the job, and its context where it wants one."""
        self._register(function)
        return function


def handles(
    job: DeclaredJob[Any, JobT], *, retry: RetryChoice[JobT] | None = None, timeout: timedelta | float | None = None
) -> Registering[JobT]:
    """Make a function the handler of a job type for every worker of its queue set.

    `retry` chooses a policy by the payload, and beats every other; `timeout` replaces the job's. A worker's own
    handler of the same job type is used instead of this one.
    """
    job_type = declared(job)
    handlers = job_type.queue.queue_set.__handlers__
    return Registering(lambda function: add_handler(handlers, job_type, function, retry=retry, timeout=timeout))


def add_handler(
    handlers: dict[str, Handler],
    job_type: JobType[Any, Any],
    handler: Any,
    *,
    retry: Callable[[Any], RetryPolicy | None] | None,
    timeout: timedelta | float | None,
) -> None:
    """Add a handler, a function or an object, to those of others. Raises InvalidConfigError."""
    where = f"handler of {job_type.payload.__qualname__}"
    other = handlers.get(job_type.name)
    # A module that is loaded again registers its handlers again.
    if other is not None and (other.job_type is job_type or _home(other.function) != _home(handler)):
        raise InvalidConfigError(f"{where}: {_shown(other.function)} is its handler already; a job type has one")
    if isinstance(handler, type):
        raise InvalidConfigError(f"{where}: expected a function or an object, got the class {handler.__qualname__}")
    function = getattr(handler, "handle", handler)
    if not callable(function):
        raise InvalidConfigError(f"{where}: expected a function, or an object with a method `handle`, got {handler!r}")
    choice = getattr(handler, "retry_policy", None) if retry is None else retry
    if choice is not None and not callable(choice):
        raise InvalidConfigError(
            f"{where}: retry: expected a function that chooses a policy by the job, got {choice!r}; one for every job "
            "is given to @job(retry=...) or Worker(retry=...)"
        )
    handlers[job_type.name] = Handler(
        job_type,
        function,
        _wants_context(function, where),
        choice,
        job_type.timeout_ms if timeout is None else positive_ms(timeout, name=f"{where}: timeout"),
    )


class RetryRules:
    """Which policy holds for a job: the override of its type, that of its queue, the job's own, the queue's own."""

    def __init__(self, configs: Mapping[str, QueueConfig], overrides: Mapping[Any, RetryPolicy]) -> None:
        self._configs = configs
        self._by_queue = {key.name: policy for key, policy in overrides.items() if isinstance(key, WorkQueue)}
        self._by_job = {
            declared(key).name: policy for key, policy in overrides.items() if not isinstance(key, WorkQueue)
        }
        self._found: dict[tuple[str, str], RetryPolicy] = {}

    def of_queue(self, queue: str) -> RetryPolicy:
        """Return the policy for jobs of a queue about which nothing else is known."""
        return self._by_queue.get(queue) or self._configs[queue].retry

    def of_job(self, job_type: JobType[Any, Any], queue: str) -> RetryPolicy:
        """Return the policy for jobs of a type that come from a queue."""
        key = (job_type.name, queue)
        policy = self._found.get(key)
        if policy is None:
            policy = (
                self._by_job.get(job_type.name)
                or self._by_queue.get(queue)
                or job_type.retry
                or self._configs[queue].retry
            )
            self._found[key] = policy
        return policy


def _wants_context(function: Callable[..., object], where: str) -> bool:
    """Tell from its signature whether a handler takes the context beside the job."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidConfigError(f"{where}: {_shown(function)} is a generator: calling it would do nothing")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # written in C, and tells nothing
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(required) > 2 or named_only or not (positional or takes_any):  # noqa: PLR2004 -- the job and its context
        raise InvalidConfigError(
            f"{where}: {_shown(function)}{inspect.signature(function)} must take the job, and may take its context "
            "after it, and nothing else"
        )
    return len(required) == 2 or (len(positional) > 1 and positional[1].name == "context")  # noqa: PLR2004 -- as above


def _home(function: Any) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def _shown(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
