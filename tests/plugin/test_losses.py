"""A message that RabbitMQ would drop without a trace fails its test, unless the test or the suite expects it."""

import pytest

JOBS = """
    import uuid
    import pika
    import pytest
    from queuey_rabbitmq import Envelope, QueueConfig

    EMAILS = QueueConfig("emails", message_ttl=5)
    JOB_ID = uuid.UUID(int=7)

    def lose(broker):
        backend = broker.backend()
        backend.declare([EMAILS])
        backend.publish(
            Envelope(
                job_id=JOB_ID, job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=None
            )
        )
        broker.advance(5)

    def lose_as_another_client(broker):
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.basic_publish("", "nowhere", b"event")
            channel.queue_declare("emails", durable=True)
"""


def run(run_pytest: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    run_pytest.makepyfile(jobs=JOBS, test_losses=f"from jobs import *\n{tests}")
    return run_pytest.runpytest_inprocess(*options)


def test_a_lost_job_fails_its_test_with_its_story(run_pytest: pytest.Pytester) -> None:
    result = run(run_pytest, "def test_it(queuey_broker): lose(queuey_broker)")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "RabbitMQ would have dropped messages without a trace:",
            "message 00000000-0000-0000-0000-000000000007 was lost in queue 'emails': expired",
            "  message 00000000-0000-0000-0000-000000000007 (#*",
            "    * published",
            "    * queued in 'emails'",
            "    * expired in 'emails'",
            "Expect them with queuey_broker.journal.expect_loss(*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_loss_that_the_test_expects_is_none(run_pytest: pytest.Pytester) -> None:
    tests = """
def test_before(queuey_broker):
    queuey_broker.journal.expect_loss(reason="expired", queue="emails")
    lose(queuey_broker)

def test_after(queuey_broker):
    lose(queuey_broker)
    queuey_broker.journal.expect_loss()

@pytest.mark.queuey_expect_loss(reason="expired")
def test_by_mark(queuey_broker):
    lose(queuey_broker)

def test_another(queuey_broker):
    queuey_broker.journal.expect_loss(queue="other")
    lose(queuey_broker)
"""
    run(run_pytest, tests).assert_outcomes(passed=4, errors=1)


def test_a_mark_of_losses_with_other_words_than_it_knows_is_an_error(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.mark.queuey_expect_loss("expired")
        def test_without_a_name(queuey_broker): pass
        @pytest.mark.queuey_expect_loss(queue=object())
        def test_of_another_kind(queuey_broker): pass
        @pytest.mark.queuey_expect_loss(reasons="expired")
        def test_of_another_name(queuey_broker): pass
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["queuey_expect_loss takes reason= and queue=, both text: *"] * 3)


def test_the_next_test_has_lost_nothing(run_pytest: pytest.Pytester) -> None:
    tests = """
def test_one(queuey_broker): lose(queuey_broker)
def test_next(queuey_broker): assert queuey_broker.journal.losses == []
"""
    run(run_pytest, tests).assert_outcomes(passed=2, errors=1)


def test_a_test_that_has_failed_already_does_not_fail_twice(run_pytest: pytest.Pytester) -> None:
    result = run(run_pytest, "def test_it(queuey_broker):\n    lose(queuey_broker)\n    assert False")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["lost:", "  message 00000000-0000-0000-0000-000000000007 was lost in queue 'emails'*"])


def test_a_suite_may_have_losses_reported_or_ignored(run_pytest: pytest.Pytester) -> None:
    result = run(run_pytest, "def test_it(queuey_broker): lose(queuey_broker)", "--queuey-losses=report")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*- queuey: lost messages -*", "test_losses.py::test_it[[]fake[]]: RabbitMQ would have dropped messages *"]
    )
    result = run_pytest.runpytest_inprocess("--queuey-losses=ignore")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*lost messages*")


def test_losses_of_other_clients_are_reported_and_fail_where_the_suite_asks_for_it(run_pytest: pytest.Pytester) -> None:
    result = run(run_pytest, "def test_it(queuey_broker): lose_as_another_client(queuey_broker)")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*RabbitMQ would have dropped messages of other clients without a trace:"])
    run_pytest.makeini("[pytest]\nqueuey_foreign_losses = fail")
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["message number 1 was lost in queue 'nowhere': unroutable, *"])


def test_a_job_that_a_backend_publishes_over_the_port_is_ours_like_any_other(run_pytest: pytest.Pytester) -> None:
    tests = """
from queuey_rabbitmq import RabbitMqBackend

def test_it(queuey_broker):
    with RabbitMqBackend.connect(queuey_broker.url) as backend:
        backend.declare([EMAILS])
        backend.publish(
            Envelope(job_id=JOB_ID, job_type="send", queue="emails", enqueued_at_ms=0, payload=None)
        )
    queuey_broker.advance(5)
"""
    result = run(run_pytest, tests)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["message 00000000-0000-0000-0000-000000000007 was lost in queue 'emails': expired"])


def test_losses_in_workers_of_xdist_are_failed_and_reported_as_in_one_process(
    run_pytest: pytest.Pytester,
) -> None:
    tests = """
def test_one(queuey_broker): lose(queuey_broker)
def test_other(queuey_broker): lose_as_another_client(queuey_broker)
"""
    result = run(run_pytest, tests, "-p", "xdist.plugin", "-n1")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["message 00000000-0000-0000-0000-000000000007 was lost in queue 'emails': expired"])
    result.stdout.fnmatch_lines(["*- queuey: lost messages -*", "test_losses.py::test_other*of other clients*"])
