"""Owns the backend that --queuey-backend names: finding the factory, and what is said where it is none.

A factory is called once for each test, with an empty folder. What a class makes is known beforehand; a function is
tried out once before the tests, so that what is wrong with it is one error.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_queuey.contract.backend_under_test import BackendUnderTest, what_is_wrong
from pytest_queuey.contract.capabilities import check_known

if TYPE_CHECKING:
    from pytest_queuey.options import Settings

MakeUnderTest = Callable[[Path], BackendUnderTest]

_NAMED: Final = pytest.StashKey[MakeUnderTest]()
_SAID: Final = pytest.StashKey[str]()
_IS_TRIED: Final = pytest.StashKey[bool]()


def load(config: pytest.Config, settings: Settings) -> None:
    """Import the factory of --queuey-backend; raises UsageError that says what is wrong with it."""
    assert settings.backend is not None
    where = f"--queuey-backend={settings.backend}"
    module_name, _, name = settings.backend.partition(":")
    # As `python -m pytest` has it: what lies where pytest was started can be named.
    started_in = str(config.invocation_params.dir)
    if started_in not in sys.path:
        sys.path.insert(0, started_in)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise pytest.UsageError(f"{where}: the module cannot be imported: {error}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise pytest.UsageError(f"{where}: {module_name} ({module.__file__}) has no callable {name}")
    _refuse_other_classes(factory, where, name)
    declared = getattr(factory, "capabilities", None)
    if declared is not None:
        try:
            check_known(declared, f"{where}: {name}.capabilities")
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
    config.stash[_NAMED], config.stash[_SAID] = factory, settings.backend


def _refuse_other_classes(factory: object, where: str, name: str) -> None:
    """Raise UsageError for a class of which no backend under test can be made: once, not as an error of each test."""
    if not isinstance(factory, type):
        return
    if not issubclass(factory, BackendUnderTest):
        raise pytest.UsageError(
            f"{where}: {name} is no subclass of pytest_queuey.contract.BackendUnderTest, which says how a backend is "
            "made for a test, and what it can do; write one, and name it"
        )
    if missing := sorted(getattr(factory, "__abstractmethods__", ())):
        raise pytest.UsageError(f"{where}: {name} lacks {', '.join(f'{method}()' for method in missing)}")


def try_out(config: pytest.Config) -> None:
    """Have a function that --queuey-backend names make a backend under test; raises CollectError where it does not."""
    factory = config.stash.get(_NAMED, None)
    if factory is None or isinstance(factory, type) or config.stash.get(_IS_TRIED, False):
        return
    where = f"--queuey-backend={config.stash[_SAID]}"
    with tempfile.TemporaryDirectory(prefix="queuey-") as folder:
        try:
            made = factory(Path(folder))
        except Exception as error:
            raise pytest.Collector.CollectError(
                f"{where}: called with an empty folder, it raises {type(error).__name__}: {error}"
            ) from error
        if (wrong := what_is_wrong(made)) is not None:
            raise pytest.Collector.CollectError(f"{where}: called with an empty folder, it returns {wrong}")
        made.close()
    config.stash[_IS_TRIED] = True


def named_backend(config: pytest.Config, *, needed_by: str) -> MakeUnderTest:
    """Return the factory of --queuey-backend; fails the test where none is named."""
    factory = config.stash.get(_NAMED, None)
    if factory is None:
        pytest.fail(
            f"no backend is given: override the fixture `backend_under_test` in {needed_by}, or name one with "
            "--queuey-backend=MODULE:CLASS, a subclass of pytest_queuey.contract.BackendUnderTest",
            pytrace=False,
        )
    return factory
