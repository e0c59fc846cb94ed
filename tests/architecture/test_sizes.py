"""Files and functions stay of a size that can be read in one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("queuey_rabbitmq", "queuey_fake", "pytest_queuey", "tests", "examples", "benchmarks")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def functions_in(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions in a statement, at any depth; only statements hold any, so nothing else is looked at."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                yield inner
            yield from functions_in(inner)


def long_functions(source: str) -> list[str]:
    """Return the functions of a module that are longer than they may be, decorators not counted."""
    functions = functions_in(ast.parse(source))
    return [
        f"{function.name}: {lines} lines"
        for function in functions
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    found = {str(path.relative_to(ROOT)): long_functions(path.read_text()) for path in FILES}
    assert {path: functions for path, functions in found.items() if functions} == {}


@pytest.mark.parametrize(("lines", "noticed"), [(60, []), (61, ["grown: 61 lines"])])
def test_a_function_that_grew_is_noticed(lines: int, noticed: list[str]) -> None:
    source = "class Owner:\n    def grown(self):\n" + "        pass\n" * (lines - 1)
    assert long_functions(source) == noticed
