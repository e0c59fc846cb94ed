"""What becomes of a job whose handler has ended: the exceptions that a handler says it with, and what follows.

Pure: decides, and tells nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.retry import RandomSource, RetryPolicy


class Retryable(Exception):  # noqa: N818 -- says what becomes of the job
    """The attempt failed, and another may succeed: the retry policy decides. Any other exception means the same.

    A `delay` (seconds or timedelta) replaces the policy's own wait this time; how often is tried stays the policy's.
    """

    delay: timedelta | float | None = None  # a subclass may have another, and an `__init__` that does not call ours

    def __init__(self, message: str = "", *, delay: timedelta | float | None = None) -> None:
        super().__init__(message)
        if delay is not None:
            whole_ms(delay, name="Retryable: delay")
            self.delay = delay


class Fatal(Exception):  # noqa: N818 -- says what becomes of the job
    """The job can never succeed: it goes to the dead queue at once, whatever the policy."""


class Deferred(Exception):  # noqa: N818 -- says what becomes of the job
    """Nothing is wrong with the job, it is only too early: it is held for `delay` (seconds or timedelta).

    It returns at the queue's top priority, the attempt unchanged.
    """

    reason = ""  # as above; a delay there must be

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        super().__init__(reason)
        whole_ms(delay, name="Deferred: delay")
        self.delay = delay
        self.reason = reason


class JobTimeoutError(Retryable, TimeoutError):
    """A handler took longer than its job's timeout."""


@dataclass(frozen=True, slots=True)
class Done:
    """The job is done."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt follows after `delay`."""

    delay: timedelta | float
    error: BaseException


@dataclass(frozen=True, slots=True)
class Hold:
    """The same attempt is made again after `delay`."""

    delay: timedelta | float
    reason: str


@dataclass(frozen=True, slots=True)
class Dead:
    """No attempt follows."""

    reason: str
    error: BaseException | None = None


Outcome = Done | Retry | Hold | Dead

DONE = Done()


def outcome_of(error: BaseException, *, attempt: int, policy: RetryPolicy, random_source: RandomSource) -> Outcome:
    """Decide what follows from what a handler raised at attempt `attempt`, from 1."""
    if isinstance(error, Deferred):
        return Hold(error.delay, error.reason)
    if isinstance(error, Fatal):
        return Dead(f"fatal: {error}" if type(error) is Fatal and error.args else f"fatal: {said(error)}", error)
    return failed(error, attempt=attempt, policy=policy, random_source=random_source)


def failed(error: BaseException, *, attempt: int, policy: RetryPolicy, random_source: RandomSource) -> Retry | Dead:
    """Decide what follows from the failure of attempt `attempt`, from 1."""
    decision = policy.decide(attempt, random_source=random_source)
    if decision.delay is None:
        return Dead(f"gave up after attempt {attempt} of {policy.max_attempts}: {said(error)}", error)
    own_delay = error.delay if isinstance(error, Retryable) else None
    return Retry(decision.delay if own_delay is None else own_delay, error)


def said(error: BaseException) -> str:
    """Return an error as one line: its type and what it says."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 -- whatever its __str__ does, the job must be settled
        text = f"(its text cannot be had: {type(broken).__name__})"
    kind = type(error)
    name = kind.__name__ if kind.__module__ in ("builtins", __name__) else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {text}" if text else name
