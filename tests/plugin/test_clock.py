from collections.abc import Callable
from typing import Any

import pytest

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
