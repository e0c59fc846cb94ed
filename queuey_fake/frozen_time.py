"""The time that freezegun or time-machine shows to a test, where one of them does: read it, move it, be told of moves.

Imports neither: whoever freezes time has imported it. It reads their state and never `time.time()`, because freezegun
leaves modules alone whose names start with "queue", these among them.

Neither tells anybody when time is frozen, ticked, moved or thawed, so what does that is made to tell as soon as the
library is seen; whoever waits looks every few ms as well.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Protocol

from queuey_fake import freezegun_bridge

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- freezegun keeps frozen instants as naive UTC
MS = timedelta(milliseconds=1)
_TELLING = "_queuey_tells"


class Listener(Protocol):
    """Whoever wants to know of changes of shown time."""

    def shown_time_changes(self) -> None:
        """Let what has been done already take effect: shown time is about to change."""

    def shown_time_changed(self) -> None:
        """Look at the time: it may have changed."""


def shown_ms() -> int | None:
    """Return the time that is shown instead of the real one, in ms since the epoch; None where the real one is."""
    loaded = sys.modules
    if "freezegun.api" not in loaded and "time_machine" not in loaded:
        return None  # asked several times for each job
    freeze = _freeze()
    if freeze is not None:
        return (_instant(freeze) - EPOCH) // MS
    traveller = _traveller()
    return None if traveller is None else traveller.time_ns() // 1_000_000


def shown_by() -> str | None:
    """Return the name of the library that shows a time instead of the real one; None where the real one is shown."""
    if _freeze() is not None:
        return "freezegun"
    return None if _traveller() is None else "time-machine"


def move_shown_to(target_ms: int, *, below_ms: timedelta | None = None) -> None:
    """Move the time that is shown, as the test itself would; what it has below a ms stays, unless that is given too."""
    freeze = _freeze()
    if freeze is not None:
        shown = _instant(freeze)
        if by := _way(shown - EPOCH, target_ms, below_ms):  # a step of nothing makes an auto-ticking freeze tick
            freeze.move_to(shown + by)
        return
    traveller = _traveller()
    assert traveller is not None, "only time that is shown can be moved"
    # Its `move_to` takes an instant for one in another time zone, and moves the test there.
    traveller.shift(_way(timedelta(microseconds=traveller.time_ns() // 1000), target_ms, below_ms))
    if traveller.time_ns() // 1_000_000 < target_ms:
        traveller.shift(timedelta(microseconds=1))  # before its version 3 it calculates with floats


def _way(shown: timedelta, target_ms: int, below_ms: timedelta | None) -> timedelta:
    return target_ms * MS + (shown % MS if below_ms is None else below_ms) - shown


def listen(listener: Listener) -> None:
    """Tell the listener of changes from now on, for as long as it lives."""
    _listeners.add(listener)
    bridge()


def bridge() -> None:
    """Have freezegun, if it is loaded, freeze handlers and not connections; listeners are told by what is loaded.

    Each library is bridged once.
    """
    freezegun_bridge.install(_telling)
    time_machine = sys.modules.get("time_machine")
    if time_machine is None or hasattr(time_machine, _TELLING) or not hasattr(time_machine, "travel"):
        return
    setattr(time_machine, _TELLING, True)
    moves = getattr(time_machine, "Traveller", None) or time_machine.Coordinates
    for owner, methods in ((time_machine.travel, ("start", "stop")), (moves, ("shift", "move_to"))):
        for name in methods:
            setattr(owner, name, _telling(getattr(owner, name)))


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that tells the listeners before and after it has changed the time that is shown."""

    @wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        for listener in list(_listeners):
            listener.shown_time_changes()
        result = method(*args, **kwargs)
        for listener in list(_listeners):
            listener.shown_time_changed()
        return result

    return told


def _freeze() -> Any | None:
    api = sys.modules.get("freezegun.api")
    if api is None:
        return None
    bridge()
    factories = getattr(api, "freeze_factories", None)
    return factories[-1] if factories else None


def _instant(freeze: Any) -> datetime:
    # Calling an auto-ticking factory would tick it; only one that follows the real clock must be asked.
    instant: datetime = freeze() if hasattr(freeze, "start") else freeze.time_to_freeze
    return instant


def _traveller() -> Any | None:
    time_machine = sys.modules.get("time_machine")
    if time_machine is None:
        return None
    bridge()
    # Before its version 3 travellers were called coordinates.
    stack = getattr(time_machine, "traveller_stack", None) or getattr(time_machine, "coordinates_stack", None)
    return stack[-1] if stack else None
