"""A faithful RabbitMQ in memory, with a clock that can be moved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuey_fake.clock import Clock, ManualClock, SystemClock
    from queuey_fake.fake_broker import FakeBroker

_MODULES = {
    "Clock": "queuey_fake.clock",
    "FakeBroker": "queuey_fake.fake_broker",
    "ManualClock": "queuey_fake.clock",
    "SystemClock": "queuey_fake.clock",
}

__all__ = ["Clock", "FakeBroker", "ManualClock", "SystemClock"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
