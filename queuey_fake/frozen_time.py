"""The time that freezegun or time-machine shows to a test, where one of them does: read it, move it, be told of moves.

Imports neither: whoever freezes time has imported it. It reads their state and never `time.time()`, because freezegun
leaves modules alone whose names start with "queue", these among them.

freezegun tells nobody when time is frozen, ticked, moved or thawed, so it is bridged as soon as it is seen; a clock
that waits looks every few ms as well, which is all there is for time-machine.
"""

from __future__ import annotations

import sys
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from queuey_fake import freezegun_bridge

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
    bridge()


def bridge() -> None:
    """Have freezegun, if it is loaded, freeze handlers and not connections, and listeners told of it; done once."""
    freezegun_bridge.install(_tell)


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def _tell() -> None:
    for listener in list(_listeners):
        listener.shown_time_changed()


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
    stack = getattr(time_machine, "traveller_stack", None)
    return stack[-1] if stack else None
