"""Owns where a moment is on a page: columns from left to right, instants apart, and what the gaps between them say.

The axis keeps the order and not the distances: 24 days without an event take no more room than 30 seconds, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from queuey_fake.wording import duration

MARGIN: Final = 14
END: Final = 26
"""Room behind the last column, in which what is still there at the end can be seen to be."""
_CHARACTER: Final = 6.2
"""How wide a character of a label is, about, in pixels."""
_MANY_INSTANTS: Final = 40
_COLUMN_WIDTHS: Final = ((60, 28), (200, 16), (10**9, 9))


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant of virtual time: where it is, and what stands above it and in the gap before it."""

    at_ms: int
    left: float
    right: float
    gap_left: float
    gap: str
    since_start: str
    clock: str
    date: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Where everything is."""

    columns: list[float]
    """The middle of each column."""
    instants: list[Instant]
    width: float


def axis_of(times_ms: Sequence[int], end_ms: int) -> Axis:
    """Lay out columns that are at these times, and the end of the test, which may be later than all of them."""
    runs = _runs(times_ms, end_ms)
    width = next(width for most, width in _COLUMN_WIDTHS if len(times_ms) <= most)
    is_tight = len(runs) > _MANY_INSTANTS
    columns: list[float] = []
    instants: list[Instant] = []
    x = float(MARGIN)
    for number, (at_ms, count) in enumerate(runs):
        gap_left = x
        gap = "" if number == 0 else _gap(at_ms - runs[number - 1][0], is_tight=is_tight)
        x += len(gap) * _CHARACTER + 14 if gap else 0
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        clock = moment.strftime("%H:%M:%S") + (f".{at_ms % 1000:03d}" if at_ms % 1000 else "")
        date = moment.strftime("%Y-%m-%d")
        if instants and date == datetime.fromtimestamp(instants[-1].at_ms / 1000, UTC).strftime("%Y-%m-%d"):
            date = ""
        since = _since_start(at_ms - runs[0][0])
        label = (
            0.0 if is_tight else max(len(since) * _CHARACTER * 1.15, len(clock) * _CHARACTER, len(date) * _CHARACTER)
        )
        room = max(count * width, label + 10, width)
        before = (room - count * width) / 2
        columns += [x + before + (place + 0.5) * width for place in range(count)]
        room += END if number == len(runs) - 1 else 0
        instants.append(Instant(at_ms, x, x + room, gap_left, gap, since, clock, date))
        x += room
    return Axis(columns, instants, x + MARGIN)


def _runs(times_ms: Sequence[int], end_ms: int) -> list[tuple[int, int]]:
    """Return each instant with the number of its columns; the end has none of its own."""
    runs: list[tuple[int, int]] = []
    for at_ms in times_ms:
        if runs and runs[-1][0] == at_ms:
            runs[-1] = (at_ms, runs[-1][1] + 1)
        else:
            runs.append((at_ms, 1))
    if not runs or runs[-1][0] != end_ms:
        runs.append((end_ms, 0))
    return runs


def _gap(ms: int, *, is_tight: bool) -> str:
    how_long = duration(abs(ms))
    if ms < 0:
        return f"{how_long} earlier"
    return how_long if is_tight else f"{how_long} later"


def _since_start(ms: int) -> str:
    if ms == 0:
        return "start"
    return f"{'+' if ms > 0 else '-'}{duration(abs(ms))}"
