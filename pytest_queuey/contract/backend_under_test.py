"""Owns what the author of a backend writes to have the contract run on it: where a test's jobs are kept, and its time.

Refuses to know any backend.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from pytest_queuey.contract.capabilities import EVERYTHING
from queuey_rabbitmq.core.envelope import Envelope

if TYPE_CHECKING:
    from queuey_rabbitmq.core.backend import Backend


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that failed for good, or a body that was no job, and why."""

    body: bytes
    reason: str

    @property
    def envelope(self) -> Envelope:
        """Return the job; raises SerializationError where the body is none."""
        return Envelope.from_bytes(self.body)


class BackendUnderTest(ABC):
    """Where the backends of one test keep their jobs: empty at first, gone at the end.

    Subclass it, and name the subclass as `--queuey-backend=MODULE:CLASS`, or return one from the fixture
    `backend_under_test`. It is made once for each test, with an empty folder that it may use. What a capability asks
    for need not be there where the capability is not declared.
    """

    capabilities: ClassVar[Collection[str]] = EVERYTHING
    """What the backend can do; `pytest_queuey.contract.capabilities` says what each means."""

    @abstractmethod
    def backend(self) -> Backend:
        """Return a new, connected backend, whose delays are exact to 100 ms; every one keeps its jobs here."""

    @abstractmethod
    def close(self) -> None:
        """Close every backend that was made, and let go of what they kept."""

    def now_ms(self) -> int:
        """Return the time that the backends live by, in ms since the epoch; the wall clock where it is not overridden.

        A backend whose clock can be moved runs the contract in a fraction of the time: let this return that clock,
        let `advance` move it, and have waits in the thread that made this object move it too.
        """
        return time.time_ns() // 1_000_000

    def advance(self, duration: timedelta | float, /) -> None:
        """Let a duration (seconds or timedelta) pass; what is due in it has happened when this returns."""
        time.sleep(duration.total_seconds() if isinstance(duration, timedelta) else duration)

    def dead_letters(self, queue: str) -> Sequence[DeadLetter]:
        """Take the dead letters of a work queue, oldest first. Capability dead_letters."""
        raise NotImplementedError(_missing(self, "dead_letters", "dead_letters"))

    def put_raw(self, queue: str, body: bytes) -> None:
        """Put a body on a queue as it is, past the backend. Capability raw_bodies."""
        raise NotImplementedError(_missing(self, "put_raw", "raw_bodies"))

    def refusing_publishes(self) -> AbstractContextManager[object]:
        """Refuse everything that backends publish within a `with` block: that is a BackendError. Capability faults."""
        raise NotImplementedError(_missing(self, "refusing_publishes", "faults"))

    def drop_connections(self) -> None:
        """Cut every connection of the backends to where their jobs are. Capability reconnection."""
        raise NotImplementedError(_missing(self, "drop_connections", "reconnection"))


def what_is_wrong(made: object) -> str | None:
    """Say what somebody has given as a backend under test that is none."""
    if isinstance(made, BackendUnderTest):
        return None
    return (
        f"{made!r}, which is no pytest_queuey.contract.BackendUnderTest: an object that makes backends for a test, and "
        "says what they can do"
    )


def _missing(under_test: BackendUnderTest, method: str, capability: str) -> str:
    return (
        f"{type(under_test).__name__} declares the capability {capability!r} and has no {method}(). "
        "Write it, or declare `capabilities` without that."
    )
