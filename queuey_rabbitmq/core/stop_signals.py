"""SIGTERM and SIGINT as the wish to shut down, for as long as a worker runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(first: Callable[[], None], again: Callable[[], None]) -> Iterator[None]:
    """Call `first` at the first of the signals and `again` at every other; give back what was installed before.

    Both run between two instructions of the main thread, so they must not wait for a lock. Does nothing in another
    thread, where Python takes no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        act, asked = (again if asked else first), True
        act()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for a handler that was not installed from Python, and cannot be given back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
