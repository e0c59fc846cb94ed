"""The contract on the SQLite backend: how the author of a backend has it run in their own suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_under_test import SqliteUnderTest

from pytest_queuey.contract import BackendContract


class TestSqliteBackend(BackendContract):
    @pytest.fixture
    def backend_under_test(self, tmp_path: Path) -> Iterator[SqliteUnderTest]:
        under_test = SqliteUnderTest(tmp_path)
        yield under_test
        under_test.close()
