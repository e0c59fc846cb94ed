"""`--queuey-trace` writes a page for each test on the broker in memory, whatever became of it, and an index of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_queuey.trace.folder import page_name

TESTS = """
    import uuid
    import pytest
    from freezegun import freeze_time
    from queuey_rabbitmq import Envelope, QueueConfig

    EMAILS = QueueConfig("emails")

    @pytest.fixture
    def backend(queuey_backend):
        queuey_backend.declare([EMAILS])
        envelope = Envelope(job_id=uuid.UUID(int=7), job_type="send", queue="emails", enqueued_at_ms=0, payload="<b>")
        queuey_backend.defer(envelope, 30)
        return queuey_backend

    def test_passing(backend): pass

    def test_failing(backend):
        assert "one" == "another"

    @freeze_time("2030-01-01")
    def test_frozen(backend):
        backend.publish(Envelope(job_id=uuid.UUID(int=8), job_type="send", queue="emails", enqueued_at_ms=0, payload=8))

    @pytest.mark.parametrize("name", ["a/b", "a:b", "../<i>"])
    def test_parametrised(backend, name): pass

    @pytest.mark.xfail(strict=True)
    def test_failing_as_expected(backend):
        assert False

    def test_losing(backend, queuey_broker, queuey_clock):
        with __import__("pika").BlockingConnection(__import__("pika").URLParameters(queuey_broker.url)) as connection:
            connection.channel().queue_delete("emails")
        queuey_clock.advance(30)

    def test_skipping(backend):
        pytest.skip("not now")

    def test_without_a_broker(): pass
"""
OUTCOMES = {
    "test_passing": "passed",
    "test_failing": "failed",
    "test_frozen": "passed",
    "test_parametrised[a/b]": "passed",
    "test_parametrised[a:b]": "passed",
    "test_parametrised[../<i>]": "passed",
    "test_failing_as_expected": "xfailed",
    "test_losing": "error",
    "test_skipping": "skipped",
}


def outcomes_in(index: str) -> dict[str, tuple[str, str]]:
    """Return from an index what became of each test, and its page."""
    rows = re.findall(r'<span class="badge \w+">. (\w+)</span><td><a href="(.*?)">(.*?)</a>', index)
    unescaped = {test.replace("&lt;", "<").replace("&gt;", ">"): (outcome, page) for outcome, page, test in rows}
    return {
        test.partition("::")[2].replace("[fake-", "[").replace("[fake]", ""): row for test, row in unescaped.items()
    }


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n2")], ids=["one-process", "xdist"])
def test_every_test_on_the_broker_has_a_page_and_a_line_in_the_index(
    run_pytest: pytest.Pytester, options: tuple[str, ...]
) -> None:
    run_pytest.makepyfile(test_it=TESTS)
    result = run_pytest.runpytest_inprocess("--queuey-trace=out/traces", *options)
    result.assert_outcomes(passed=7, failed=1, xfailed=1, skipped=1, errors=1)
    folder = run_pytest.path / "out" / "traces"
    result.stdout.fnmatch_lines([f"*- queuey: traces, 9 pages: {folder / 'index.html'} -*"])
    listed = outcomes_in((folder / "index.html").read_text())
    assert {test: outcome for test, (outcome, _) in listed.items()} == OUTCOMES
    assert next(iter(listed)) in ("test_failing", "test_losing")  # failed tests are first
    assert {page for _, page in listed.values()} == {path.name for path in folder.iterdir()} - {"index.html"}
    for test, (outcome, page) in listed.items():
        html = (folder / page).read_text()
        assert f" {outcome}</span>" in html, test
        assert 'data-queue="emails.deferred.30000"' in html, test


def test_a_page_shows_what_failed_and_what_was_lost(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it=TESTS)
    run_pytest.runpytest_inprocess("--queuey-trace=traces", "-k", "failing or losing")
    listed = outcomes_in((run_pytest.path / "traces" / "index.html").read_text())
    failing = (run_pytest.path / "traces" / listed["test_failing"][1]).read_text()
    assert "assert &#x27;one&#x27; == &#x27;another&#x27;" in failing
    assert "1 message due at" in failing
    losing = (run_pytest.path / "traces" / listed["test_losing"][1]).read_text()
    assert ">LOST</text>" in losing
    assert "RabbitMQ would have dropped messages without a trace" in losing


def test_a_frozen_test_is_drawn_in_the_time_that_it_saw(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it=TESTS)
    run_pytest.runpytest_inprocess("--queuey-trace=traces", "-k", "frozen")
    (page,) = (run_pytest.path / "traces").glob("test_it-*.html")
    first, *_, last = re.findall(r"<title>(.*), (.*) UTC</title>", page.read_text().replace("</title>", "</title>\n"))
    assert first[0] == "start"
    assert last[1] == "2030-01-01 00:00:00"  # and nothing comes after the freeze


def test_the_ini_asks_for_pages_too_and_a_folder_is_one_of_where_pytest_was_started(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_pytest.makeini("[pytest]\nqueuey_trace = traces")
    run_pytest.makepyfile(test_it="def test_it(queuey_broker): pass")
    (run_pytest.path / "below").mkdir()
    monkeypatch.chdir(run_pytest.path / "below")
    run_pytest.runpytest_inprocess("..").assert_outcomes(passed=1)
    assert (run_pytest.path / "below" / "traces" / "index.html").is_file()


@pytest.mark.parametrize("folder", ["occupied", "occupied/below"])
def test_a_folder_that_cannot_be_written_to_is_an_error_at_the_start(run_pytest: pytest.Pytester, folder: str) -> None:
    (run_pytest.path / "occupied").write_text("a file")
    result = run_pytest.runpytest_inprocess(f"--queuey-trace={folder}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    path = run_pytest.path / folder
    result.stderr.fnmatch_lines([f"ERROR: --queuey-trace (ini queuey_trace): no pages can be written to {path}: *"])


def test_pages_that_cannot_be_written_are_said_at_the_end_and_change_no_test(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        test_it="""
        import shutil
        from pathlib import Path

        def test_failing(queuey_broker):
            shutil.rmtree(Path(__file__).with_name("traces"))
            assert False

        def test_passing(queuey_broker): pass
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-trace=traces")
    result.assert_outcomes(passed=1, failed=1)
    folder = run_pytest.path / "traces"
    result.stdout.fnmatch_lines(
        [
            "*- queuey: the broker in memory -*",
            "<FakeBroker of RabbitMQ *",
            f"*- queuey: traces, 0 pages: {folder / 'index.html'} -*",
            f"NOT WRITTEN: the page of test_it.py::test_failing[[]fake]: FileNotFoundError: *'{folder}/test_it-*",
            "NOT WRITTEN: the page of test_it.py::test_passing[[]fake]: FileNotFoundError: *",
            f"NOT WRITTEN: the index: FileNotFoundError: *'{folder}/index.html'",
        ]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_of_many_pages_that_cannot_be_written_only_the_first_are_named(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        test_it="""
        import shutil
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(queuey_broker, number):
            shutil.rmtree(Path(__file__).with_name("traces"), ignore_errors=True)
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-trace=traces")
    result.assert_outcomes(passed=4)
    assert sum(line.startswith("NOT WRITTEN: ") for line in result.outlines) == 4
    result.stdout.fnmatch_lines(["NOT WRITTEN: 2 more"])


def test_losses_fail_their_test_though_its_page_cannot_be_drawn(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        test_it=TESTS
        + """
    def test_breaking(backend, queuey_broker, queuey_clock):
        test_losing(backend, queuey_broker, queuey_clock)
        queuey_broker.fake.explain = lambda: 1 / 0
"""
    )
    result = run_pytest.runpytest_inprocess("--queuey-trace=traces", "-k", "breaking")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "RabbitMQ would have dropped messages without a trace:",
            "NOT WRITTEN: the page of test_it.py::test_breaking[[]fake]: ZeroDivisionError: division by zero",
        ]
    )


def test_a_run_without_a_broker_in_memory_has_an_empty_index(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it="def test_it(): pass")
    run_pytest.runpytest_inprocess("--queuey-trace=traces").assert_outcomes(passed=1)
    assert "No test of this run used the broker in memory." in (run_pytest.path / "traces" / "index.html").read_text()


def test_what_is_no_text_is_written_as_it_can_be(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it="def test_it(queuey_broker): assert False, 'octet: \\udcff'")
    run_pytest.runpytest_inprocess("--queuey-trace=traces", "-p", "no:terminal")
    (page,) = (run_pytest.path / "traces").glob("test_it-*.html")
    assert r"octet: \udcff" in page.read_text()


def test_a_run_that_only_collects_leaves_the_last_index(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it="def test_it(queuey_broker): pass")
    run_pytest.runpytest_inprocess("--queuey-trace=traces").assert_outcomes(passed=1)
    run_pytest.runpytest_inprocess("--queuey-trace=traces", "--collect-only")
    assert "test_it.py::test_it[fake]" in (run_pytest.path / "traces" / "index.html").read_text()


def test_pages_are_written_without_pytests_terminal_too(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(test_it="def test_it(queuey_broker): assert False")
    run_pytest.runpytest_inprocess("--queuey-trace=traces", "-p", "no:terminal")
    assert " failed</span>" in (run_pytest.path / "traces" / "index.html").read_text()


def test_names_of_pages_are_safe_and_no_two_tests_share_one() -> None:
    tests = [
        "t.py::test_it[a/b]",
        "t.py::test_it[a:b]",
        "t.py::test_it[a b]",
        "u/t.py::test_it[a/b]",
        "t.py::" + "x" * 900,
    ]
    names = [page_name(test) for test in tests]
    assert len(set(names)) == len(tests)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,110}\.html", name) for name in names)


def test_nothing_of_it_is_loaded_where_no_pages_are_asked_for(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        test_it="""
        import sys
        def test_it(queuey_broker):
            assert not [name for name in sys.modules if name.startswith("pytest_queuey.trace")]
        """
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=Path(run_pytest.path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
