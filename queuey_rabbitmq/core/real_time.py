"""The machine's monotonic clock, which no test stops.

Libraries that freeze time replace what the module `time` names, `monotonic` too, in modules that are imported while it
is frozen as well. The system call behind it they leave alone.
"""

from __future__ import annotations

import sys
import time

if sys.platform == "win32":
    _held_ns = time.monotonic_ns

    def monotonic_ns() -> int:
        """Return the machine's monotonic clock in ns."""
        return _held_ns()

else:

    def monotonic_ns() -> int:
        """Return the machine's monotonic clock in ns."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def monotonic_s() -> float:
    """Return the machine's monotonic clock in seconds."""
    return monotonic_ns() / 1e9
