"""Owns a page: what is said around the picture, and each message's story in words. Needs no network and no other file.

Whatever comes from a test is escaped, and should that ever fail, the page's own policy lets no other script run and
nothing be requested.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from string import Template

from pytest_queuey.trace.axis import axis_of
from pytest_queuey.trace.chosen import choose
from pytest_queuey.trace.drawing import AXIS_HEIGHT, draw, legend
from pytest_queuey.trace.lanes import scene_of
from pytest_queuey.trace.parts import part
from pytest_queuey.trace.recording import Recording
from pytest_queuey.trace.result import Result
from pytest_queuey.trace.steps import job_of, steps_of
from queuey_fake.journal import Life, is_loss, told
from queuey_fake.wording import duration, instant

_MAX_WHY = 4_000


def page(result: Result, recording: Recording) -> str:
    """Return the page of a test, as HTML."""
    chosen = choose(recording.lives, lost=recording.lost, forgotten=recording.forgotten)
    steps = steps_of(chosen.lives)
    times: dict[int, int] = {step.column: step.at_ms for step in steps}
    axis = axis_of(list(times.values()), recording.ended_ms)
    jobs: dict[str, int] = {}
    for life in chosen.lives:
        jobs.setdefault(job_of(life), len(jobs) + 1)
    picture = draw(scene_of(steps), axis, expected=recording.expected, jobs=jobs)
    where, _, name = result.test.rpartition("::")
    script = part("page.js")
    return Template(part("page.html")).substitute(
        title=escape(f"{result.test.rpartition('::')[2]}: {result.outcome}"),
        style=part("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        density=picture.density,
        marks=part("marks.svg"),
        where=escape(where),
        name=escape(name),
        outcome=f"{result.sign} {escape(result.outcome)}",
        outcome_class=result.kind,
        summary=_summary(recording),
        notes="".join(f'<p class="note">{escape(sentence)}</p>' for sentence in chosen.left_out),
        why=f'<pre class="why">{escape(_shortened(result.why))}</pre>' if result.why else "",
        width=f"{picture.width:.0f}",
        height=f"{picture.height:.0f}",
        axis_height=AXIS_HEIGHT,
        axis=picture.axis,
        names=picture.names,
        body=picture.body,
        legend=legend(picture.kinds),
        stories="".join(_stories(chosen.lives, jobs, recording.begun_ms)) or "<p>Nothing was published.</p>",
        at_the_end=escape(recording.at_the_end),
    )


def _summary(recording: Recording) -> str:
    ids = {life.message_id for life in recording.lives}
    jobs = f" of {_counted(len(ids), 'job')}" if ids and None not in ids else ""
    said = [
        f"RabbitMQ {escape(recording.version)} in memory",
        f"{_counted(len(recording.lives), 'message')}{jobs}",
        f"{recording.span} of virtual time from {instant(recording.begun_ms)}",
    ]
    if recording.lost:
        expected = f", {len(recording.expected)} of them as expected" if recording.expected else ""
        said.append(f'<b class="loss">✖ {len(recording.lost)} lost</b>{expected}')
    return " · ".join(said)


def _stories(lives: Iterable[Life], jobs: Mapping[str, int], begun_ms: int) -> Iterable[str]:
    by_job: dict[str, list[Life]] = {}
    for life in lives:
        by_job.setdefault(job_of(life), []).append(life)
    for job, messages in by_job.items():
        first = messages[0]
        kind = escape(first.properties.type or "message")
        body = escape(_text_of(first), quote=False)
        yield f'<article id="j{jobs[job]}"><h3>{kind} <small>{escape(first.message_id or "without an id")}</small></h3>'
        yield f"<pre>{''.join(_story(life, begun_ms) for life in messages)}<small>{body}</small></pre></article>"


def _story(life: Life, begun_ms: int) -> str:
    lines = [escape(f"#{life.number} to '{life.routing_key}'", quote=False)]
    before = None
    for event in life.events:
        at_ms = event[1]
        since = "" if at_ms == before else _since(at_ms - begun_ms)
        before = at_ms
        words = escape(told(event), quote=False)
        lines.append(f"  {since:>12}  " + (f'<b class="loss">✖ {words}</b>' if is_loss(event) else words))
    return "\n".join(lines) + "\n"


def _since(ms: int) -> str:
    return "start" if ms == 0 else f"{'+' if ms > 0 else '-'}{duration(abs(ms))}"


def _text_of(life: Life) -> str:
    text = life.body_start.decode("utf-8", errors="replace")
    more = f" ... ({life.size:,} bytes)" if life.size > len(life.body_start) else ""
    return text + more


def _shortened(why: str) -> str:
    return why if len(why) <= _MAX_WHY else f"...{why[-_MAX_WHY:]}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
