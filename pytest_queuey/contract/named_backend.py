"""Owns the backend that --queuey-backend names: finding the factory, and what is said where it is none.

A factory is called once for each test, with an empty folder. Before the tests it is tried out once, so that what is
wrong with it is one error, and not one of each test.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_queuey.contract.backend_under_test import BackendUnderTest, what_is_wrong
from pytest_queuey.contract.capabilities import check_known
from queuey_rabbitmq.core.backend import Backend

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
    except Exception as error:
        said = error if isinstance(error, ImportError) else _told(error)
        raise pytest.UsageError(f"{where}: the module cannot be imported: {said}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise pytest.UsageError(f"{where}: {module_name} ({module.__file__}) has no callable {name}")
    _refuse_other_classes(factory, where, name)
    declared = getattr(factory, "capabilities", None)
    if not isinstance(declared, property | None):
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
    """Have what --queuey-backend names make a backend, once in a run; raises CollectError where it does not."""
    factory = config.stash.get(_NAMED, None)
    if factory is None or config.stash.get(_IS_TRIED, False):
        return
    with tempfile.TemporaryDirectory(prefix="queuey-") as folder:
        try:
            wrong = _what_is_wrong_with(factory, Path(folder))
        except Exception as error:  # noqa: BLE001 -- whatever the code of somebody else raises
            wrong = f"making a backend, with an empty folder, raises {_told(error)}"
    if wrong is not None:
        raise pytest.Collector.CollectError(f"--queuey-backend={config.stash[_SAID]}: {wrong}")
    config.stash[_IS_TRIED] = True


def _what_is_wrong_with(factory: MakeUnderTest, folder: Path) -> str | None:
    made = factory(folder)
    if (wrong := what_is_wrong(made)) is not None:
        return f"called with an empty folder, it returns {wrong}"
    check_known(made.capabilities, f"{type(made).__name__}.capabilities")
    backend = made.backend()
    with contextlib.suppress(Exception):  # what closing does is for the contract to say
        made.close()
    missing = [name for name in vars(Backend) if name[0] != "_" and not callable(getattr(backend, name, None))]
    if not missing:
        return None
    lacks = ", ".join(f"{name}()" for name in missing)
    return f"its backend() returns {backend!r}, which lacks {lacks}: see the protocol queuey_rabbitmq.Backend"


def _told(error: Exception) -> str:
    """Return an exception with the place that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (raised in {place.filename}, line {place.lineno})"


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
