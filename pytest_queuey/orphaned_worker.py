"""Owns the end of an xdist worker whose controller was killed: nobody hears it any more, and its broker is gone.

Left alone it would go on trying to reach the broker, until execnet ends it a quarter of a minute later.
"""

from __future__ import annotations

import os
import signal
from threading import Event, Thread
from typing import Final

_LOOK_EVERY: Final = 0.1
_GRACE: Final = 0.5
"""Seconds that fixtures of the test that runs have to end what is theirs."""


def end_without(controller: int) -> Event:
    """Watch over the controller from a thread, and end this process when it is gone; return what calls that off.

    A worker that is no child of the controller, as on another machine, is left alone.
    """
    called_off = Event()
    if os.getppid() == controller:
        Thread(target=_watch, args=(controller, called_off), daemon=True, name="queuey-controller").start()
    return called_off


def _watch(controller: int, called_off: Event) -> None:
    while os.getppid() == controller:
        if called_off.wait(_LOOK_EVERY):
            return
    os.kill(os.getpid(), signal.SIGINT)
    called_off.wait(_GRACE)
    os._exit(1)
