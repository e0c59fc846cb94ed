"""The pytest plugin: `queuey_broker` and friends, and the contract suite for backends.

The names here are for annotations; tests get the objects as fixtures. They are loaded when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest, NotOnThisBrokerError, QueueLook
    from pytest_queuey.faults import Faults
    from pytest_queuey.queuey_clock import QueueyClock

__all__ = ["BrokerUnderTest", "Faults", "NotOnThisBrokerError", "QueueLook", "QueueyClock"]

_HOMES = {
    "BrokerUnderTest": "pytest_queuey.broker_under_test",
    "Faults": "pytest_queuey.faults",
    "NotOnThisBrokerError": "pytest_queuey.broker_under_test",
    "QueueLook": "pytest_queuey.broker_under_test",
    "QueueyClock": "pytest_queuey.queuey_clock",
}

# The contract's assertions explain themselves also where pytest does not rewrite installed plugins on its own:
# with plugin autoload off, or loaded by `-p pytest_queuey.plugin`.
pytest.register_assert_rewrite("pytest_queuey.contract")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
