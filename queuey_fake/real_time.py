"""The machine's own clocks, whatever time freezegun or time-machine shows.

freezegun replaces what the module `time` names, and leaves the system call behind it alone. time-machine moves the
system call for the wall clock too, and has a way around itself.
"""

from __future__ import annotations

import sys
import time

if sys.platform == "win32":
    _held_monotonic_ns, _held_time_ns = time.monotonic_ns, time.time_ns

    def _monotonic_ns() -> int:
        return _held_monotonic_ns()

    def _time_ns() -> int:
        return _held_time_ns()

else:

    def _monotonic_ns() -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def _time_ns() -> int:
        time_machine = sys.modules.get("time_machine")
        if time_machine is not None and time_machine.escape_hatch.is_travelling():
            shown_past: int = time_machine.escape_hatch.time.clock_gettime_ns(time.CLOCK_REALTIME)
            return shown_past
        return time.clock_gettime_ns(time.CLOCK_REALTIME)


def monotonic_s() -> float:
    """Return the machine's monotonic clock in seconds."""
    return _monotonic_ns() / 1e9


def now_ms() -> int:
    """Return the machine's wall clock in ms since the epoch."""
    return _time_ns() // 1_000_000
