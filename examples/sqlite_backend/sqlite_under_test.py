"""What the contract is told of the SQLite backend: where its jobs are, its time, and how to make it fail.

pytest --pyargs pytest_queuey.test_contract --queuey-backend=sqlite_under_test:SqliteUnderTest
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

from sqlite_backend import SqliteBackend
from sqlite_store import SqliteStore

from pytest_queuey.contract import BackendUnderTest, DeadLetter
from queuey_fake import ManualClock
from queuey_rabbitmq import NothingPending


class VirtualClock:
    """A clock that the thread which made it moves, by waiting; other threads wait until something comes."""

    def __init__(self) -> None:
        self.time = ManualClock()
        self._driver = threading.get_ident()

    def now_ms(self) -> int:
        """Return the present."""
        return self.time.now_ms()

    def wait(self, changed: threading.Condition, until_ms: int | None) -> None:
        """Move to the instant, or in other threads wait to be told that something has come."""
        if threading.get_ident() != self._driver:
            changed.wait(0.01)
        elif until_ms is None:
            raise NothingPending("waiting without a timeout, and no job is held: nothing will ever come")
        else:
            self.time.move_to_ms(until_ms)


class SqliteUnderTest(BackendUnderTest):
    """A file for one test."""

    # Not reconnection: there is no connection that could be lost. Not headers: the tables have no place for them.
    capabilities = frozenset({"priorities", "holds", "expiry", "dead_letters", "raw_bodies", "faults"})

    make = SqliteBackend
    """The broken variants put another here."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.sqlite3"
        self._clock = VirtualClock()
        self._closing = ExitStack()

    def backend(self) -> SqliteBackend:
        """Return a new backend on the file."""
        backend = self.make(self._path, clock=self._clock, outlives_power_cuts=False)
        self._closing.callback(backend.close)
        return backend

    def now_ms(self) -> int:
        """Return the time of the backends."""
        return self._clock.now_ms()

    def advance(self, duration: timedelta | float, /) -> None:
        """Move it."""
        self._clock.time.advance(duration)

    def dead_letters(self, queue: str) -> list[DeadLetter]:
        """Take what the file keeps of a queue."""
        with closing(SqliteStore(self._path, outlives_power_cuts=False)) as store, store.transaction(self.now_ms()):
            return [DeadLetter(body, reason) for body, reason in store.dig_up(queue)]

    def put_raw(self, queue: str, body: bytes) -> None:
        """Put a body into the file, whatever it is."""
        with closing(SqliteStore(self._path, outlives_power_cuts=False)) as store, store.transaction(self.now_ms()):
            store.put(queue, body, priority=0, now_ms=self.now_ms())

    @contextmanager
    def refusing_publishes(self) -> Iterator[None]:
        """Have SQLite itself refuse new rows, as it would on a full disk."""
        tables = ("jobs", "dead_letters")
        with closing(sqlite3.connect(self._path)) as database:
            for table in tables:
                database.execute(
                    f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END"
                )
            yield
            for table in tables:
                database.execute(f"DROP TRIGGER refuse_{table}")

    def close(self) -> None:
        """Close the backends; the folder is pytest's."""
        self._closing.close()
