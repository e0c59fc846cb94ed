"""What --queuey-backend names is tried out once before the tests; what is wrong with it is said then."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.named_backend import load, try_out
from pytest_queuey.options import read_settings

MODULE = """
from pytest_queuey.contract import BackendUnderTest
from queuey_fake import FakeBroker

class Mine(BackendUnderTest):
    def __init__(self, folder):
        self.broker = FakeBroker()
        (folder / "made").touch(exist_ok=False)
    def backend(self): return self.broker.backend()
    def close(self): self.broker.close()

class WithoutFolder(Mine):
    def __init__(self): pass

class Unreachable(Mine):
    def backend(self): raise ConnectionRefusedError("no database at localhost:5432")

def returning_nothing(folder): pass

class Empty(Mine):
    def backend(self): return {}

class Nothing(Mine):
    capabilities = None

class Later(Mine):
    @property
    def capabilities(self): return {"speed"}
"""


def tried(run_pytest: pytest.Pytester, name: str) -> None:
    config = run_pytest.parseconfig(f"--queuey-backend={name}")
    load(config, read_settings(config))
    try_out(config)
    try_out(config)  # a class of tests has many


def test_what_makes_a_backend_is_tried_out_once(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(mine=MODULE)
    tried(run_pytest, "mine:Mine")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mine:WithoutFolder",
            r"raises TypeError: .*takes 1 positional argument but 2 were given \(raised in .*, line",
        ),
        (
            "mine:Unreachable",
            r"raises ConnectionRefusedError: no database at localhost:5432 \(raised in .*mine.py, line",
        ),
        ("mine:Empty", r"its backend\(\) returns \{\}, which lacks .*declare\(\), .*publish\(\).*: see the protocol"),
        ("mine:Nothing", "raises ValueError: Nothing.capabilities: expected names of capabilities, got None"),
        ("mine:returning_nothing", "returns None, which is no pytest_queuey.contract.BackendUnderTest"),
        ("mine:Later", "raises ValueError: Later.capabilities: there is no capability speed; there are priorities, "),
    ],
)
def test_what_is_wrong_with_what_it_makes_is_said(run_pytest: pytest.Pytester, name: str, said: str) -> None:
    run_pytest.makepyfile(mine=MODULE)
    with pytest.raises(pytest.Collector.CollectError, match=f"^--queuey-backend={name}: .*{said}"):
        tried(run_pytest, name)


@pytest.mark.parametrize(
    ("text", "said"),
    [("raise OSError('no disk')", "OSError: no disk"), ("def x(: pass", "SyntaxError: invalid syntax")],
)
def test_a_module_that_cannot_be_imported_says_where(run_pytest: pytest.Pytester, text: str, said: str) -> None:
    run_pytest.makepyfile(theirs=text)
    with pytest.raises(pytest.UsageError, match=f"theirs:It: the module cannot be imported: {said}.*raised in "):
        tried(run_pytest, "theirs:It")
