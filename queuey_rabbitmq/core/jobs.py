"""Declaring jobs: a class of values, bound to one queue of one set under a name, each mistake an error at import.

A job is a dataclass, a msgspec struct or a pydantic model. Knows no handler and no broker.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from queuey_rabbitmq.core.durations import positive_ms
from queuey_rabbitmq.core.envelope import check_readable
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.queue_set import QueueSet, SetT, WorkQueue, check_text, snake_case
from queuey_rabbitmq.core.retry import RetryPolicy

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Never

JobT = TypeVar("JobT")
JobT_co = TypeVar("JobT_co", covariant=True)

MAX_NAME_LENGTH = 255
"""A job's name travels as the AMQP property `type`, a short string."""


@dataclass(frozen=True, slots=True, eq=False)
class JobType(Generic[SetT, JobT_co]):
    """What a declaration says about a job."""

    name: str
    """What handlers are found by, in every language."""
    payload: type[JobT_co]
    queue: WorkQueue[SetT]
    retry: RetryPolicy | None
    """What happens to a failed job; None leaves it to the queue."""
    timeout_ms: int | None
    """How long a handler may take."""

    def __repr__(self) -> str:
        return f"<JobType '{self.name}' of {self.queue!r}>"


class DeclaredJob(Protocol[SetT, JobT_co]):
    """A class that is declared as a job of a set: how types tell the jobs of one set from those of another."""

    def __declared__(self) -> JobType[SetT, JobT_co]:
        """Return the declaration."""


@dataclass_transform(frozen_default=True)
class Job(Generic[SetT]):
    """Say of a job's class to which queue set it belongs: `class SendEmail(Job[Emails])`, decorated with `job`.

    Its annotated attributes are the payload. A class that is no dataclass, msgspec struct or pydantic model yet
    becomes a frozen dataclass.
    """

    __slots__ = ()

    @classmethod
    def __declared__(cls) -> JobType[SetT, Self]:
        """Return the declaration. Raises InvalidConfigError where there is none."""
        return declared(cls)


class _Declare(Generic[SetT]):
    """Binds a class to a queue."""

    def __init__(self, queue: WorkQueue[SetT], options: dict[str, Any]) -> None:
        self._queue = queue
        self._options = options

    def __call__(self, payload: type[Job[SetT]]) -> Any:
        if not isinstance(payload, type):
            raise InvalidConfigError(f"job: expected a class to declare, got {payload!r}")
        return _declare(payload, self._queue, **self._options)


def job(
    queue: WorkQueue[SetT],
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    **unknown: Never,
) -> _Declare[SetT]:
    """Declare a class as a job of a queue.

    Its `name` defaults to that of the class in snake_case, `retry` to the queue's. `timeout` (seconds or timedelta)
    is how long a handler may take; what that can and cannot do is said in `Worker`. Raises InvalidConfigError, with
    the name of the class and the field, for what can never work.
    """
    if isinstance(queue, type) and not issubclass(queue, QueueSet):
        raise InvalidConfigError(
            f"{queue.__qualname__}: queue: missing; write @job(queue), such as @job(Emails.outgoing)"
        )
    return _Declare(queue, {"name": name, "retry": retry, "timeout": timeout, "unknown": unknown})


def declared(kind: Any) -> JobType[Any, Any]:
    """Return the declaration of a job's class: its name, queue, retry and timeout, for tools that read messages.

    `if envelope.job_type == declared(SendEmail).name: email = envelope.decode(SendEmail)`. Raises InvalidConfigError
    for a class that is not declared as a job.
    """
    found = getattr(kind, "__dict__", {}).get("__queuey_job__")
    if not isinstance(found, JobType):
        name = getattr(kind, "__qualname__", repr(kind))
        raise InvalidConfigError(f"{name} is not declared as a job; decorate the class with @job(queue)")
    return found


def job_of(queue_set: type[QueueSet], kind: Any, *, doing: str) -> JobType[Any, Any]:
    """Return the declaration of a job's class. Raises InvalidConfigError where it is none of that set."""
    job_type = declared(kind)
    if job_type.queue.queue_set is not queue_set:
        raise InvalidConfigError(
            f"{doing} {kind.__qualname__}: it is a job of {job_type.queue.queue_set.__qualname__}, and this is for "
            f"{queue_set.__qualname__}; nothing was done"
        )
    return job_type


def _declare(
    payload: type,
    queue: WorkQueue[Any],
    *,
    name: str | None,
    retry: RetryPolicy | None,
    timeout: timedelta | float | None,
    unknown: dict[str, Any],
) -> type:
    where = payload.__qualname__
    if unknown:
        raise InvalidConfigError(
            f"{where}: no such option: {', '.join(sorted(unknown))}; a job has name, retry, timeout"
        )
    if not isinstance(queue, WorkQueue):
        raise InvalidConfigError(f"{where}: queue: expected a queue of a set, such as Emails.outgoing, got {queue!r}")
    _check_marker(payload, queue, where)
    if "__queuey_job__" in payload.__dict__:
        raise InvalidConfigError(f"{where}: is {declared(payload)!r} already; a job has one queue and one name")
    name = snake_case(payload.__name__) if name is None else name
    check_text(f"{where}: name", name)
    if len(name.encode(errors="replace")) > MAX_NAME_LENGTH:
        raise InvalidConfigError(f"{where}: name: longer than {MAX_NAME_LENGTH} bytes: {name!r}")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidConfigError(f"{where}: retry: expected a RetryPolicy, got {retry!r}")
    timeout_ms = None if timeout is None else positive_ms(timeout, name=f"{where}: timeout")
    model = _as_model(payload, where)
    with suppress(NameError):  # a worker looks again, when the names that come later are known
        _check_fields(model, where)
    jobs = queue.queue_set.__jobs__
    other = jobs.get(name)
    # A module that is loaded again declares its jobs again.
    if other is not None and _home(other.payload) != _home(model):
        raise InvalidConfigError(
            f"{where}: name: '{name}' is the name of {other.payload.__qualname__} already in "
            f"{queue.queue_set.__qualname__}; handlers are found by it"
        )
    job_type: JobType[Any, Any] = JobType(name, model, queue, retry, timeout_ms)
    jobs[name] = job_type
    type.__setattr__(model, "__queuey_job__", job_type)
    return model


def check_fields(job_type: JobType[Any, Any]) -> None:
    """Raise InvalidConfigError where the fields of a job cannot be read from JSON, as a worker has to."""
    where = job_type.payload.__qualname__
    try:
        _check_fields(job_type.payload, where)
    except NameError as error:
        raise InvalidConfigError(f"{where}: cannot be read from JSON: {error}") from error


def _check_fields(payload: type, where: str) -> None:
    try:
        check_readable(payload)
    except InvalidConfigError as error:
        fields = get_type_hints(payload, include_extras=True)
        field = next((f"{name}: " for name, kind in fields.items() if not _is_readable(kind)), "")
        raise InvalidConfigError(f"{where}: {field}cannot be read from JSON: {error.__cause__ or error}") from error


def _is_readable(kind: Any) -> bool:
    try:
        check_readable(kind)
    except (InvalidConfigError, TypeError):
        return False
    return True


def _home(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _check_marker(payload: type, queue: WorkQueue[Any], where: str) -> None:
    """Compare the set that a `Job[...]` names with the queue's."""
    for kind in payload.__mro__:
        for named in kind.__dict__.get("__orig_bases__", ()):
            if get_origin(named) is Job and (queue_set := get_args(named)[0]) is not queue.queue_set:
                raise InvalidConfigError(
                    f"{where}: queue: {queue!r} is no queue of {getattr(queue_set, '__qualname__', queue_set)}, which "
                    f"{kind.__qualname__} names as its set"
                )


def _as_model(payload: type, where: str) -> type:
    """Return the class as one whose values can be written and read."""
    if issubclass(payload, msgspec.Struct) or hasattr(payload, "model_validate_json"):
        return payload
    if "__dataclass_fields__" in payload.__dict__:
        return payload
    if not issubclass(payload, Job):
        raise InvalidConfigError(
            f"{where}: is no dataclass, msgspec struct or pydantic model, and inherits from no Job"
        )
    try:
        return dataclasses.dataclass(frozen=True)(payload)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(f"{where}: cannot be a dataclass: {error}") from error
