from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import InvalidConfigError, QueueConfig


def test_the_clock_moves_the_fake_and_waits_for_nothing(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        from datetime import UTC, datetime, timedelta
        import pytest

        def test_advance(queuey_broker, queuey_clock):
            start = queuey_clock.now_ms()
            queuey_clock.advance(1.5)
            queuey_clock.advance(timedelta(days=24))
            assert queuey_clock.now_ms() - start == 1500 + 24 * 86_400_000
            assert queuey_broker.now_ms() == queuey_clock.now_ms()

        def test_move_to(queuey_clock):
            queuey_clock.move_to(datetime(2100, 1, 1, tzinfo=UTC))
            assert queuey_clock.now_ms() == 4_102_444_800_000
            queuey_clock.move_to(datetime(2100, 1, 1, 0, 0, 1))
            assert queuey_clock.now_ms() == 4_102_444_801_000
            with pytest.raises(ValueError, match="0:00:01 in the past of the broker"):
                queuey_clock.move_to(datetime(2100, 1, 1, tzinfo=UTC))
            with pytest.raises(ValueError):
                queuey_clock.advance(-1)
        """
    )
    run_pytest.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.queuey_broker("fake")
@pytest.mark.parametrize("show", [freeze_time, lambda instant: time_machine.travel(instant, tick=False)])
def test_a_move_to_an_instant_ends_at_it_to_the_microsecond(
    queuey_clock: QueueyClock, show: Callable[[datetime], Any]
) -> None:
    began = datetime(2030, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    with show(began):
        for instant in (began, datetime(2030, 1, 2, tzinfo=UTC), datetime(2030, 1, 3, 0, 0, 0, 999, tzinfo=UTC)):
            queuey_clock.move_to(instant)
            assert datetime.now(UTC) == instant
            later = instant + timedelta(microseconds=3_700_000_001)
            queuey_clock.run(lambda: False, until=later)
            assert datetime.now(UTC) == later


def test_what_cannot_be_meant_is_refused_by_what_it_is(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    refused: list[tuple[str, Callable[[], object]]] = [
        (
            "expected a datetime, or a function that tells whether to end, got 3",
            lambda: queuey_clock.run(until=any_(3)),
        ),
        ("run drives workers, which have a method `step`, and functions, not 3", lambda: queuey_clock.run(any_(3))),
        ("an instant is a datetime, not '2030-01-01'", lambda: queuey_clock.move_to(any_("2030-01-01"))),
        (r"a queue's name is text, got QueueConfig\(", lambda: queuey_broker.queue(any_(QueueConfig("emails")))),
        ("a queue's name is text, got b'emails'", lambda: queuey_broker.name(any_(b"emails"))),
    ]
    for said, do in refused:
        with pytest.raises(TypeError, match=said):
            do()
    with pytest.raises(InvalidConfigError, match="expected RabbitMqOptions, got 3"):
        queuey_broker.backend(any_(3))


def any_(value: object) -> Any:
    """Hide from mypy what a program without it would not see."""
    return value
