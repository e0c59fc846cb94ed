"""What becomes of each job, and what is done to the broker meanwhile: all of it drawn from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

LONGEST_DELAY_MS = 2_000
GRANULARITY_MS = 100

FAULTS = {
    "cut": 6,
    "cut before a confirm": 3,
    "cut after a confirm": 3,
    "refuse": 2,
    "hang": 2,
    "late": 1,
    "nack": 2,
    "return": 1,
    "cancel consumers": 2,
    "alarm": 2,
    "stop": 1,
    "kill": 2,
    "restart": 1,
}
"""How often each fault is played before all begin anew; what they do is `trouble`'s."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one run of a job ends with."""

    outcome: Literal["done", "dead", "defer", "retry"]
    delay_ms: int = 0


def fate_of(seed: int, number: int) -> list[Step]:
    """Return the outcomes of a job's runs, in order; its last is done or dead."""
    dice = random.Random(seed * 1_000_003 + number)  # noqa: S311 -- a game, not a secret
    steps = []
    while dice.random() < 0.35 and len(steps) < 6:
        delay_ms = dice.randrange(GRANULARITY_MS, LONGEST_DELAY_MS + 1, GRANULARITY_MS)
        steps.append(Step(dice.choice(("defer", "retry")), delay_ms))
    return [*steps, Step("dead" if dice.random() < 0.1 else "done")]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to the broker, or to the connections to it, for so many seconds."""

    kind: str
    seconds: float
    pause: float
    """Seconds of quiet before it."""


def faults_of(seed: int) -> Iterator[Fault]:
    """Return the faults in order, without end; each kind comes as often as FAULTS says before all begin anew."""
    dice = random.Random(seed)  # noqa: S311 -- a game, not a secret
    while True:
        deck = [kind for kind, times in FAULTS.items() for _ in range(times)]
        dice.shuffle(deck)
        for kind in deck:
            yield Fault(kind, seconds=dice.uniform(0.1, 1.5), pause=dice.uniform(0.1, 1.2))
