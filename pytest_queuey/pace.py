"""How time passes on each kind of broker: from one due instant to the next in memory, really on a real one.

Owns the bound of real waits, and that time which a library shows to a test passes along with it.
"""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from queuey_fake import frozen_time, real_time
from queuey_fake.clock import MS_PER_SECOND, duration_ms

if TYPE_CHECKING:
    from queuey_fake import FakeBroker

_LOOK_EVERY_MS: Final = 20
"""How often a real broker is looked at."""


class Pace(Protocol):
    """How time passes."""

    lag_ms: int
    """How much later than due something may happen."""

    def check(self, seconds: float) -> None:
        """Fail the test where it is not allowed to let so many seconds pass."""

    def begin(self) -> None:
        """Let time pass from now on, also while work is done, where it passes by itself."""

    def let_others_finish(self) -> None:
        """Let other threads finish what they have in hand; have time that is shown come up with real time."""

    def move_on(self, until_ms: int | None) -> None:
        """Let time pass until something may be due, and no longer than until an instant, in ms since the epoch."""

    def is_over(self) -> bool:
        """Tell whether nothing is due any more."""

    def explain(self) -> str:
        """Return what is held and due, in lines that begin with a line break; nothing where nobody knows."""


class FakePace:
    """The pace of the broker in memory."""

    lag_ms = 0

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._clock = broker.manual_clock

    def check(self, seconds: float) -> None:
        """Do nothing: no duration is too long."""

    def begin(self) -> None:
        """Do nothing: work takes no time."""

    def let_others_finish(self) -> None:
        """Let other threads finish; what is due now happens."""
        self._clock.move_to_ms(self._clock.now_ms())

    def move_on(self, until_ms: int | None) -> None:
        """Move to the next instant at which something is due."""
        due_ms = self._clock.next_due_ms()
        target_ms = min((ms for ms in (due_ms, until_ms) if ms is not None), default=None)
        if target_ms is not None:
            self._clock.move_to_ms(max(target_ms, self._clock.now_ms()))

    def is_over(self) -> bool:
        """Tell whether nothing is due any more."""
        return self._clock.next_due_ms() is None

    def explain(self) -> str:
        """Return what is held and due."""
        return f":\n{self._broker.explain()}"


class RealPace:
    """The pace of the world, which a test may wait for as long as `longest` says, in seconds."""

    lag_ms = 50
    """What a real broker's timers are given beyond their time."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._noted_s = 0.0
        self._noted_ms: int | None = None

    def check(self, seconds: float) -> None:
        """Fail the test where it would wait too long."""
        if seconds > self._longest:
            pytest.fail(
                f"this test moves time by {seconds:g} s, and on a real broker that is really waited for: more than "
                f"the {self._longest:g} s that queuey_max_real_wait (--queuey-max-real-wait) allows. Make the "
                f"durations of the test shorter, raise that, or keep the test to the fake with "
                "@pytest.mark.queuey_broker('fake')."
            )

    def begin(self) -> None:
        """Note the instant, in real time and in what is shown."""
        self._noted_s, self._noted_ms = real_time.monotonic_s(), frozen_time.shown_ms()

    def let_others_finish(self) -> None:
        """Move the time that is shown by what has really passed: nothing comes before its time in it."""
        shown_ms = frozen_time.shown_ms()
        if shown_ms is not None and self._noted_ms is not None:
            passed_ms = math.ceil((real_time.monotonic_s() - self._noted_s) * 1000)
            target_ms = min(shown_ms, self._noted_ms) + passed_ms  # where a handler has set it back, from there
            if shown_ms < target_ms:
                frozen_time.move_shown_to(target_ms)
        self.begin()

    def move_on(self, until_ms: int | None) -> None:
        """Wait for a moment."""
        left_ms = _LOOK_EVERY_MS if until_ms is None else until_ms + self.lag_ms - round(time.time() * 1000)
        time.sleep(max(1, min(left_ms, _LOOK_EVERY_MS)) / 1000)

    def wait(self, seconds: float, *, lag: bool = False) -> None:
        """Wait, with `lag` a little longer for what is due at the end; time that is shown moves by `seconds`."""
        shown_ms = frozen_time.shown_ms()
        time.sleep(seconds + (self.lag_ms / 1000 if lag else 0))
        if shown_ms is not None and (frozen_time.shown_ms() or 0) < (target_ms := shown_ms + round(seconds * 1000)):
            frozen_time.move_shown_to(target_ms)

    def is_over(self) -> bool:
        """Tell that something may always come: a real broker does not say what is due."""
        return False

    def explain(self) -> str:
        """Return nothing: a real broker does not say what is due."""
        return ""


def in_seconds(duration: timedelta | float) -> float:
    """Return a duration (seconds or timedelta) in seconds, to the ms; raises as `queuey_fake.clock.duration_ms`."""
    return duration_ms(duration) / MS_PER_SECOND
