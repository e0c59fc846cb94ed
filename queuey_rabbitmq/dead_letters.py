"""The dead letters of a work queue: looking at them, bringing them back to work, and throwing them away.

Whatever happens in between, none is lost: each is held unacked while it is looked at, requeueing publishes, waits for
the confirm and acks then, and what was not chosen goes back to its place. Looking leaves nothing but the mark of a
redelivery. Unlike a consumer of a work queue it moves nothing aside: what is no job is shown as what it is.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from queuey_rabbitmq import topology
from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.errors import InvalidConfigError, QueueNameTooLongError, QueueyError
from queuey_rabbitmq.core.queue_config import MAX_NAME_BYTES, QueueConfig
from queuey_rabbitmq.core.queue_set import WorkQueue
from queuey_rabbitmq.dead_letter import Attempt, DeadLetter, read_dead_letter, requeued

if TYPE_CHECKING:
    from datetime import timedelta

    from queuey_rabbitmq.backend import RabbitMqBackend
    from queuey_rabbitmq.browsing import Browsing, Held
    from queuey_rabbitmq.session.operations import PublishOperation

Progress = Callable[[int, int], object]
"""Told, after each dead letter, how many have been looked at, and how many there were at the start."""


class Choice(TypedDict, total=False):
    """Which dead letters are meant; all that is said must be so of them."""

    reason: str | None
    """A part of the reason, in upper or lower case."""
    job_type: str | None
    """The name of the job."""
    job_id: uuid.UUID | None
    older_than: timedelta | float | None
    """Seconds or timedelta since the job was first enqueued, at least; never so of what is no job."""
    where: Callable[[DeadLetter], bool] | None
    """Anything else."""
    limit: int | None
    """How many at most, the oldest first."""


_KINDS: Mapping[str, tuple[type, str]] = {
    "reason": (str, "a part of the reason"),
    "job_type": (str, "the name of a job, such as 'send_email'"),
    "job_id": (uuid.UUID, "a uuid.UUID"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What was done with dead letters."""

    total: int
    """How many there were at the start."""
    looked_at: int
    chosen: int
    """How many were meant."""
    done: int
    """How many of these are gone from the dead queue; the others are still there."""
    malformed: int
    """How many were meant, but are no job, and were left because it was not asked to requeue such."""
    errors: Mapping[str, int]
    """What went wrong, and how often; empty where nothing did."""
    dry_run: bool


class DeadLetters:
    """The dead letters of a work queue: iterate over it to look at them, oldest first.

    Takes the queue's name, configuration or declaration; the backend need not have declared it. What comes in while
    it looks is left for the next time, so requeueing ends even where every job dies again at once. A dead queue that
    somebody else made a quorum queue counts each look as a delivery, and drops a message at its delivery limit; those
    of queuey have none.
    """

    def __init__(self, backend: RabbitMqBackend, queue: str | QueueConfig | WorkQueue[Any]) -> None:
        if not isinstance(queue, str | QueueConfig | WorkQueue):
            raise InvalidConfigError(
                f"dead letters: expected a queue's name, a QueueConfig or a queue of a set, got {queue!r}"
            )
        self.queue = queue if isinstance(queue, str) else queue.name
        self.dead_queue = topology.dead_queue_name(self.queue, backend.options.dead_suffix)
        size = len(self.dead_queue.encode(errors="replace"))
        if size > MAX_NAME_BYTES:
            raise QueueNameTooLongError(
                f"dead letters of queue '{self.queue}': its dead queue would have a name of {size} bytes, and AMQP "
                f"allows {MAX_NAME_BYTES}: there can be none"
            )
        self._backend = backend

    def __iter__(self) -> Iterator[DeadLetter]:
        return self.look()

    def look(self, *, progress: Progress | None = None, **choice: Unpack[Choice]) -> Iterator[DeadLetter]:
        """Iterate over the dead letters that are meant; all go back, in order, when the iteration ends.

        Raises the BackendError that ended it early: a dead queue that does not exist, a connection that was lost.
        """
        return self._look(*_checked(choice), progress)

    def requeue(
        self,
        *,
        attempt: Attempt = "next",
        malformed: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        **choice: Unpack[Choice],
    ) -> Drained:
        """Publish the dead letters that are meant to the queues they came from, and take each off when confirmed.

        As its "next" attempt a job is tried once more than it was, and dies again where its policy allows no more;
        as its "first" it has all its attempts again, and no deferrals. Either way it keeps its id and its age, and
        returns at priority 0. What is no job is requeued, as it is, only where `malformed` says so. Many are in flight
        at a time, in order. After a crash, or an error of one (`Drained.errors`), a job may be there twice, never not
        at all. Raises where not even the first could be looked at.
        """
        if attempt not in ("next", "first"):
            raise InvalidConfigError(f"requeue: attempt: expected 'next' or 'first', got {attempt!r}")
        tally = _Tally(dry_run=dry_run)
        is_meant, limit = _checked(choice)
        with self._backend.browse(self.dead_queue) as browsing:
            in_flight: deque[PublishOperation] = deque()
            tally.total = browsing.total
            try:
                for held, letter in self._meant(browsing, is_meant, tally.looking(progress)):
                    if letter.envelope is None and not malformed:
                        tally.malformed += 1
                        continue
                    tally.chosen += 1
                    if not dry_run:
                        in_flight.append(browsing.move(held, requeued(letter, attempt)))
                    while in_flight and in_flight[0].future.done():
                        tally.count(lambda: browsing.wait(in_flight.popleft()))
                    if tally.chosen == limit:
                        break
            except QueueyError as error:
                tally.errors[str(error)] += 1
            finally:
                while in_flight:
                    tally.count(lambda: browsing.wait(in_flight.popleft()))
        return tally.result()

    def purge(self, *, dry_run: bool = False, progress: Progress | None = None, **choice: Unpack[Choice]) -> Drained:
        """Throw away the dead letters that are meant, those that are no job too. Raises as `requeue` does."""
        tally = _Tally(dry_run=dry_run)
        is_meant, limit = _checked(choice)
        with self._backend.browse(self.dead_queue) as browsing:
            tally.total = browsing.total
            try:
                for held, _ in self._meant(browsing, is_meant, tally.looking(progress)):
                    tally.chosen += 1
                    if not dry_run:
                        browsing.discard(held)
                        tally.done += 1
                    if tally.chosen == limit:
                        break
            except QueueyError as error:
                tally.errors[str(error)] += 1
        return tally.result()

    def _look(
        self, is_meant: Callable[[DeadLetter], bool], limit: int, progress: Progress | None
    ) -> Iterator[DeadLetter]:
        with self._backend.browse(self.dead_queue) as browsing:
            for shown, (_, letter) in enumerate(self._meant(browsing, is_meant, progress), start=1):
                yield letter
                if shown == limit:
                    return

    def _meant(
        self, browsing: Browsing, is_meant: Callable[[DeadLetter], bool], progress: Progress | None
    ) -> Iterator[tuple[Held, DeadLetter]]:
        now_ms = self._backend.now_ms()
        for number, held in enumerate(browsing, start=1):
            letter = read_dead_letter(held, number=number, queue=self.queue, now_ms=now_ms)
            if progress is not None:
                progress(number, browsing.total)
            if is_meant(letter):
                yield held, letter


class _Tally:
    """Counts what is done."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.total = self.looked_at = self.chosen = self.done = self.malformed = 0
        self.errors: Counter[str] = Counter()

    def looking(self, progress: Progress | None) -> Progress:
        """Return a progress that counts, and tells the other one."""

        def look(looked_at: int, total: int) -> None:
            self.looked_at = looked_at
            if progress is not None:
                progress(looked_at, total)

        return look

    def count(self, end: Callable[[], None]) -> None:
        """Count how something ended."""
        try:
            end()
        except QueueyError as error:
            self.errors[str(error)] += 1
        else:
            self.done += 1

    def result(self) -> Drained:
        """Return what has been counted."""
        return Drained(
            total=self.total,
            looked_at=self.looked_at,
            chosen=self.chosen,
            done=self.done,
            malformed=self.malformed,
            errors=dict(self.errors),
            dry_run=self.dry_run,
        )


def _checked(choice: Choice) -> tuple[Callable[[DeadLetter], bool], int]:
    """Return what tells whether a dead letter is meant, and how many are, -1 for all. Raises InvalidConfigError."""
    if unknown := sorted(choice.keys() - Choice.__annotations__.keys()):
        raise InvalidConfigError(f"dead letters: no such choice: {', '.join(unknown)}")
    limit, older_than = choice.get("limit"), choice.get("older_than")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidConfigError(f"dead letters: limit: expected an integer from 1, got {limit!r}")
    for name, (kind, said) in _KINDS.items():
        if not isinstance(value := choice.get(name), kind | None):
            raise InvalidConfigError(f"dead letters: {name}: expected {said}, got {value!r}")
    older_ms = None if older_than is None else whole_ms(older_than, name="dead letters: older_than")
    reason, job_type, job_id = (choice.get(name) for name in ("reason", "job_type", "job_id"))
    part = None if reason is None else str(reason).casefold()
    where = choice.get("where")
    if where is not None and not callable(where):
        raise InvalidConfigError(f"dead letters: where: expected a function, got {where!r}")

    def is_meant(letter: DeadLetter) -> bool:
        return (
            (part is None or part in (letter.reason or "").casefold())
            and (job_type is None or letter.job_type == job_type)
            and (job_id is None or letter.job_id == job_id)
            and (older_ms is None or (letter.age_ms is not None and letter.age_ms >= older_ms))
            and (where is None or where(letter))
        )

    return is_meant, -1 if limit is None else limit
