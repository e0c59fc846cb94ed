"""One attempt at a job: what is known about it, who may settle it, and whether its time is up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from queuey_rabbitmq.core.job_context import JobContext
from queuey_rabbitmq.core.real_time import monotonic_s

if TYPE_CHECKING:
    from queuey_rabbitmq.core.delivery import Delivery
    from queuey_rabbitmq.core.retry import RetryPolicy


class Attempt:
    """A delivery, the policy that holds for its job, and the time."""

    __slots__ = ("_claim", "_context", "began_ms", "delivery", "policy", "timeout_ms")

    def __init__(
        self, delivery: Delivery, policy: RetryPolicy, *, began_ms: int, timeout_ms: int | None = None
    ) -> None:
        self.delivery = delivery
        self.policy = policy
        self.began_ms = began_ms
        """By the backend's clock."""
        self.timeout_ms = timeout_ms
        self._claim = None if timeout_ms is None else threading.Lock()
        self._context: JobContext | None = None

    @property
    def context(self) -> JobContext:
        """Return what handlers, hooks and the log may know; made when the first of them asks."""
        if self._context is None:
            envelope = self.delivery.envelope
            self._context = JobContext(
                job_id=envelope.job_id,
                job_type=envelope.job_type,
                queue=self.delivery.queue,
                attempt=envelope.attempt,
                max_attempts=self.policy.max_attempts,
                deferrals=envelope.deferrals,
                priority=envelope.priority,
                age_ms=max(0, self.began_ms - envelope.enqueued_at_ms),
                correlation_id=envelope.correlation_id,
                headers=envelope.headers,
            )
        return self._context

    def claim(self) -> bool:
        """Tell whether the caller may settle it: the first who asks, its thread or the watch over its time."""
        return self._claim is None or self._claim.acquire(blocking=False)


class TimeoutWatch:
    """Keeps the real time that handlers in threads may take; somebody else waits, and says when to look."""

    def __init__(self, *, wake: Callable[[], None], overran: Callable[[Attempt], None]) -> None:
        self._wake = wake
        self._overran = overran
        self._lock = threading.Lock()
        self._due: dict[Attempt, float] = {}
        self._looked_until = float("inf")

    def start(self, attempt: Attempt) -> None:
        """Watch an attempt that has a timeout."""
        assert attempt.timeout_ms is not None, "only an attempt with a timeout is watched"
        due = monotonic_s() + attempt.timeout_ms / 1000
        with self._lock:
            self._due[attempt] = due
            is_sooner = due < self._looked_until
        if is_sooner:
            self._wake()

    def stop(self, attempt: Attempt) -> None:
        """Watch an attempt no more."""
        with self._lock:
            self._due.pop(attempt, None)

    def seconds_left(self) -> float | None:
        """Return in how many seconds somebody must look again."""
        with self._lock:
            self._looked_until = min(self._due.values(), default=float("inf"))
            return None if not self._due else max(0.0, self._looked_until - monotonic_s())

    def look(self) -> None:
        """Report the attempts whose time is up, and watch them no more."""
        now = monotonic_s()
        with self._lock:
            overdue = [attempt for attempt, due in self._due.items() if due <= now]
            for attempt in overdue:
                del self._due[attempt]
        for attempt in overdue:
            self._overran(attempt)
