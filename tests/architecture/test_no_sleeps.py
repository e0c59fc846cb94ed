"""Tests do not wait for time to pass, but those that watch a real broker or a real process."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
WATCH_WHAT_IS_REAL = (
    TESTS / "rabbitmq",
    TESTS / "torture",
    TESTS / "contract" / "test_over_the_port.py",
    TESTS / "differential" / "side_by_side.py",
    TESTS / "unit" / "plugin" / "test_keeper.py",
)
"""A broker or its socket, in the lane of the real broker, and processes that end when their time comes."""

FILES = sorted(p for p in TESTS.rglob("*.py") if not any(p.is_relative_to(real) for real in WATCH_WHAT_IS_REAL))


def sleeps(source: str) -> list[int]:
    """Return the lines that call something named sleep."""
    if "sleep" not in source:  # most modules need not be parsed
        return []
    called = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        function.lineno
        for function in called
        if (isinstance(function, ast.Attribute) and function.attr == "sleep")
        or (isinstance(function, ast.Name) and function.id == "sleep")
    ]


def test_no_other_test_sleeps() -> None:
    found = {str(path.relative_to(TESTS)): sleeps(path.read_text()) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("source", ["import time\ntime.sleep(1)", "from time import sleep\nsleep(1)"])
def test_a_sleep_is_noticed(source: str) -> None:
    assert sleeps(source) == [2]
