"""Durations become whole milliseconds, exactly and rounded up."""

import decimal
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq.core.durations import positive_ms, whole_ms
from queuey_rabbitmq.core.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (0.1, 100),
        (29.2, 29200),
        (0.3, 300),
        (1.001, 1001),
        (2.675, 2675),
        (0.0015, 2),
        (1e-9, 1),
        (5e-324, 1),
        (0, 0),
        (0.0, 0),
        (30, 30_000),
        (-0.0015, -1),
        (-2, -2000),
        (1e23, 10**26),
        (timedelta(milliseconds=29200), 29200),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1001), 2),
        (timedelta(days=40, seconds=1, microseconds=999_001), 40 * 86_400_000 + 2000),
        (timedelta(microseconds=-1500), -1),
        (timedelta.max, 86_400_000_000_000_000),
    ],
)
def test_a_duration_becomes_whole_milliseconds_rounded_up(duration: timedelta | float, ms: int) -> None:
    assert whole_ms(duration) == ms


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_is_taken_at_the_decimal_that_python_prints(seconds: float) -> None:
    assert whole_ms(seconds) == math.ceil(Fraction(repr(seconds)) * 1000)


@given(st.timedeltas())
def test_any_timedelta_is_rounded_up_from_its_microseconds(duration: timedelta) -> None:
    assert whole_ms(duration) == -(-(duration // timedelta(microseconds=1)) // 1000)


def test_the_callers_decimal_precision_changes_nothing() -> None:
    with decimal.localcontext(decimal.Context(prec=2)):
        assert whole_ms(12345.6789) == 12_345_679


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "5", None, Decimal(5), 1j, b"1"])
def test_what_is_no_length_of_time_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^close_timeout: "):
        whole_ms(value, name="close_timeout")


@pytest.mark.parametrize("value", [0, 0.0, -1, -0.0001, timedelta(0), timedelta(microseconds=-1)])
def test_a_positive_duration_is_longer_than_zero(value: timedelta | float) -> None:
    with pytest.raises(InvalidConfigError, match=r"^delay: must be longer than zero"):
        positive_ms(value, name="delay")


def test_the_shortest_positive_duration_is_one_millisecond() -> None:
    assert positive_ms(5e-324) == 1
