"""Whether a failed job is tried again, and when. Decides only; publishing and counting are done elsewhere.

Attempts count from 1. `max_attempts` is how often a job is tried in all, so a policy of one attempt never retries.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.errors import InvalidConfigError

RandomSource = Callable[[], float]
"""Returns numbers from 0 to 1, as `random.Random(7).random` does."""

_MAX_ATTEMPTS = 2**32 - 1
"""An envelope counts attempts in 32 bits."""

_LONGEST_MS = timedelta.max // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a job waits before its next attempt: `base_ms`, growing by `factor`, never over `max_ms`.

    With `jitter` the wait is drawn evenly from zero to that ("full jitter"), so that jobs which failed together do
    not come back together.
    """

    base_ms: int = 0
    factor: float = 1.0
    max_ms: int = 0
    jitter: bool = False

    def __post_init__(self) -> None:
        for name in ("base_ms", "max_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidConfigError(f"Backoff: {name}: expected an integer, got {value!r}")
        if not isinstance(self.jitter, bool):
            raise InvalidConfigError(f"Backoff: jitter: expected True or False, got {self.jitter!r}")
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise InvalidConfigError(f"Backoff: factor: expected a number, got {self.factor!r}")
        if self.base_ms < 0:
            raise InvalidConfigError(f"Backoff: a delay must not be negative, got {self.base_ms} ms")
        if self.base_ms > self.max_ms:
            raise InvalidConfigError(f"Backoff: base: {self.base_ms} ms is over max_delay, {self.max_ms} ms")
        if self.max_ms > _LONGEST_MS:
            raise InvalidConfigError(f"Backoff: max_delay: {self.max_ms} ms is longer than a timedelta can say")

    @classmethod
    def none(cls) -> Self:
        """Return the backoff that does not wait."""
        return cls()

    @classmethod
    def fixed(cls, delay: timedelta | float) -> Self:
        """Return the backoff that always waits `delay` (timedelta or seconds)."""
        ms = whole_ms(delay, name="Backoff: delay")
        return cls(base_ms=ms, max_ms=ms)

    @classmethod
    def exponential(
        cls,
        base: timedelta | float = 1,
        *,
        factor: float = 2,
        max_delay: timedelta | float = 300,
        jitter: bool = True,
    ) -> Self:
        """Return the backoff that waits `base` after the first attempt and `factor` times longer after each next."""
        return cls(
            base_ms=whole_ms(base, name="Backoff: base"),
            factor=factor,
            max_ms=whole_ms(max_delay, name="Backoff: max_delay"),
            jitter=jitter,
        )

    def ceiling_ms(self, failed_attempt: int) -> int:
        """Return the longest wait after attempt `failed_attempt`, in ms.

        Never raises: waits do not shrink, so a factor under 1 or NaN acts as 1; what overflows is the maximum.
        """
        growths = max(0, failed_attempt - 1)
        factor = max(1, self.factor)  # in this order: max() keeps its first argument against NaN
        if not growths or not self.base_ms or factor == 1:
            return self.base_ms
        try:
            return int(min(self.base_ms * float(factor) ** growths, self.max_ms))
        except OverflowError:
            return self.max_ms

    def delay(self, failed_attempt: int, *, random_source: RandomSource | None = None) -> timedelta:
        """Return how long to wait after attempt `failed_attempt`, in whole ms."""
        ms = self.ceiling_ms(failed_attempt)
        if self.jitter:
            draw = random_source if random_source is not None else random.random
            ms = min(int(draw() * (ms + 1)), ms)
        return timedelta(milliseconds=ms)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Try again after `delay`, or give up where it is None."""

    delay: timedelta | None

    @property
    def gives_up(self) -> bool:
        """Return whether there is no further attempt."""
        return self.delay is None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a job is tried, and how long it waits in between."""

    max_attempts: int = 1
    """Attempts in all, the first included."""
    backoff: Backoff = Backoff.none()  # noqa: RUF009 -- a frozen value

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= _MAX_ATTEMPTS:
            raise InvalidConfigError(
                f"RetryPolicy: max_attempts: expected an integer from 1 to {_MAX_ATTEMPTS}, got {attempts!r}"
            )
        if not isinstance(self.backoff, Backoff):
            raise InvalidConfigError(f"RetryPolicy: backoff: expected a Backoff, got {self.backoff!r}")

    @classmethod
    def none(cls) -> Self:
        """Return the policy that gives up after the first attempt."""
        return cls()

    @classmethod
    def fixed(cls, max_attempts: int, delay: timedelta | float) -> Self:
        """Return the policy that waits the same `delay` (timedelta or seconds) between attempts."""
        return cls(max_attempts, Backoff.fixed(delay))

    @classmethod
    def exponential(
        cls,
        max_attempts: int,
        base: timedelta | float = 1,
        *,
        factor: float = 2,
        max_delay: timedelta | float = 300,
        jitter: bool = True,
    ) -> Self:
        """Return the policy that waits longer after each attempt; the arguments are those of Backoff.exponential."""
        return cls(max_attempts, Backoff.exponential(base, factor=factor, max_delay=max_delay, jitter=jitter))

    def decide(self, failed_attempt: int, *, random_source: RandomSource | None = None) -> RetryDecision:
        """Decide what follows when attempt `failed_attempt` (from 1) has failed; never raises, whatever the number."""
        if failed_attempt >= self.max_attempts:
            return RetryDecision(None)
        return RetryDecision(self.backoff.delay(failed_attempt, random_source=random_source))
