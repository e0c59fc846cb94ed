"""How dead letters are shown: as rows of a table, in full, and as JSON. Reads them, and prints nothing itself.

Bodies, headers and reasons are somebody else's text: control characters are shown, never sent to a terminal.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.dead_letter import DeadLetter

MAX_SHOWN_BYTES = 4_000
"""How much of a body `show` prints; --json has all of it."""

_LINE_BREAKS = {"\n", "\t"}
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))


def table_of(letters: list[DeadLetter], queue: str) -> Table:
    """Return dead letters as a table, one in a row."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("job", overflow="fold")
    table.add_column("attempts", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold", ratio=1)
    table.add_column("id", overflow="fold")
    for letter in letters:
        reason = plain(letter.reason or "(none given)", one_line=True)
        if letter.origin != queue:
            reason += f" (from '{plain(letter.origin, one_line=True)}')"
        table.add_row(
            str(letter.number),
            age(letter.age_ms),
            Text(plain(letter.job_type, one_line=True) if letter.job_type is not None else "(no job)"),
            "?" if letter.attempts is None else str(letter.attempts),
            Text(reason),
            str(letter.job_id or ""),
        )
    return table


def full(letter: DeadLetter) -> Table:
    """Return everything that is known of a dead letter."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _facts(letter):
        grid.add_row(name, Text(plain(value)))
    return grid


def as_json(letter: DeadLetter) -> str:
    """Return a dead letter as one line of JSON; a body that is no job is text, or base64 where it is not UTF-8."""
    job = letter.envelope
    known: dict[str, Any] = {
        "number": letter.number,
        "job_id": letter.job_id,
        "job_type": letter.job_type,
        "origin": letter.origin,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "age_seconds": None if letter.age_ms is None else letter.age_ms / 1000,
        "redelivered": letter.redelivered,
        "problem": letter.problem,
    }
    if job is not None:
        known |= {
            "enqueued_at_ms": job.enqueued_at_ms,
            "deferrals": job.deferrals,
            "priority": job.priority,
            "correlation_id": job.correlation_id,
            "payload": msgspec.Raw(job.payload_json),
        }
    else:
        try:
            known["body"] = letter.body.decode()
        except UnicodeDecodeError:
            known["body_base64"] = base64.b64encode(letter.body).decode()
    known["headers"] = _writable(letter.properties.headers or {})
    return msgspec.json.encode(known).decode()


def age(age_ms: int | None) -> str:
    """Return an age in its largest unit, and to a tenth of it."""
    if age_ms is None:
        return "?"
    seconds = age_ms / 1000
    for size, unit in _AGES:
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"


def plain(text: str, *, one_line: bool = False) -> str:
    """Return a text whose control characters are written out."""
    keep = set() if one_line else _LINE_BREAKS
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    job, properties = letter.envelope, letter.properties
    facts: list[tuple[str, object]] = [
        ("dead letter", letter.number),
        ("reason", letter.reason or "(none given)"),
        ("origin", letter.origin),
        ("attempts", "?" if letter.attempts is None else letter.attempts),
    ]
    if job is not None:
        enqueued = datetime.fromtimestamp(min(job.enqueued_at_ms, 253_402_300_799_000) / 1000, UTC)  # in year 9999
        facts += [
            ("job", job.job_type),
            ("id", job.job_id),
            ("enqueued", f"{enqueued:%Y-%m-%d %H:%M:%S} UTC, {age(letter.age_ms)} ago"),
            ("deferrals", job.deferrals),
            ("priority", job.priority),
            ("correlation id", job.correlation_id),
        ]
    facts.append(("redelivered", "yes" if letter.redelivered else "no"))
    for name in Properties.__struct_fields__:
        if name != "headers":
            facts.append((name, getattr(properties, name)))
    facts += [(f"header {name}", value) for name, value in (properties.headers or {}).items()]
    if job is not None:
        facts.append(("payload", _cut(msgspec.json.format(job.payload_json, indent=2))))
    else:
        facts += [("no job", letter.problem), ("body", _cut(letter.body))]
    return [(name, str(value)) for name, value in facts if value is not None]


def _cut(body: bytes) -> str:
    rest = len(body) - MAX_SHOWN_BYTES
    shown = body[:MAX_SHOWN_BYTES].decode(errors="backslashreplace")
    return shown if rest <= 0 else f"{shown}\n... and {rest} bytes more (--json has them all)"


def _writable(value: Any) -> Any:
    """Return a header's value with what JSON has no words for written as text."""
    if isinstance(value, Mapping):
        return {str(_writable(name)): _writable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if value is None or isinstance(value, str | int | float) else str(value)
