"""The contract on somebody else's backend: how it is named, what it may be without, what is said at the end."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SQLITE = ROOT / "examples" / "sqlite_backend"
CONTRACT = ("--pyargs", "pytest_queuey.test_contract")
SOME = ("-k", "test_a_settled_delivery or test_a_retried_job_comes_behind or test_closing_twice")

MINE = """
from pytest_queuey.contract import BackendUnderTest
from sqlite_under_test import SqliteUnderTest

class Mine(SqliteUnderTest):
    capabilities = {capabilities!r}

class Unfinished(BackendUnderTest):
    def close(self): pass

def make_mine(folder): return Mine(folder)
def made_of_nothing(folder): pass

class Broken(SqliteUnderTest):
    class make(SqliteUnderTest.make):
        def close(self):
            super().close()
            raise RuntimeError("closing is broken")
"""

RunContract = Callable[..., pytest.RunResult]


@pytest.fixture
def run_contract(run_pytest: pytest.Pytester) -> RunContract:
    """Run some of the contract on a backend of a module `mine`, which lies where pytest is started."""

    def run(
        *options: str, backend: str = "mine:Mine", capabilities: tuple[str, ...] = ("holds", "dead_letters")
    ) -> pytest.RunResult:
        run_pytest.makeini(f"[pytest]\npythonpath = {SQLITE}")
        run_pytest.makepyfile(mine=MINE.format(capabilities=capabilities))
        return run_pytest.runpytest_inprocess(*CONTRACT, f"--queuey-backend={backend}", *SOME, *options)

    return run


def test_a_backend_that_is_named_is_held_to_what_it_declares_and_the_report_says_what_is_left_out(
    run_contract: RunContract,
) -> None:
    result = run_contract("-rs")
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*queuey: the contract, TestBackend [[]mine:Mine[]]*",
            "Closing * 1 kept",
            "Priorities * 0 kept, 1 left out (not declared: priorities)",
            "Settling * 5 kept",
            "all chapters * 6 kept, 1 left out (not declared: priorities)",
            "SKIPPED*needs what the backend does not declare: priorities",
        ]
    )


def test_a_broken_promise_is_named_in_the_report(run_contract: RunContract) -> None:
    result = run_contract(backend="mine:Broken")
    result.stdout.fnmatch_lines(
        [
            "Closing * 0 kept, 1 broken",
            "* BROKEN: closing twice is fine",
            "* the promise: What was unsettled at the end goes back; *",
            "all chapters *broken*",
        ]
    )


def test_a_promise_that_is_expected_to_be_broken_is_not_one_that_is_kept(run_pytest: pytest.Pytester) -> None:
    run_pytest.makeini(f"[pytest]\npythonpath = {SQLITE}")
    run_pytest.makepyfile(
        """
        import pytest
        from sqlite_under_test import SqliteUnderTest
        from pytest_queuey.contract import Surroundings
        from pytest_queuey.contract.closing import Closing

        class TestMine(Surroundings):
            \"\"\"Mine.\"\"\"

            @pytest.fixture
            def backend_under_test(self, tmp_path):
                under_test = SqliteUnderTest(tmp_path)
                yield under_test
                under_test.close()
                raise RuntimeError("what comes afterwards fails")

            test_closing_twice_is_fine = Closing.test_closing_twice_is_fine

        class TestMineToo(TestMine):
            @pytest.fixture
            def backend_under_test(self, tmp_path):
                return SqliteUnderTest(tmp_path)

            @pytest.mark.xfail(reason="not yet", strict=True)
            def test_it(self, backend):
                assert False
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(passed=2, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "*queuey: the contract, TestMine*",
            "all chapters * 0 kept, 1 broken",
            "*queuey: the contract, TestMineToo*",
            "* broken, as expected: it",
            "all chapters * 1 kept, 1 broken as expected",
        ]
    )


def test_a_capability_that_does_not_exist_is_a_usage_error_that_names_those_that_do(run_contract: RunContract) -> None:
    result = run_contract(capabilities=("speed",))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --queuey-backend=mine:Mine: Mine.capabilities: there is no capability speed; there are priorities, *"]
    )


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("sqlite_backend:SqliteBackend", "SqliteBackend is no subclass of pytest_queuey.contract.BackendUnderTest, *"),
        ("mine:Unfinished", "Unfinished lacks backend()"),
    ],
)
def test_a_class_of_which_no_backend_under_test_can_be_made_is_one_usage_error(
    run_contract: RunContract, backend: str, said: str
) -> None:
    result = run_contract(backend=backend)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --queuey-backend={backend}: {said}"])


def test_what_is_wrong_with_what_a_function_makes_is_one_error(run_contract: RunContract) -> None:
    result = run_contract(backend="mine:made_of_nothing")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["--queuey-backend=mine:made_of_nothing: called with an empty folder, it returns None, *"]
    )


def test_a_fixture_that_gives_no_backend_under_test_says_so(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        from pytest_queuey.contract import Surroundings

        class TestBare(Surroundings):
            @pytest.fixture
            def backend_under_test(self): return {}
            def test_it(self): pass
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["TestBare: the fixture `backend_under_test` gives {}, which is no *"])


def test_a_subclass_of_the_contract_may_declare_what_its_backend_can_do(run_pytest: pytest.Pytester) -> None:
    run_pytest.makeini(f"[pytest]\npythonpath = {SQLITE}")
    run_pytest.makepyfile(
        """
        import pytest
        from sqlite_under_test import SqliteUnderTest
        from pytest_queuey.contract import BackendContract

        class TestMine(BackendContract):
            capabilities = {"holds", "dead_letters"}

            @pytest.fixture
            def backend_under_test(self, tmp_path):
                yield (under_test := SqliteUnderTest(tmp_path))
                under_test.close()
        """
    )
    result = run_pytest.runpytest_inprocess(*SOME)
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["*queuey: the contract, TestMine*"])


def test_a_capability_that_is_declared_and_not_provided_says_what_is_missing(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        from pytest_queuey.contract import BackendUnderTest, Surroundings, needs

        class Bare(BackendUnderTest):
            def backend(self): ...
            def close(self): ...

        class TestBare(Surroundings):
            @pytest.fixture
            def backend_under_test(self): return Bare()

            @needs("raw_bodies")
            def test_it(self, backend_under_test): backend_under_test.put_raw("q", b"")
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Bare declares the capability 'raw_bodies' and has no put_raw(). Write it, or *"])


def test_without_a_backend_the_contract_for_others_says_how_to_give_one(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        from pytest_queuey.contract import BackendContract
        class TestMine(BackendContract): pass
        """
    )
    result = run_pytest.runpytest_inprocess("-k", "test_closing_twice")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no backend is given: override the fixture `backend_under_test` in TestMine, or *"])


def test_the_report_is_there_under_xdist_too_and_names_a_function_of_the_ini_file(run_pytest: pytest.Pytester) -> None:
    run_pytest.makeini(f"[pytest]\npythonpath = {SQLITE}\nqueuey_backend = mine:make_mine")
    run_pytest.makepyfile(mine=MINE.format(capabilities=("holds",)))
    result = run_pytest.runpytest_inprocess(*CONTRACT, "-p", "xdist.plugin", "-n1", "-k", "test_closing_twice")
    result.stdout.fnmatch_lines(
        ["*queuey: the contract, TestBackend [[]mine:make_mine[]]*", "Closing * 1 kept", "all chapters * 1 kept"]
    )


def test_without_a_named_backend_it_is_the_one_on_rabbitmq(run_pytest: pytest.Pytester) -> None:
    result = run_pytest.runpytest_inprocess(*CONTRACT, "-k", "test_closing_twice")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*queuey: the contract, TestRabbitMqBackend [[]fake[]]*", "Closing * 1 kept"])
