"""Owns which messages a page shows where a test made more than can be looked at, and what it says of the others."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from queuey_fake.journal import Life

MAX_MESSAGES: Final = 300
MAX_EVENTS: Final = 2_500
_PLAIN: Final = frozenset({"published", "queued", "delivered", "got", "acknowledged"})


class Chosen(NamedTuple):
    """What is shown, in the order of publishing, and a sentence for each kind of thing that is not."""

    lives: list[Life]
    left_out: list[str]


def choose(lives: Sequence[Life], *, lost: AbstractSet[int], forgotten: int) -> Chosen:
    """Choose lost messages first, then those that something happened to, then the first that were published."""
    by_interest = sorted(lives, key=lambda life: (life.number not in lost, _is_plain(life), life.number))
    kept: list[Life] = []
    events = 0
    for life in by_interest[:MAX_MESSAGES]:
        events += len(life.events)
        if kept and events > MAX_EVENTS:
            break
        kept.append(life)
    return Chosen(sorted(kept, key=lambda life: life.number), list(_left_out(lives, kept, forgotten)))


def _is_plain(life: Life) -> bool:
    return all(what in _PLAIN for _, _, what, _, _ in life.events)


def _left_out(lives: Sequence[Life], kept: Sequence[Life], forgotten: int) -> list[str]:
    said = []
    if len(kept) < len(lives):
        said.append(
            f"{len(kept):,} of {len(lives):,} messages are shown: lost ones before all others, then those that were "
            "held, returned, rejected or dropped, then the first that were published."
        )
    if forgotten:
        said.append(f"{forgotten:,} older messages are forgotten.")
    cut = [life for life in kept if life.left_out]
    if cut:
        events = sum(life.left_out for life in cut)
        whose = "one message" if len(cut) == 1 else f"{len(cut):,} messages"
        said.append(f"{events:,} events from the middle of the very long lives of {whose} are left out.")
    return said
