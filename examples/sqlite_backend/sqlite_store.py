"""Owns the SQLite file: which jobs are where, who has them, and what is due. Every method is one transaction.

Refuses to wait, and to know what a job is: it keeps bodies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, top_priority INTEGER NOT NULL, ttl_ms INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS jobs (
    place INTEGER PRIMARY KEY AUTOINCREMENT,  -- in its queue: smaller comes first
    queue TEXT NOT NULL,
    body BLOB NOT NULL,
    priority INTEGER NOT NULL,
    due_ms INTEGER,      -- not to be had before; NULL is ready
    expires_ms INTEGER,  -- dropped then, unless a consumer has it
    consumer TEXT,       -- who has it
    redelivered INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS next_job ON jobs (queue, priority DESC, place) WHERE consumer IS NULL AND due_ms IS NULL;
CREATE INDEX IF NOT EXISTS due ON jobs (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS expiring ON jobs (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS held ON jobs (consumer, queue) WHERE consumer IS NOT NULL;
CREATE TABLE IF NOT EXISTS dead_letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, body BLOB NOT NULL, reason TEXT NOT NULL
) STRICT;
"""
_GIVES_UP_AFTER = 10.0
"""Seconds that a transaction waits for those of other processes."""


class NoSuchQueueError(Exception):
    """There is no such queue."""


@dataclass(frozen=True, slots=True)
class Row:
    """A job that a consumer has."""

    place: int
    queue: str
    body: bytes
    redelivered: bool


class SqliteStore:
    """One connection to the file; for one thread at a time.

    With `outlives_power_cuts` off it never waits for the disk.
    """

    def __init__(self, path: Path, *, outlives_power_cuts: bool = True) -> None:
        self.db = sqlite3.connect(path, timeout=_GIVES_UP_AFTER, isolation_level=None, check_same_thread=False)
        self.db.execute(f"PRAGMA synchronous={'NORMAL' if outlives_power_cuts else 'OFF'}")
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.executescript(_TABLES)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.db.close()

    @contextmanager
    def transaction(self, now_ms: int) -> Iterator[None]:
        """Do everything in the block at one instant, or nothing of it; what is due by then has happened before."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._catch_up(now_ms)
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def make_queue(self, name: str, *, top_priority: int, ttl_ms: int | None) -> None:
        """Make a queue; one that is there keeps its jobs."""
        self.db.execute(
            "INSERT INTO queues VALUES (:name, :top_priority, :ttl_ms) "
            "ON CONFLICT DO UPDATE SET top_priority = :top_priority, ttl_ms = :ttl_ms",
            {"name": name, "top_priority": top_priority, "ttl_ms": ttl_ms},
        )

    def has_queue(self, name: str) -> bool:
        """Tell whether there is such a queue."""
        return self.db.execute("SELECT 1 FROM queues WHERE name = ?", (name,)).fetchone() is not None

    def put(self, queue: str, body: bytes, *, priority: int, now_ms: int, due_ms: int | None = None) -> None:
        """Put a job on a queue, to be had once it is due; raises NoSuchQueueError."""
        added = self.db.execute(
            "INSERT INTO jobs (queue, body, priority, due_ms, expires_ms) "
            "SELECT name, :body, min(:priority, top_priority), :due_ms, "
            "CASE WHEN :due_ms IS NULL THEN :now_ms + ttl_ms END FROM queues WHERE name = :queue",
            {"body": body, "priority": priority, "due_ms": due_ms, "now_ms": now_ms, "queue": queue},
        )
        if added.rowcount == 0:
            raise NoSuchQueueError(queue)

    def take(self, queue: str, consumer: str, *, prefetch: int) -> Row | None:
        """Give a consumer the next job of a queue, unless there is none or it has as many as it may."""
        [held] = self.db.execute(
            "SELECT count(*) FROM jobs WHERE consumer = ? AND queue = ?", (consumer, queue)
        ).fetchone()
        if held >= prefetch:
            return None
        found = self.db.execute(
            "SELECT place, body, redelivered FROM jobs WHERE queue = ? AND consumer IS NULL AND due_ms IS NULL "
            "ORDER BY priority DESC, place LIMIT 1",
            (queue,),
        ).fetchone()
        if found is None:
            return None
        place, body, redelivered = found
        self.db.execute("UPDATE jobs SET consumer = ? WHERE place = ?", (consumer, place))
        return Row(place, queue, body, bool(redelivered))

    def remove(self, place: int, consumer: str) -> bool:
        """Remove a job that a consumer has; tell whether it had it."""
        removed = self.db.execute("DELETE FROM jobs WHERE place = ? AND consumer = ?", (place, consumer))
        return removed.rowcount > 0

    def give_back(self, place: int, consumer: str, *, due_ms: int) -> bool:
        """Let a consumer keep a job's slot until it is due, when the job goes back to its place."""
        changed = self.db.execute(
            "UPDATE jobs SET due_ms = ? WHERE place = ? AND consumer = ?", (due_ms, place, consumer)
        )
        return changed.rowcount > 0

    def give_back_all(self, consumer: str) -> None:
        """Put back everything that a consumer has, to its place."""
        self.db.execute(
            "UPDATE jobs SET consumer = NULL, due_ms = NULL, redelivered = 1 WHERE consumer = ?", (consumer,)
        )

    def consumers(self) -> list[str]:
        """Return everybody who has a job."""
        return [name for (name,) in self.db.execute("SELECT DISTINCT consumer FROM jobs WHERE consumer IS NOT NULL")]

    def bury(self, queue: str, body: bytes, reason: str) -> None:
        """Keep a body that is not to be delivered again."""
        self.db.execute("INSERT INTO dead_letters (queue, body, reason) VALUES (?, ?, ?)", (queue, body, reason))

    def dig_up(self, queue: str) -> Sequence[tuple[bytes, str]]:
        """Take the bodies and reasons that were kept of a queue, oldest first."""
        kept = self.db.execute(
            "SELECT body, reason FROM dead_letters WHERE queue = ? ORDER BY number", (queue,)
        ).fetchall()
        self.db.execute("DELETE FROM dead_letters WHERE queue = ?", (queue,))
        return kept

    def next_due_ms(self) -> int | None:
        """Return the next instant at which a job may come up."""
        [due_ms] = self.db.execute("SELECT min(due_ms) FROM jobs WHERE due_ms IS NOT NULL").fetchone()
        return due_ms  # type: ignore[no-any-return]  # sqlite3 knows no column types

    def _catch_up(self, now_ms: int) -> None:
        """Let everything happen that was due: jobs that waited come up in the order of their time, old ones go."""
        [due_ms, expires_ms] = self.db.execute(
            "SELECT (SELECT min(due_ms) FROM jobs WHERE due_ms IS NOT NULL), "
            "(SELECT min(expires_ms) FROM jobs WHERE expires_ms IS NOT NULL)"
        ).fetchone()
        if all(ms is None or ms > now_ms for ms in (due_ms, expires_ms)):
            return
        self.db.execute(
            "UPDATE jobs SET consumer = NULL, due_ms = NULL, redelivered = 1 "
            "WHERE due_ms <= ? AND consumer IS NOT NULL",
            (now_ms,),
        )
        # A job's place is where it comes up, not where it began to wait: it is put there anew.
        came_up = self.db.execute(
            "INSERT INTO jobs (queue, body, priority, expires_ms) "
            "SELECT queue, body, priority, due_ms + ttl_ms FROM jobs JOIN queues ON queue = name "
            "WHERE due_ms <= ? AND consumer IS NULL ORDER BY due_ms, place",
            (now_ms,),
        )
        if came_up.rowcount:
            self.db.execute("DELETE FROM jobs WHERE due_ms <= ?", (now_ms,))
        self.db.execute("DELETE FROM jobs WHERE expires_ms <= ? AND consumer IS NULL", (now_ms,))
