"""Owns where each message is on a page: its stays in queues, each in a row of its queue's lane, and what marks them.

Follows what the journal has noted and decides nothing about messages; what does not fit together, because the middle of
a long life is forgotten, is shown as far as it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pytest_queuey.trace.steps import Step, job_of
from queuey_fake.journal import Event, Life, is_loss, told

NO_QUEUE: Final = ""
"""The lane of what no queue takes."""
LOST: Final = "lost"
_ENDS: Final = frozenset(
    {"acknowledged", "expired", "rejected", "overflowed", "returned too often", "purged", "lost", "dropped"}
)
_FOLLOWS: Final = frozenset({"dropped", "refused", "overflowed"})
"""What may be said of a message that has left its queue in the same moment."""
_LOSS_ROOM: Final = 3
"""Columns that the word beside the mark of a loss takes."""


@dataclass(slots=True)
class Mark:
    """Something that happened, at a place; `kind` is the journal's word for it, or LOST."""

    kind: str
    column: int
    text: str


@dataclass(slots=True, eq=False)
class Stay:
    """A message in a queue, from a column to a column, or to the end of the test (None)."""

    life: Life
    queue: str
    first: int
    last: int | None = None
    row: int = 0
    held: bool = False
    """Whether it waited until its time was over."""
    out: list[tuple[int, int | None]] = field(default_factory=list)
    """When it was with a consumer."""
    marks: list[Mark] = field(default_factory=list)

    @property
    def is_out(self) -> bool:
        """Return whether it is with a consumer."""
        return bool(self.out) and self.out[-1][1] is None

    def give_back(self, column: int) -> None:
        """Note that it is with no consumer any more."""
        if self.is_out:
            self.out[-1] = (self.out[-1][0], column)


@dataclass(frozen=True, slots=True)
class Link:
    """A message, or the next message of the same job, goes on from one stay to another."""

    life: Life
    origin: Stay
    target: Stay
    column: int
    is_same_message: bool


@dataclass(slots=True)
class Lane:
    """A queue, and how many rows its messages take at once."""

    queue: str
    rows: int
    messages: int
    losses: int


@dataclass(slots=True)
class Scene:
    """Everything that is drawn."""

    lanes: list[Lane]
    stays: list[Stay]
    links: list[Link]


def scene_of(steps: Sequence[Step]) -> Scene:
    """Return where everything is."""
    walk = _Walk()
    for step in steps:
        walk.take(step)
    return Scene(list(_lanes(walk.stays)), walk.stays, walk.links)


class _Walk:
    """Follows the steps and remembers where each message is."""

    def __init__(self) -> None:
        self.stays: list[Stay] = []
        self.links: list[Link] = []
        self._open: dict[tuple[int, str], list[Stay]] = {}
        self._last: dict[int, Stay] = {}
        self._in_hand: dict[str, Stay] = {}

    def take(self, step: Step) -> None:
        number = step.life.number
        origin = self._last.get(number)
        for event in step.events:
            what, queue = event[2], event[3]
            if what == "queued":
                stay = self._enter(step, queue, event)
                self._link(step, origin, stay)
            elif what not in ("published", "dead-lettered"):
                origin = self._happen(step, event)
        if all(event[2] == "published" for event in step.events):
            self._mark(self._enter(step, NO_QUEUE), step, step.events[-1])
            self._leave(number, NO_QUEUE, step.column)

    def _enter(self, step: Step, queue: str, event: Event | None = None) -> Stay:
        stay = Stay(step.life, queue, step.column)
        self.stays.append(stay)
        self._open.setdefault((step.life.number, queue), []).append(stay)
        self._last[step.life.number] = stay
        if event is not None:
            is_new = any(each[2] == "published" for each in step.events)
            text = "; ".join(told(each) for each in step.events if each[2] == "published" or each[3] == queue)
            stay.marks.append(Mark("published" if is_new else "queued", step.column, text))
        return stay

    def _link(self, step: Step, origin: Stay | None, stay: Stay) -> None:
        job = job_of(step.life)
        if origin is not None and origin.last == step.column and stay.marks[0].kind == "queued":
            self.links.append(Link(step.life, origin, stay, step.column, is_same_message=True))
        elif (in_hand := self._in_hand.get(job)) is not None and in_hand.is_out:
            self.links.append(Link(step.life, in_hand, stay, step.column, is_same_message=False))

    def _happen(self, step: Step, event: Event) -> Stay:
        """Let something happen to a message where it is."""
        what, queue = event[2], event[3]
        number, column = step.life.number, step.column
        stays = self._open.get((number, queue), [])
        wanted_out = what in ("acknowledged", "requeued", "rejected", "returned too often")
        stay = next((stay for stay in stays if stay.is_out is wanted_out), stays[0] if stays else None)
        before = self._last.get(number)
        if what in _FOLLOWS and before is not None and before.last == column:
            stay = before
        if stay is None:
            stay = self._enter(step, queue)
            self._leave(number, queue, column)
        if what in ("delivered", "got"):
            stay.out.append((column, None))
            self._in_hand[job_of(step.life)] = stay
        elif what == "requeued":
            stay.give_back(column)
        elif what in _ENDS:
            stay.give_back(column)
            stay.held = stay.held or what == "expired"
            stay.last = column
            if stay in stays:
                stays.remove(stay)
        self._mark(stay, step, event)
        return stay

    def _leave(self, number: int, queue: str, column: int) -> None:
        self._open[number, queue].pop().last = column

    def _mark(self, stay: Stay, step: Step, event: Event) -> None:
        kind = LOST if is_loss(event) else event[2]
        text = told(event)
        if stay.marks and stay.marks[-1].column == step.column:
            # What follows at once from something is at the same place: the last word stands for all.
            text = f"{stay.marks.pop().text}; {text}"
        stay.marks.append(Mark(kind, step.column, text))


def _lanes(stays: Iterable[Stay]) -> Iterable[Lane]:
    """Give each stay a row, and yield the lanes in the order in which queues come up; what no queue takes is first."""
    by_queue: dict[str, list[Stay]] = {}
    for stay in stays:
        by_queue.setdefault(stay.queue, []).append(stay)
    for queue in sorted(by_queue, key=lambda name: name != NO_QUEUE):
        inside = by_queue[queue]
        free_from: list[float] = []
        for stay in sorted(inside, key=lambda stay: stay.first):
            is_lost = any(mark.kind == LOST for mark in stay.marks)
            until = float("inf") if stay.last is None else stay.last + (_LOSS_ROOM if is_lost else 0)
            stay.row = next((row for row, free in enumerate(free_from) if free < stay.first), len(free_from))
            free_from[stay.row : stay.row + 1] = [until]
        losses = sum(mark.kind == LOST for stay in inside for mark in stay.marks)
        yield Lane(queue, len(free_from), len({stay.life.number for stay in inside}), losses)
