"""mypy --strict on a user's code: nothing where it is right, an error on each line where it is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def errors(name: str, tmp_path: Path) -> dict[int, str]:
    """Return the errors of mypy, by line."""
    done = subprocess.run(  # noqa: S603 -- our own interpreter and program
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            "",
            "--no-error-summary",
            "--hide-error-context",
            name,
        ],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = re.findall(rf"^{re.escape(name)}:(\d+): error: (.*)$", done.stdout, flags=re.MULTILINE)
    assert len(found) == done.stdout.count(": error: "), done.stdout + done.stderr
    return {int(line): what for line, what in found}


@pytest.fixture(scope="session")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return errors("refused.py", tmp_path_factory.mktemp("mypy"))


def test_mypy_has_nothing_to_say_about_code_that_is_right(tmp_path: Path) -> None:
    assert errors("accepted.py", tmp_path) == {}


def test_mypy_finds_each_mistake_and_no_other(refused: dict[int, str]) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}
    assert len(expected) > 20
    assert set(refused) == expected, {
        number: refused.get(number, lines[number - 1]) for number in set(refused) ^ expected
    }
