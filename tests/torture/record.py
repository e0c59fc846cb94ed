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

UNANSWERED_S = 12.0
"""How long a publish may wait for its confirm, connections that are lost and made again included."""

UNWRITTEN_S = 5.0
"""A broker that is killed loses what came back from a hold queue in the last seconds and is not written to disk.

RabbitMQ writes a message to disk soon when a publisher waits for its confirm, and nobody does for what it dead-letters
itself (rabbit_dead_letter:publish, rabbit_variable_queue:needs_timeout). No client can prevent that.
"""

STOPPING_S = 0.5
"""A broker that is shut down loses what comes back while its queues are stopped, all at once, right before its end.

What is dead-lettered into a queue that has been stopped is gone, and so is what lies before it: the order to stop goes
past that (rabbit_amqqueue_sup_sup:init, gen_server2:in). Seen with 3.10, 4.0 and 4.3 and a client of pika alone, for
some of what became due within 60 ms of the instant in which its connections were closed.
"""

PENDING, CONFIRMED, FINISHED = 0, 1, 2


@dataclass(slots=True)
class Hold:
    """A run that was asked for and comes after a delay. A publish may wait for a connection before its hold begins."""

    run: Run
    delay_s: float
    asked: float
    confirmed: float | None = None

    def came(self) -> tuple[float, float]:
        """Return from when to when it may have been over."""
        begun = self.asked + UNANSWERED_S if self.confirmed is None else self.confirmed
        return self.asked + self.delay_s, begun + self.delay_s

    def came_back(self, absences: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return from when to when it may have come back; what becomes due in an absence comes back at its end."""
        earliest, latest = self.came()
        for begin, end in sorted(absences):
            if begin <= latest and earliest <= end:
                latest = max(latest, end)
        return earliest, latest


@dataclass(slots=True)
class Job:
    """A job that has not had its last run."""

    holds: list[Hold] = field(default_factory=list)
    """In the order in which they were asked for; a run that comes twice asks twice."""
    had: set[Run] = field(default_factory=set)

    def due(self, run: Run) -> float:
        """Return the earliest instant at which a run may come, by the wall clock."""
        return min((hold.asked + hold.delay_s for hold in self.holds if hold.run == run), default=0.0)


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

    def asked(self, number: int, run: Run, delay_s: float) -> None:
        """Note, before it is asked for, that a run must not come before a delay is over."""
        with self._lock:
            self._open.setdefault(number, Job()).holds.append(Hold(run, delay_s, time.time()))

    def held(self, number: int, run: Run) -> None:
        """Note that the broker has confirmed what was asked for; of several the one that was asked for first."""
        with self._lock:
            job = self._open.get(number, Job())
            hold = next((hold for hold in job.holds if hold.run == run and hold.confirmed is None), None)
            if hold is not None:
                hold.confirmed = time.time()

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
            early_s = job.due(run) - now
            if not is_over and early_s > ALLOWED_EARLY_S:
                self.early.append(f"job {number}, attempt {attempt}, {deferrals} deferrals: {early_s:.3f} s too early")
            self.duplicates += is_over or run in job.had
            job.had.add(run)
            if step.delay_ms:
                job.holds.append(Hold(following(run, step), step.delay_ms / 1000, now))
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
        """Tell whether a job came back from a hold queue shortly before one of these instants, or may have."""
        came_back = [hold.came_back(absences) for hold in self._last_holds(number)]
        return any(
            earliest <= instant <= latest + UNWRITTEN_S for earliest, latest in came_back for instant in instants
        )

    def came_back_in(self, number: int, stops: Sequence[tuple[float, float]]) -> bool:
        """Tell whether a job came back while the broker was being shut down, or may have."""
        came = [hold.came() for hold in self._last_holds(number)]
        return any(
            earliest <= end and begin <= latest + STOPPING_S for earliest, latest in came for begin, end in stops
        )

    def _last_holds(self, number: int) -> list[Hold]:
        """Return the holds for the last run that a job has had, and for those that it has not had."""
        job = self._open.get(number, Job())
        last = max(map(sum, job.had), default=0)
        return [hold for hold in job.holds if sum(hold.run) >= last]

    def story(self, number: int) -> str:
        """Return what is known of a job that has not had its last run."""
        job = self._open.get(number, Job())
        waits = [
            f"{hold.run} asked for at {_clock(hold.asked)}, to come after {hold.delay_s:g} s, confirmed "
            + ("never" if hold.confirmed is None else f"at {_clock(hold.confirmed)}")
            for hold in job.holds
        ]
        ends = fate_of(self._seed, number)[-1].outcome
        return f"job {number} ({ends}) has had its runs {sorted(job.had)} (attempt, deferrals); {'; '.join(waits)}"

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


def following(run: Run, step: Step) -> Run:
    """Return which run comes after one that ends with a retry or a deferral."""
    attempt, deferrals = run
    return attempt + (step.outcome == "retry"), deferrals + (step.outcome == "defer")


def _clock(instant: float) -> str:
    return time.strftime("%X", time.localtime(instant)) + f"{instant % 1:.3f}"[1:]
