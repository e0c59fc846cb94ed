"""What a handler may know about the job that it is given, beside the payload."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """A job at the moment when it is handed to its handler.

    Everything has a default, so that a test of a handler says only what it is about: `JobContext(attempt=3)`.
    """

    job_id: uuid.UUID = msgspec.field(default_factory=uuid.uuid4)
    job_type: str = ""
    queue: str = ""
    """The queue it was taken from."""
    attempt: int = 1
    """Which attempt this is, from 1."""
    max_attempts: int = 1
    """How often the job is tried in all, by the policy that holds for it."""
    deferrals: int = 0
    """How often it was deferred."""
    priority: int = 0
    """The priority at which it came."""
    age_ms: int = 0
    """How long ago it was first enqueued, in ms of the backend's clock."""
    correlation_id: str | None = None
    headers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the message carried beside the job, trace context for one, the broker's own headers among it."""

    def __hash__(self) -> int:
        return hash((self.job_id, self.attempt, self.deferrals))

    @property
    def is_last_attempt(self) -> bool:
        """Return whether a failure now is final."""
        return self.attempt >= self.max_attempts

    @property
    def age(self) -> timedelta:
        """Return how long ago the job was first enqueued."""
        return timedelta(milliseconds=self.age_ms)

    def log_fields(self) -> dict[str, object]:
        """Return what log records carry in `extra`."""
        return {
            "job_id": str(self.job_id),
            "job_type": self.job_type,
            "queue": self.queue,
            "attempt": self.attempt,
            "deferrals": self.deferrals,
            "correlation_id": self.correlation_id,
        }
