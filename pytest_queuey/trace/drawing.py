"""Owns the picture: a scene and an axis as SVG. What it is told is escaped, whatever it is.

Every message is a link to its story below the picture, and can be reached by the keyboard. What happened is shown by
shape and, where something was lost, in words; colour only helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from html import escape
from typing import Final

from pytest_queuey.trace.axis import Axis
from pytest_queuey.trace.lanes import LOST, NO_QUEUE, Lane, Link, Scene, Stay
from pytest_queuey.trace.steps import job_of

AXIS_HEIGHT: Final = 64
_PADDING: Final = 9
_LEAST_LANE: Final = 54
_TALL: Final = 300
"""From which height on a lane's name stands at its top."""
_ROW_HEIGHTS: Final = ((30, 26), (90, 15), (10**9, 8))
_ROOMY: Final = 15
"""The least height of a row in which there is room for a message's number, and for words at each mark."""

MARKS: Final = {
    "published": "published",
    "queued": "arrived from another queue",
    "delivered": "delivered to a consumer",
    "got": "taken with basic.get",
    "acknowledged": "acknowledged",
    "requeued": "given back",
    "expired": "expired: its time in the queue was over",
    "rejected": "rejected",
    "overflowed": "dropped out of a full queue",
    "returned too often": "returned too often: delivery limit",
    "refused": "refused by a full queue",
    "returned": "returned to its publisher: unroutable",
    "dropped": "dropped, as somebody asked",
    "purged": "purged",
    LOST: "LOST: dropped without a trace",
    "still": "still there at the end of the test",
}
"""The marks, each a symbol in marks.svg, and what they mean."""
LINES: Final = {
    "wait": "waits in a queue",
    "held": "waits until its time there is over",
    "out": "is with a consumer",
    "next": "the next message of the same job",
}
"""The lines, each a class in page.css, and what they mean."""
_SYMBOLS: Final = {"returned too often": "rejected", "overflowed": "rejected", "purged": "dropped"}


@dataclass(frozen=True, slots=True)
class Picture:
    """The parts of a picture, ready to be put into a page."""

    axis: str
    body: str
    names: str
    width: float
    height: float
    kinds: AbstractSet[str]
    """The marks that come up."""
    density: str
    """How close rows are: roomy, close or dense."""


def draw(scene: Scene, axis: Axis, *, expected: AbstractSet[int], jobs: Mapping[str, int]) -> Picture:
    """Draw a scene; `expected` are the messages whose loss is expected, `jobs` each job's number on the page."""
    rows = sum(lane.rows for lane in scene.lanes)
    row_height = next(height for most, height in _ROW_HEIGHTS if rows <= most)
    pen = _Pen(scene, axis, row_height, expected)
    by_life: dict[int, list[Stay]] = {}
    links: dict[int, list[Link]] = {}
    for stay in scene.stays:
        by_life.setdefault(stay.life.number, []).append(stay)
    for link in scene.links:
        links.setdefault(link.life.number, []).append(link)
    messages = (
        pen.message(stays, links.get(number, []), jobs[job_of(stays[0].life)]) for number, stays in by_life.items()
    )
    return Picture(
        axis="".join(pen.axis()),
        body="".join([*pen.background(), *messages]),
        names="".join(pen.names()),
        width=axis.width,
        height=pen.height,
        kinds={mark.kind for stay in scene.stays for mark in stay.marks}
        | {"still" for stay in scene.stays if stay.last is None},
        density={26: "roomy", 15: "close", 8: "dense"}[row_height],
    )


class _Pen:
    """Knows where things are, in pixels."""

    def __init__(self, scene: Scene, axis: Axis, row_height: int, expected: AbstractSet[int]) -> None:
        self._axis = axis
        self._row_height = row_height
        self._is_roomy = row_height >= _ROOMY
        self._expected = expected
        self._lanes = scene.lanes
        self._tops: dict[str, float] = {}
        self._heights: list[float] = []
        self.height = 0.0
        for lane in scene.lanes:
            height = max(lane.rows * row_height + 2 * _PADDING, _LEAST_LANE)
            self._tops[lane.queue] = self.height + (height - lane.rows * row_height) / 2
            self._heights.append(height)
            self.height += height

    # --------------------------------------------------------------------------------------- around it

    def axis(self) -> Iterable[str]:
        """Yield the instants, and how long it is from each to the next."""
        free_from = -1.0
        for instant in self._axis.instants:
            middle = (instant.left + instant.right) / 2
            if instant.gap:
                yield _text((instant.gap_left + instant.left) / 2, 56, "gap", instant.gap)
            whole = f"{instant.since_start}, {instant.date} {instant.clock} UTC"
            yield f'<g class="at"><title>{escape(whole)}</title>'
            yield f'<path d="M{_n(instant.left)} 52.5h{_n(instant.right - instant.left)}"/>'
            half = max(len(instant.since_start), len(instant.clock)) * 3.4
            if middle - half > free_from:
                free_from = middle + half
                yield _text(middle, 17, "since", instant.since_start)
                yield _text(middle, 32, "clock", instant.clock)
                yield _text(middle, 46, "clock", instant.date)
            yield "</g>"

    def background(self) -> Iterable[str]:
        """Yield the lanes and the instants, which everything else is drawn on."""
        top = 0.0
        for number, height in enumerate(self._heights):
            yield f'<rect class="lane{number % 2}" y="{_n(top)}" width="{_n(self._axis.width)}" height="{_n(height)}"/>'
            top += height
        for instant in self._axis.instants:
            width = instant.right - instant.left
            yield f'<rect class="instant" x="{_n(instant.left)}" width="{_n(width)}" height="{_n(self.height)}"/>'

    def names(self) -> Iterable[str]:
        """Yield a heading for each lane."""
        for lane, height in zip(self._lanes, self._heights, strict=True):
            kind = "name tall" if height > _TALL else "name"
            yield (
                f'<div class="{kind}" data-queue="{escape(lane.queue)}" style="height:{_n(height)}px">'
                f"<div>{_heading(lane)}</div></div>"
            )

    # --------------------------------------------------------------------------------------- messages

    def message(self, stays: list[Stay], links: list[Link], job: int) -> str:
        """Return a message wherever it is."""
        life = stays[0].life
        lost = any(mark.kind == LOST for stay in stays for mark in stay.marks)
        parts = [*(self._link(link) for link in links), *(part for stay in stays for part in self._stay(stay))]
        title = escape(f"#{life.number} {life.properties.type or 'message'}", quote=False)
        return (
            f'<a class="m{" lost" if lost else ""}" href="#j{job}" data-j="{job}" data-n="{life.number}">'
            f"<title>{title}</title>{''.join(parts)}</a>"
        )

    def _stay(self, stay: Stay) -> Iterable[str]:
        y = self._y(stay)
        left, right = self._x(stay.first), self._x(stay.last)
        yield f'<path class="{"held" if stay.held else "wait"}" d="M{_n(left)} {_n(y)}H{_n(max(right, left + 1))}"/>'
        for begun, ended in stay.out:
            yield f'<path class="out" d="M{_n(self._x(begun))} {_n(y)}H{_n(self._x(ended))}"/>'
        if stay.last is None:
            yield f'<use href="#still" x="{_n(right)}" y="{_n(y)}"/>'
        for mark in stay.marks:
            symbol = _SYMBOLS.get(mark.kind, mark.kind)
            x = self._x(mark.column)
            text = f"<title>{escape(mark.text)}</title>" if self._is_roomy else ""
            yield f'<use href="#{symbol}" x="{_n(x)}" y="{_n(y)}">{text}</use>'
            if mark.kind == LOST:
                word = "lost, as expected" if stay.life.number in self._expected else "LOST"
                yield f'<text class="loss" x="{_n(x + 10)}" y="{_n(y + 4)}">{word}</text>'
        if self._is_roomy and self._room(stay) >= 7 * len(str(stay.life.number)) + 20:
            yield f'<text class="number" x="{_n(left + 6)}" y="{_n(y - 5)}">#{stay.life.number}</text>'

    def _room(self, stay: Stay) -> float:
        """Return how wide the stay is before anything else is marked on it."""
        following = [mark.column for mark in stay.marks[1:]]
        return self._x(following[0] if following else stay.last) - self._x(stay.first)

    def _link(self, link: Link) -> str:
        x, begin, end = self._x(link.column), self._y(link.origin), self._y(link.target)
        if not link.is_same_message:
            return f'<path class="next" d="M{_n(x)} {_n(begin)}V{_n(end)}"/>'
        return f'<path class="moves" d="M{_n(x)} {_n(begin)}V{_n(end)}"/>'

    def _x(self, column: int | None) -> float:
        return self._axis.instants[-1].right if column is None else self._axis.columns[column]

    def _y(self, stay: Stay) -> float:
        return self._tops[stay.queue] + (stay.row + 0.5) * self._row_height


def _heading(lane: Lane) -> str:
    count = f"{lane.messages:,} message{'' if lane.messages == 1 else 's'}"
    lost = f' · <b class="loss">✖ {lane.losses:,} lost</b>' if lane.losses else ""
    if lane.queue == NO_QUEUE:
        return f"<i>no queue took it</i><small>{count}{lost}</small>"
    name = escape(lane.queue).replace(".", ".<wbr>")
    return f'<span title="{escape(lane.queue)}">{name}</span><small>{count}{lost}</small>'


def legend(kinds: AbstractSet[str]) -> str:
    """Return what lines mean, and the marks that come up."""
    lines = "".join(
        f'<li><svg width="30" height="18"><path class="{kind}" d="M3 9H27"/></svg>{meaning}</li>'
        for kind, meaning in LINES.items()
    )
    marks = "".join(
        f'<li><svg width="18" height="18"><use href="#{_SYMBOLS.get(kind, kind)}" x="9" y="9"/></svg>{meaning}</li>'
        for kind, meaning in MARKS.items()
        if kind in kinds
    )
    return f"{marks}{lines}"


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{y}">{escape(text)}</text>' if text else ""


def _n(number: float) -> str:
    """Return a number as short as it can be."""
    return f"{number:.1f}".removesuffix(".0")
