"""The time that freezegun or time-machine shows to a test, where one of them does: read it, move it, be told of moves.

Imports neither: whoever freezes time has imported it. It reads their state and never `time.time()`, because freezegun
leaves modules alone whose names start with "queue", these among them.

freezegun tells nobody when time is frozen, ticked, moved or thawed, so its methods are wrapped, once, as soon as it is
seen; a clock that waits looks every few ms as well, which is all there is for time-machine.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Protocol

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- freezegun keeps frozen instants as naive UTC
MS = timedelta(milliseconds=1)


class Listener(Protocol):
    """Whoever wants to know that shown time may have changed."""

    def shown_time_changed(self) -> None:
        """Look at the time."""


def shown_ms() -> int | None:
    """Return the time that is shown instead of the real one, in ms since the epoch; None where the real one is."""
    freeze = _freeze()
    if freeze is not None:
        return (_instant(freeze) - EPOCH) // MS
    traveller = _traveller()
    return None if traveller is None else traveller.time_ns() // 1_000_000


def move_shown_to(target_ms: int) -> None:
    """Move the time that is shown, as the test itself would."""
    freeze = _freeze()
    if freeze is not None:
        freeze.move_to(EPOCH + target_ms * MS)
        return
    traveller = _traveller()
    assert traveller is not None, "only time that is shown can be moved"
    traveller.move_to(datetime.fromtimestamp(0, UTC) + target_ms * MS)


def listen(listener: Listener) -> None:
    """Tell the listener of changes from now on, for as long as it lives."""
    _listeners.add(listener)
    _wrap_freezegun()


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
_WRAPPED = "_queuey_wrapped"


def _freeze() -> Any | None:
    api = sys.modules.get("freezegun.api")
    if api is None:
        return None
    _wrap_freezegun()
    factories = getattr(api, "freeze_factories", None)
    return factories[-1] if factories else None


def _instant(freeze: Any) -> datetime:
    # Calling an auto-ticking factory would tick it; only one that follows the real clock must be asked.
    instant: datetime = freeze() if hasattr(freeze, "start") else freeze.time_to_freeze
    return instant


def _traveller() -> Any | None:
    time_machine = sys.modules.get("time_machine")
    stack = getattr(time_machine, "traveller_stack", None)
    return stack[-1] if stack else None


def _wrap_freezegun() -> None:
    """Have listeners told after every call that changes frozen time; done once, and only when freezegun is there."""
    api = sys.modules.get("freezegun.api")
    if api is None or getattr(api, _WRAPPED, False):
        return
    setattr(api, _WRAPPED, True)
    for owner, methods in (
        (api._freeze_time, ("start", "stop")),  # noqa: SLF001 -- freezegun has no other place that all freezes pass
        (api.FrozenDateTimeFactory, ("tick", "move_to")),
        (api.TickingDateTimeFactory, ("tick", "move_to")),
        # Its tick is what reading the time does.
        (api.StepTickTimeFactory, ("move_to",)),
    ):
        for name in methods:
            setattr(owner, name, _telling(getattr(owner, name)))


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        for listener in list(_listeners):
            listener.shown_time_changed()
        return result

    return told
