"""When to try again to rebuild what the broker or the network took away. Keeps no state, and waits for nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from queuey_rabbitmq.core.errors import BackendError, InvalidConfigError

MAX_EXPONENT = 64
"""Beyond it every delay is at its ceiling, and a float would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a policy decides on."""

    failures: int
    """How often in a row it was tried in vain, 0 right after the loss."""
    error: BackendError
    """Why it was lost, or why the last try failed."""
    rebuilding: Literal["connection", "consumer"]
    """Whether a connection is rebuilt, or one consumer on a connection that is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Try again after delays that double from `base` to `max_delay`, each drawn from its upper half.

    Both are timedelta or seconds. It gives up after `max_failures` in a row, and never with None. A subclass decides
    otherwise by its own `next_delay`.
    """

    base: timedelta | float = 0.1
    max_delay: timedelta | float = 15.0
    max_failures: int | None = None
    republish: bool = True
    """Whether a message that was sent and not confirmed before the loss is sent again, with the same message id: the
    broker may get it twice. Without, its publish ends as OutcomeUnknownError."""
    random_source: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("base", "max_delay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
                raise InvalidConfigError(
                    f"ReconnectPolicy: {name}: expected a timedelta or a number of seconds, got {value!r}"
                )
        if not 0 < _seconds(self.base) <= _seconds(self.max_delay):
            raise InvalidConfigError(
                f"ReconnectPolicy: 0 < base <= max_delay must hold, got base={self.base!r} and "
                f"max_delay={self.max_delay!r}"
            )
        failures = self.max_failures
        if failures is not None and (isinstance(failures, bool) or not isinstance(failures, int) or failures < 0):
            raise InvalidConfigError(
                f"ReconnectPolicy: max_failures: expected an integer from 0, or None to go on, got {failures!r}"
            )
        if not isinstance(self.republish, bool):
            raise InvalidConfigError(f"ReconnectPolicy: republish: expected True or False, got {self.republish!r}")

    def next_delay(self, attempt: Attempt) -> timedelta | float | None:
        """Return how long to wait before the next try (timedelta or seconds), or None: what was lost ends in error."""
        if self.max_failures is not None and attempt.failures >= self.max_failures:
            return None
        ceiling = min(_seconds(self.max_delay), _seconds(self.base) * 2.0 ** min(attempt.failures, MAX_EXPONENT))
        return ceiling * self.random_source.uniform(0.5, 1.0)


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
