"""The report of a failing test says what its broker holds, what is due, and what happened last."""

import pytest

TESTS = """
    import uuid
    import pytest
    from freezegun import freeze_time
    from queuey_rabbitmq import Envelope, QueueConfig

    EMAILS = QueueConfig("emails")

    @pytest.fixture
    def backend(queuey_backend):
        queuey_backend.declare([EMAILS])
        return queuey_backend

    def defer(backend, delay):
        envelope = Envelope(
            job_id=uuid.UUID(int=7), job_type="send", queue="emails", enqueued_at_ms=0, payload=None
        )
        backend.defer(envelope, delay)

    def test_failing(backend):
        defer(backend, 30)
        assert False

    @freeze_time("2030-01-01")
    def test_failing_while_frozen(backend):
        defer(backend, 30)
        assert False

    @pytest.mark.xfail(strict=True)
    def test_failing_as_expected(backend):
        defer(backend, 30)
        assert False

    def test_passing(backend):
        defer(backend, 30)

    def test_without_a_broker():
        assert False
"""


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n1")], ids=["one-process", "xdist"])
def test_a_failing_test_shows_its_broker(run_pytest: pytest.Pytester, options: tuple[str, ...]) -> None:
    run_pytest.makepyfile(TESTS)
    result = run_pytest.runpytest_inprocess(*options)
    result.assert_outcomes(failed=3, passed=1, xfailed=1)
    assert sum("- queuey: the broker in memory -" in line for line in result.outlines) == 2
    result.stdout.fnmatch_lines(
        [
            "<FakeBroker of RabbitMQ 4.3 at *",
            "time: virtual, moved by queuey_clock and by waiting for the broker; the machine's is 20*",
            "held and due:",
            "  queue 'emails.deferred.30000': 1 message due at *, in 30 s, then to 'emails'",
            "last events:",
            "  *  published  #1",
            "  *  queued in 'emails.deferred.30000'  #1",
        ]
    )


def test_a_freeze_that_has_ended_is_told_as_of_the_last_thing_in_it(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(TESTS)
    result = run_pytest.runpytest_inprocess("-k", "frozen")
    result.stdout.fnmatch_lines(
        [
            "time: virtual, what freezegun shows; the machine's is 20*",
            "held and due:",
            "  queue 'emails.deferred.30000': 1 message due at 2030-01-01T00:00:30.000+00:00, in 30 s, then*",
        ]
    )


def test_a_failing_setup_shows_the_broker_too(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken(queuey_broker):
            raise RuntimeError("no")

        def test_it(broken):
            pass
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["held and due:", "  no queue holds a message, and nothing is due"])


def test_a_broker_that_cannot_be_described_leaves_the_failure_as_it_is(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        def test_it(queuey_broker):
            queuey_broker.fake.explain = lambda: 1 / 0
            assert "one" == "another"
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E  *assert 'one' == 'another'", "cannot be described: ZeroDivisionError: division by zero"]
    )


def test_a_real_broker_takes_note_of_expected_losses_and_tells_nothing() -> None:
    from pytest_queuey.broker_under_test import NoJournal, NotOnThisBrokerError

    journal = NoJournal()
    journal.expect_loss(reason="expired")
    with pytest.raises(NotOnThisBrokerError, match=r"journal\.story: RabbitMQ keeps no journal"):
        journal.story("any")
