"""Durations as people write them, turned into the whole milliseconds that brokers count in.

A duration is a timedelta, or a number of seconds. Everything is rounded up, on exact numbers: a float is taken at the
decimal that Python prints for it, so 0.1 s is 100 ms and 29.2 s is 29200 ms. It refuses what is no length of time:
NaN, infinity, booleans and anything that is not a number.
"""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Context, Decimal
from functools import lru_cache

from queuey_rabbitmq.core.errors import InvalidConfigError

_EXACT = Context(prec=40)
"""Holds the 17 digits of any float without rounding, whatever the caller's decimal context says."""

_MS_PER_DAY = 86_400_000
_MS_PER_SECOND = 1000
_US_PER_MS = 1000


def whole_ms(duration: timedelta | float, *, name: str = "duration") -> int:
    """Return a duration (timedelta or seconds) in whole ms, rounded up; negative durations stay negative.

    Raises InvalidConfigError, which calls the duration by `name`.
    """
    if isinstance(duration, timedelta):
        ms_of_whole_seconds = duration.days * _MS_PER_DAY + duration.seconds * _MS_PER_SECOND
        return ms_of_whole_seconds - (-duration.microseconds // _US_PER_MS)
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise InvalidConfigError(
            f"{name}: expected a timedelta or a number of seconds, got {duration!r} ({type(duration).__name__})"
        )
    if isinstance(duration, int):
        return int(duration) * _MS_PER_SECOND
    if not math.isfinite(duration):
        raise InvalidConfigError(f"{name}: {duration!r} seconds is no length of time")
    return _exact_ms(duration)


@lru_cache(maxsize=128)
def _exact_ms(seconds: float) -> int:
    return math.ceil(_EXACT.multiply(Decimal(float.__repr__(seconds)), Decimal(_MS_PER_SECOND)))


def positive_ms(duration: timedelta | float, *, name: str = "duration") -> int:
    """Return a duration in whole ms, rounded up, of 1 ms and more; raise InvalidConfigError for any other."""
    ms = whole_ms(duration, name=name)
    if ms < 1:
        raise InvalidConfigError(f"{name}: must be longer than zero, got {duration!r}")
    return ms
