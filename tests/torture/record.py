"""What was promised and what came of it: the checks that must hold whatever is done to the broker.

It keeps a few bytes for a job that is over, so that memory which grows is the backend's.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.torture.fates import Step, fate_of

Run = tuple[int, int]
"""Which run of a job: its attempt, and how often it was deferred."""

ALLOWED_EARLY_S = 0.001
"""A broker counts in whole ms from the one in which the message came."""

UNWRITTEN_S = 5.0
"""A broker that is killed loses what came back from a hold queue in the last seconds and is not written to disk.

RabbitMQ writes a message to disk soon when a publisher waits for its confirm, and nobody does for what it dead-letters
itself (rabbit_dead_letter:publish, rabbit_variable_queue:needs_timeout). No client can prevent that.
"""

PENDING, CONFIRMED, FINISHED = 0, 1, 2


@dataclass(slots=True)
class Job:
    """A job that has not had its last run."""

    due: dict[Run, float] = field(default_factory=dict)
    """The earliest instant at which a run may come, by the wall clock; of two that ask for it, the earlier one's."""
    had: set[Run] = field(default_factory=set)

    def wait(self, run: Run, until: float) -> None:
        """Note that a run was asked for."""
        self.due[run] = min(until, self.due.get(run, until))


class Record:
    """What every thread notes; one lock."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._states = bytearray()
        self._finished = 0
        self._open: dict[int, Job] = {}
        self._last: dict[str, float] = {}
        self.longest_gap: dict[str, float] = {"confirmed": 0.0, "handled": 0.0}
        """Seconds in which nothing was confirmed, and nothing handled."""
        self.runs = 0
        self.duplicates = 0
        """Runs of a job that had had that run before."""
        self.early: list[str] = []
        self.errors: Counter[str] = Counter()
        """What was reported as failed, by type."""
        self.longest_call = 0.0
        self.unexpected: list[BaseException] = []

    def __str__(self) -> str:
        return (
            f"{self.jobs()} jobs, {self.runs} runs, {self.duplicates} duplicates, longest outage "
            f"{self.longest_gap['confirmed']:.1f} s (handling {self.longest_gap['handled']:.1f} s), longest call "
            f"{self.longest_call:.1f} s, {dict(self.errors)}"
        )

    def new_job(self) -> int:
        """Return the number of the next job."""
        with self._lock:
            self._states.append(PENDING)
            return len(self._states) - 1

    def due(self, number: int, run: Run, at: float) -> None:
        """Note, before it is asked for, that a run must not come before an instant of the wall clock."""
        with self._lock:
            self._open.setdefault(number, Job()).wait(run, at)

    def confirmed(self, number: int) -> None:
        """Note that the publish of a job was reported as done."""
        with self._lock:
            self._states[number] |= CONFIRMED
            self._went("confirmed")

    def failed(self, error: BaseException) -> None:
        """Note that something was reported as failed."""
        with self._lock:
            self.errors[type(error).__name__] += 1

    def called(self, began: float) -> None:
        """Note how long a call took that has a deadline."""
        self.longest_call = max(self.longest_call, time.monotonic() - began)

    def ran(self, number: int, run: Run) -> Step:
        """Note that a job runs; return what this run ends with."""
        now = time.time()
        attempt, deferrals = run
        fate = fate_of(self._seed, number)
        step = fate[attempt - 1 + deferrals]
        with self._lock:
            self._went("handled")
            self.runs += 1
            job = self._open.setdefault(number, Job())
            # A copy that comes after the last run may have been asked for before that, and its due time is forgotten.
            is_over = bool(self._states[number] & FINISHED)
            if not is_over and now < job.due.get(run, 0.0) - ALLOWED_EARLY_S:
                early_s = job.due[run] - now
                self.early.append(f"job {number}, attempt {attempt}, {deferrals} deferrals: {early_s:.3f} s too early")
            self.duplicates += is_over or run in job.had
            job.had.add(run)
            if step.delay_ms:
                following = (attempt + (step.outcome == "retry"), deferrals + (step.outcome == "defer"))
                job.wait(following, now + step.delay_ms / 1000)
            else:
                self._finished += not is_over
                self._states[number] |= FINISHED
                if step.outcome == "done":
                    del self._open[number]
        return step

    def open_jobs(self) -> int:
        """Return how many jobs were begun and have not had their last run; some of them failed to be published."""
        return len(self._states) - self._finished

    def jobs(self) -> int:
        """Return how many publishes were reported as done."""
        with self._lock:
            return sum(bool(state & CONFIRMED) for state in self._states)

    def unfinished(self) -> list[int]:
        """Return which jobs were reported as published and have not had their last run."""
        with self._lock:
            return [number for number, state in enumerate(self._states) if state == CONFIRMED]

    def came_back_before(
        self, number: int, instants: list[float], *, absences: Sequence[tuple[float, float]] = ()
    ) -> bool:
        """Tell whether a job came back from a hold queue shortly before one of these instants.

        What became due in an absence of the broker came back at its end.
        """
        for due in self._open.get(number, Job()).due.values():
            came = max([due, *(end for begin, end in absences if begin <= due <= end)])
            if any(instant - UNWRITTEN_S <= came <= instant for instant in instants):
                return True
        return False

    def story(self, number: int) -> str:
        """Return what is known of a job that has not had its last run."""
        job = self._open.get(number, Job())
        waits = {run: time.strftime("%X", time.localtime(at)) + f"{at % 1:.3f}"[1:] for run, at in job.due.items()}
        ends = fate_of(self._seed, number)[-1].outcome
        return f"job {number} ({ends}) has had its runs {sorted(job.had)} (attempt, deferrals); due were {waits}"

    def missing(self, dead: set[int]) -> list[int]:
        """Return which published jobs whose last run was to move them to the dead queue are not there."""
        with self._lock:
            finished = [number for number, state in enumerate(self._states) if state == CONFIRMED | FINISHED]
        return [
            number for number in finished if fate_of(self._seed, number)[-1].outcome == "dead" and number not in dead
        ]

    def _went(self, what: str) -> None:
        now = time.monotonic()
        self.longest_gap[what] = max(self.longest_gap[what], now - self._last.get(what, now))
        self._last[what] = now
