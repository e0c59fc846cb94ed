"""The contract catches every broken backend, each by the test that names its promise."""

import re
from pathlib import Path

import pytest
from broken_variants import CAUGHT_BY

from pytest_queuey.contract import BackendContract

BACKEND = Path(__file__).resolve().parents[2] / "examples" / "sqlite_backend"

# One class for each variant, with the one test that has to fail on it; on the whole backend it passes, as the example's
# own tests say.
SUITE = """
import pytest
from broken_variants import CAUGHT_BY
from sqlite_under_test import SqliteUnderTest

from pytest_queuey.contract import BackendContract, Surroundings

def contract_on(backend, tests):
    class OnBackend(Surroundings):
        @pytest.fixture
        def backend_under_test(self, tmp_path):
            under_test = SqliteUnderTest(tmp_path)
            under_test.make = backend
            yield under_test
            under_test.close()

    for test in tests:
        setattr(OnBackend, test, getattr(BackendContract, test))
    return OnBackend

for broken, test in CAUGHT_BY.items():
    globals()["Test" + broken.__name__] = contract_on(broken, [test])
"""


def test_every_broken_backend_is_caught_by_the_test_that_names_its_promise(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(SUITE)
    run_pytest.makeini(f"[pytest]\npythonpath = {BACKEND}")
    result = run_pytest.runpytest_inprocess("-rfE", "--tb=no")
    failed = re.findall(r"^FAILED \S+::Test(\w+)::(\w+)", result.stdout.str(), flags=re.MULTILINE)
    assert dict(failed) == {broken.__name__: test for broken, test in CAUGHT_BY.items()}
    assert result.parseoutcomes().get("errors", 0) == 0


def test_the_tests_that_catch_them_are_the_contracts() -> None:
    assert [test for test in CAUGHT_BY.values() if not hasattr(BackendContract, test)] == []
