"""What freezegun must be told so that handlers see frozen time and connections do not, and nobody misses a change.

freezegun decides twice by the names of modules. When time is frozen it leaves the names alone that modules on its list
hold; and whenever somebody asks for the time it looks at the five nearest frames, and shows the real time where one of
them is of a module on the list. The list is of prefixes and names "queue" and "threading": so a handler that a worker
calls, in a module of queuey or near the start of a thread, sees the real `time.time()` while `datetime.now()` is
frozen. And it does not name pika, whose timers would stand still, and never be right again after the freeze.

So the names of "threading" and of queuey's modules stay alone, as they hold nothing that should be frozen, but frames
are not looked at for "queue" and "threading"; pika is on both lists. Nothing here is done before freezegun is loaded,
and nothing where it is not used.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from queuey_fake import real_time

FROZEN = frozenset({"queue", "threading"})
"""What is on freezegun's list, and whose frames may see frozen time."""
REAL = ("pika.",)
"""What must see real time."""
UNTOUCHED = ("threading", "queuey_rabbitmq.", "queuey_fake.", "pytest_queuey.")
"""What holds no name of its own that should be frozen; looking through it would cost each freeze time."""

_INSTALLED = "_queuey_bridge"


def install(telling: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Bridge freezegun if it is loaded, once; `telling` makes of what freezes, moves or thaws time one that tells."""
    api = sys.modules.get("freezegun.api")
    if api is None or hasattr(api, _INSTALLED) or not hasattr(api, "freeze_time"):
        return
    setattr(api, _INSTALLED, True)
    _pin_queue(api)
    # Freezes that began before.
    api.ignore_lists[:] = [_of_frames(names) for names in api.ignore_lists]
    api._freeze_time.start = _starting(api, api._freeze_time.start)  # noqa: SLF001 -- the one place all freezes pass
    for owner, methods in (
        (api._freeze_time, ("start", "stop")),  # noqa: SLF001 -- as above
        (api.FrozenDateTimeFactory, ("tick", "move_to")),
        (api.TickingDateTimeFactory, ("tick", "move_to")),
        # Its tick is what reading the time does.
        (api.StepTickTimeFactory, ("move_to",)),
    ):
        for name in methods:
            setattr(owner, name, telling(getattr(owner, name)))


def _of_frames(names: Iterable[str]) -> tuple[str, ...]:
    """Return the list by which frames are looked at, made of freezegun's."""
    return (*(name for name in names if name not in FROZEN and name not in REAL and name not in UNTOUCHED), *REAL)


def _starting(api: Any, start: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(start)
    def started(freeze: Any) -> Any:
        of_frames = _of_frames(freeze.ignore)
        freeze.ignore = (*of_frames, *UNTOUCHED)
        try:
            factory = start(freeze)
        finally:
            # By this one `stop` gives back their names to modules that were loaded meanwhile, ours among them.
            freeze.ignore = of_frames
        api.ignore_lists[-1] = of_frames
        return factory

    return started


def _pin_queue(api: Any) -> None:
    """Keep the waits of `queue.Queue` real, as freezegun's list did; it replaces no function that it does not know."""
    queue.time = real_time.monotonic_s  # type: ignore[attr-defined]  # what it calls `time` is no part of its interface
    api._GLOBAL_MODULES_CACHE.pop("queue", None)  # noqa: SLF001 -- what freezegun remembers of it is not true any more
