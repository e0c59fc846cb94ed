"""The arrows between the packages hold, and the broker model depends on nothing that could make it unrepeatable."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "queuey_fake" / "model"

PURE = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "calendar",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "operator",
    "re",
    "sortedcontainers",
    "struct",
    "typing",
}
"""What the model may import: values in, values out. No clock, no dice, no file, no socket, no thread."""

UNREPEATABLE_CALLS = {"now", "utcnow", "today", "open", "input", "print", "id", "breakpoint"}
"""Calls that read a clock or the machine, and `id`, which differs between two runs of the same program."""


def foreign_imports(source: str) -> Iterator[str]:
    """Yield what a module of the model imports from outside itself."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
        yield from (name for name in names if not f"{name}.".startswith("queuey_fake.model."))


def calls(source: str) -> Iterator[str]:
    """Yield the last name of everything that a module calls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def test_the_model_imports_only_what_is_pure() -> None:
    found = {path.name: set(foreign_imports(path.read_text())) for path in MODEL.rglob("*.py")}
    assert {
        name: bad for name, names in found.items() if (bad := {n for n in names if n.split(".")[0] not in PURE})
    } == {}


def test_the_model_reads_no_clock_and_nothing_of_the_machine() -> None:
    found = {path.name: set(calls(path.read_text())) & UNREPEATABLE_CALLS for path in MODEL.rglob("*.py")}
    assert {name: bad for name, bad in found.items() if bad} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("def late():\n    from queuey_rabbitmq import amqp", ["queuey_rabbitmq"]),
        ("from queuey_fake.modelling import x", ["queuey_fake.modelling"]),
        ("from queuey_fake.model.queue import Queue", []),
    ],
)
def test_an_import_from_outside_is_noticed(source: str, found: list[str]) -> None:
    assert list(foreign_imports(source)) == found


def test_a_call_that_reads_the_clock_is_noticed() -> None:
    assert "now" in calls("import datetime\nx = datetime.datetime.now()")


def test_the_contracts_between_the_packages_are_kept() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(  # noqa: S603 -- our own interpreter and program
        [*command, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
