"""Owns the index: every page of a run in one table, failed tests first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from string import Template
from typing import NamedTuple
from urllib.parse import quote

from pytest_queuey.trace.parts import part
from pytest_queuey.trace.recording import Recording
from pytest_queuey.trace.result import BAD, Result


class Entry(NamedTuple):
    """A line of the index; plain, as it travels from the workers of xdist."""

    test: str
    outcome: str
    page: str
    messages: int
    lost: int
    span: str

    @classmethod
    def of(cls, result: Result, recording: Recording, page: str) -> Entry:
        """Return the line of a test."""
        lives = recording.lives
        count = len(lives) + recording.forgotten
        return cls(result.test, result.outcome, page, count, len(recording.lost), recording.span)


def index(entries: Sequence[Entry]) -> str:
    """Return the index of a run, as HTML."""
    outcomes = Counter(entry.outcome for entry in entries)
    counted = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
    in_order = sorted(entries, key=lambda entry: entry.outcome not in BAD)
    return Template(part("index.html")).substitute(
        style=part("page.css"),
        summary=escape(counted) or "No test of this run used the broker in memory.",
        rows="\n".join(_row(entry) for entry in in_order),
    )


def _row(entry: Entry) -> str:
    lost = f'<b class="loss">✖ {entry.lost:,}</b>' if entry.lost else "0"
    result = Result(entry.test, entry.outcome)
    return (
        f'<tr><td><span class="badge {result.kind}">{result.sign} {escape(entry.outcome)}</span>'
        f'<td><a href="{quote(entry.page)}">{escape(entry.test)}</a>'
        f'<td class="number">{entry.messages:,}<td class="number">{lost}<td class="number">{escape(entry.span)}</tr>'
    )
