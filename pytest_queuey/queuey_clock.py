"""Owns the time of one test, `queuey_clock`: moved on the fake, really waited for on a real broker.

Refuses to know which: the broker under test does what its kind can do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class QueueyClock:
    """The clock of the test's broker."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._broker = broker

    def now_ms(self) -> int:
        """Return the broker's time, in ms since the epoch."""
        return self._broker.now_ms()

    def advance(self, duration: timedelta | float) -> None:
        """Let a duration (seconds or timedelta) pass; everything due in it has happened when this returns.

        On a real broker it is really waited for; the test fails where that is longer than the ini
        queuey_max_real_wait allows.
        """
        self._broker.advance(duration)

    def move_to(self, instant: datetime) -> None:
        """Let time pass until an instant; one without a time zone is in UTC. Raises ValueError for one in the past."""
        aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
        left = (aware - _EPOCH) - self._broker.now_ms() * _MILLISECOND
        if left < timedelta(0):
            raise ValueError(f"{aware.isoformat()} is {-left} in the past of the broker: its time cannot go back")
        self._broker.advance(left)
