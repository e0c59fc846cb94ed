"""What follows from what a handler raised, and what a handler may know; pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queuey_rabbitmq import Deferred, Fatal, InvalidConfigError, JobContext, JobTimeoutError, Retryable, RetryPolicy
from queuey_rabbitmq.core.outcomes import Dead, Hold, Outcome, Retry, outcome_of, said

THREE = RetryPolicy.fixed(3, 10)


def outcome(error: BaseException, *, attempt: int = 1, policy: RetryPolicy = THREE) -> Outcome:
    return outcome_of(error, attempt=attempt, policy=policy, random_source=lambda: 0.5)


@pytest.mark.parametrize("error", [Retryable("503"), ValueError("x"), SystemExit(1), JobTimeoutError("too long")])
def test_a_failure_is_retried_by_the_policy_until_the_attempts_are_used_up(error: BaseException) -> None:
    assert outcome(error, attempt=2) == Retry(timedelta(seconds=10), error)
    assert outcome(error, attempt=3) == Dead(f"gave up after attempt 3 of 3: {said(error)}", error)
    assert isinstance(outcome(error, attempt=4), Dead)


def test_a_retryable_may_say_its_own_delay_but_not_how_often() -> None:
    error = Retryable("503", delay=timedelta(minutes=1))
    assert outcome(error) == Retry(timedelta(minutes=1), error)
    assert isinstance(outcome(error, attempt=3), Dead)
    assert outcome(Retryable("503", delay=0)) != outcome(Retryable("503"))


def test_jitter_is_drawn_from_the_source_that_is_given() -> None:
    policy = RetryPolicy.exponential(3, base=10)
    decided = outcome(ValueError(), policy=policy)
    assert isinstance(decided, Retry)
    assert decided.delay == timedelta(milliseconds=5000)


@pytest.mark.parametrize("policy", [THREE, RetryPolicy.none()])
def test_a_deferral_and_a_fatal_ask_no_policy(policy: RetryPolicy) -> None:
    assert outcome(Deferred(30, "429"), policy=policy) == Hold(30, "429")
    fatal = Fatal("no such mailbox")
    assert outcome(fatal, policy=policy) == Dead("fatal: no such mailbox", fatal)


@pytest.mark.parametrize("delay", [float("nan"), "soon", True])
def test_a_delay_that_is_no_length_of_time_is_refused_where_it_is_written(delay: Any) -> None:
    with pytest.raises(InvalidConfigError, match="Deferred: delay"):
        Deferred(delay)
    with pytest.raises(InvalidConfigError, match="Retryable: delay"):
        Retryable(delay=delay)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("x"), "ValueError: x"),
        (ValueError(), "ValueError"),
        (Retryable("503"), "Retryable: 503"),
        (type("Custom", (Exception,), {"__module__": "my.app"})("x"), "my.app.Custom: x"),
    ],
)
def test_an_error_is_said_in_one_line(error: Any, text: str) -> None:
    assert said(error) == text


def test_a_context_for_a_test_needs_only_what_the_test_is_about() -> None:
    assert JobContext().attempt == 1
    assert JobContext().is_last_attempt
    assert not JobContext(attempt=2, max_attempts=3).is_last_attempt
    assert JobContext(attempt=3, max_attempts=3).is_last_attempt
    assert JobContext(age_ms=1500).age == timedelta(seconds=1.5)
    assert JobContext().job_id != JobContext().job_id


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        JobContext().attempt = 2  # type: ignore[misc] -- that is the test


class Unavailable(Retryable):
    delay = 60

    def __init__(self, status: int) -> None:  # which does not call that of Retryable, as people forget to
        self.status = status


class NotBefore(Deferred):
    delay = 30

    def __init__(self) -> None:
        pass


def test_a_subclass_may_have_an_init_and_a_delay_of_its_own() -> None:
    error = Unavailable(503)
    assert outcome_of(error, attempt=1, policy=RetryPolicy.fixed(2, 5), random_source=float) == Retry(60, error)
    assert isinstance(outcome_of(error, attempt=2, policy=RetryPolicy.fixed(2, 5), random_source=float), Dead)
    assert outcome_of(NotBefore(), attempt=1, policy=RetryPolicy.fixed(1, 5), random_source=float) == Hold(30, "")

    class Busy(Retryable):
        delay = timedelta(minutes=1)

    assert (Busy("503").delay, Busy(delay=2).delay, Retryable("503").delay) == (timedelta(minutes=1), 2, None)
