"""Retry policies decide whether and when, and never fail to decide."""

import math
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.retry import Backoff, RetryDecision, RetryPolicy


def seconds(policy: RetryPolicy, attempts: int) -> list[float | None]:
    decisions = [policy.decide(attempt) for attempt in range(1, attempts + 1)]
    return [None if decision.delay is None else decision.delay.total_seconds() for decision in decisions]


def test_no_retries_gives_up_after_the_first_attempt() -> None:
    assert RetryPolicy.none().decide(1) == RetryDecision(None)
    assert RetryPolicy.none().decide(1).gives_up


def test_a_fixed_policy_waits_the_same_until_its_attempts_are_used_up() -> None:
    assert seconds(RetryPolicy.fixed(4, 2.5), 5) == [2.5, 2.5, 2.5, None, None]


def test_a_policy_without_backoff_retries_at_once() -> None:
    assert seconds(RetryPolicy(max_attempts=3), 3) == [0, 0, None]


def test_an_exponential_policy_doubles_from_one_second_up_to_five_minutes() -> None:
    policy = RetryPolicy.exponential(13, jitter=False)
    assert seconds(policy, 13) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, None]


def test_full_jitter_is_the_default_and_spreads_from_zero_to_the_whole_wait() -> None:
    policy = RetryPolicy.exponential(10)
    lowest = policy.decide(3, random_source=lambda: 0.0)
    middle = policy.decide(3, random_source=lambda: 0.5)
    highest = policy.decide(3, random_source=lambda: 1.0)
    assert [lowest.delay, middle.delay, highest.delay] == [timedelta(seconds=s) for s in (0, 2, 4)]


def test_a_seeded_random_source_gives_the_same_waits_again() -> None:
    policy = RetryPolicy.exponential(50)
    first, second = (random.Random(7) for _ in range(2))  # noqa: S311 -- no secret
    waits = [policy.decide(n, random_source=first.random) for n in range(1, 20)]
    assert waits == [policy.decide(n, random_source=second.random) for n in range(1, 20)]
    assert len(set(waits)) > 10


@given(st.integers(1, 12))
def test_waits_of_the_default_random_source_stay_within_the_wait(attempt: int) -> None:
    delay = RetryPolicy.exponential(100).decide(attempt).delay
    assert delay is not None
    assert timedelta(0) <= delay <= timedelta(seconds=min(2 ** (attempt - 1), 300))


@pytest.mark.parametrize("attempt", [0, -1, -(10**30)])
def test_an_attempt_before_the_first_waits_like_the_first(attempt: int) -> None:
    assert RetryPolicy.exponential(5, 3, jitter=False).decide(attempt).delay == timedelta(seconds=3)


@pytest.mark.parametrize("attempt", [5, 2**32, sys.maxsize, 10**400])
def test_attempts_beyond_the_last_give_up(attempt: int) -> None:
    assert RetryPolicy.exponential(5).decide(attempt).gives_up


@pytest.mark.parametrize("attempt", [1100, 2**31, 10**400])
def test_a_huge_attempt_waits_the_maximum(attempt: int) -> None:
    assert Backoff.exponential(jitter=False).delay(attempt) == timedelta(seconds=300)


@pytest.mark.parametrize("factor", [math.nan, 1, 0.5, 0, -2, -math.inf])
def test_a_factor_that_does_not_grow_keeps_the_first_wait(factor: float) -> None:
    assert Backoff.exponential(7, factor=factor, jitter=False).delay(20) == timedelta(seconds=7)


@pytest.mark.parametrize("factor", [math.inf, 1e308, 10**400])
def test_a_factor_that_overflows_waits_the_maximum_after_the_first_wait(factor: float) -> None:
    backoff = Backoff.exponential(7, factor=factor, jitter=False)
    assert [backoff.delay(1), backoff.delay(2), backoff.delay(3)] == [timedelta(seconds=s) for s in (7, 300, 300)]


@given(
    st.integers(),
    st.floats() | st.integers(),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.booleans(),
)
def test_whatever_the_numbers_the_wait_stays_between_zero_and_the_maximum(
    attempt: int,
    factor: float,
    one: int,
    other: int,
    jitter: bool,  # noqa: FBT001 -- drawn by hypothesis
) -> None:
    base, most = sorted((one, other))
    delay = Backoff.exponential(base, factor=factor, max_delay=most, jitter=jitter).delay(attempt)
    assert timedelta(0) <= delay <= timedelta(seconds=most)


def test_a_base_of_zero_never_waits_whatever_the_factor() -> None:
    assert Backoff.exponential(0, factor=math.inf, jitter=False).delay(9) == timedelta(0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RetryPolicy(max_attempts=0), "RetryPolicy: max_attempts: .* got 0"),
        (lambda: RetryPolicy.fixed(-1, 1), "RetryPolicy: max_attempts"),
        (lambda: RetryPolicy.fixed(2**32, 1), "RetryPolicy: max_attempts"),
        (lambda: RetryPolicy(max_attempts=True), "RetryPolicy: max_attempts"),
        (lambda: RetryPolicy(max_attempts=2.0), "RetryPolicy: max_attempts"),  # type: ignore[arg-type]  # the mistake
        (lambda: RetryPolicy(2, "fast"), "RetryPolicy: backoff"),  # type: ignore[arg-type]  # the mistake
        (lambda: Backoff.exponential(20, max_delay=10), "Backoff: base: 20000 ms is over max_delay, 10000 ms"),
        (lambda: Backoff.exponential(-1), "Backoff: a delay must not be negative"),
        (lambda: Backoff.exponential(math.nan), "Backoff: base"),
        (lambda: Backoff.exponential(max_delay=math.inf), "Backoff: max_delay"),
        (lambda: Backoff.exponential(max_delay=1e15), "Backoff: max_delay"),
        (lambda: Backoff.exponential(factor="2"), "Backoff: factor"),  # type: ignore[arg-type]  # the mistake
        (lambda: Backoff.fixed(-0.5), "Backoff: a delay must not be negative"),
        (lambda: Backoff.fixed(math.nan), "Backoff: delay"),
    ],
)
def test_an_impossible_policy_is_refused_and_the_field_named(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        make()


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"base_ms": "5", "max_ms": 9}, "Backoff: base_ms: expected an integer, got '5'"),
        ({"base_ms": 1.5, "max_ms": 9}, "Backoff: base_ms: expected an integer, got 1.5"),
        ({"max_ms": True}, "Backoff: max_ms: expected an integer, got True"),
        ({"jitter": "yes"}, "Backoff: jitter: expected True or False, got 'yes'"),
    ],
)
def test_a_backoff_of_another_type_is_refused(mistake: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        Backoff(**mistake)
