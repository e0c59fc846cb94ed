"""Owns the order of a page: what happened, in steps from left to right.

A step is what happened to one message at once: published and queued; expired, dead-lettered and queued elsewhere. Steps
of one instant share a column as long as they are of different jobs, so that no column says anything of one job in a
wrong order, and a thousand publishes are one column. Columns never contradict the order in which things happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from queuey_fake.journal import Event, Life

_LEADS_ON: Final = frozenset(
    {"published", "refused", "expired", "rejected", "overflowed", "returned too often", "dead-lettered"}
)
"""What is never the last word on a message: something follows from it in the same moment."""


@dataclass(slots=True)
class Step:
    """What happened to a message at once, and in which column that is shown."""

    life: Life
    events: list[Event]
    column: int = -1

    @property
    def at_ms(self) -> int:
        """Return when, in ms since the epoch."""
        return self.events[0][1]


def job_of(life: Life) -> str:
    """Return what all messages of one job have in common."""
    return life.message_id or f"#{life.number}"


def steps_of(lives: Iterable[Life]) -> list[Step]:
    """Return the steps of all lives in the order in which they happened, each in its column."""
    steps = sorted((step for life in lives for step in _steps(life)), key=lambda step: step.events[0])
    column, at_ms, inside = -1, None, set[str]()
    for step in steps:
        job = job_of(step.life)
        if step.at_ms != at_ms or job in inside:
            column, at_ms, inside = column + 1, step.at_ms, set()
        inside.add(job)
        step.column = column
    return steps


def _steps(life: Life) -> list[Step]:
    steps: list[Step] = []
    for event in list(life.events):
        if steps and _goes_with(steps[-1].events[-1], event):
            steps[-1].events.append(event)
        else:
            steps.append(Step(life, [event]))
    return steps


def _goes_with(before: Event, event: Event) -> bool:
    _, at_ms, what, queue, _ = before
    spreads = what == event[2] == "queued" and queue != event[3]
    return at_ms == event[1] and (what in _LEADS_ON or spreads)
