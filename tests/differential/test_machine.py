"""The differential machine finds what differs: two fakes of different versions stand side by side."""

import json

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from queuey_fake import FakeBroker
from tests.differential.messages import Messages, machine
from tests.differential.side_by_side import Comparison, DivergenceError, SideBySide, UnequalError
from tests.recorded.player import SETTLE_MS, Player


def play_until_unequal(run: SideBySide) -> UnequalError:
    run.step(op="queue_declare", queue="@d", durable=True)
    run.step(
        op="queue_declare",
        queue="@a",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "@d"},
    )
    run.step(op="publish", routing_key="@a", body="m")
    run.step(op="basic_get", queue="@a", auto_ack=False)
    run.step(op="basic_reject", delivery_tag=1, requeue=False)
    with pytest.raises(UnequalError) as unequal:
        run.step(op="basic_get", queue="@d", auto_ack=True)  # its headers say more from 4.0 on
    return unequal.value


def test_a_divergence_is_played_again_and_printed_as_a_transcript() -> None:
    with FakeBroker("3.10") as live:
        comparison = Comparison(live, lambda: FakeBroker("4.0"))
        run = comparison.run()
        unequal = play_until_unequal(run)
        with pytest.raises(DivergenceError) as divergence:
            comparison.settle(run, unequal)
        run.close()
        assert live.queues() == []
    transcript = json.loads(str(divergence.value).splitlines()[-1])
    with FakeBroker("3.10") as broker:
        answers = Player(broker, SETTLE_MS).play(transcript["steps"])
    assert [result for result, _ in answers] == [step["result"] for step in transcript["steps"]]


def test_what_does_not_differ_again_was_a_late_broker() -> None:
    with FakeBroker("4.0") as live:
        versions = iter(["3.10", "4.0"])
        comparison = Comparison(live, lambda: FakeBroker(next(versions)))
        run = comparison.run()
        unequal = play_until_unequal(run)
        comparison.settle(run, unequal)
        run.close()
    assert comparison.late == 1


def test_random_steps_find_nothing_where_both_are_the_same() -> None:
    with FakeBroker("4.3") as live:
        comparison = Comparison(live, lambda: FakeBroker("4.3"))
        run_state_machine_as_test(
            seed(1)(machine(Messages, comparison)),
            settings=settings(
                max_examples=3,
                stateful_step_count=10,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            ),
        )
    assert comparison.steps > 0
    assert comparison.late == 0
