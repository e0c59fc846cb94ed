import pytest


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
