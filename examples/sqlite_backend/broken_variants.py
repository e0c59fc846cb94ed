"""SQLite backends that each break one promise, and the test of the contract that has to catch it.

They are there for the contract's own sake: what none of its tests catches is no promise.
"""

# ruff: noqa: ARG002, D102 -- what is overridden is documented where it is whole, and a broken one looks at less

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from sqlite_backend import SqliteBackend, SqliteDeliveries, SqliteDelivery
from sqlite_store import Row

from queuey_rabbitmq import (
    AlreadySettledError,
    Envelope,
    QueueConfig,
    QueueyError,
    SerializationError,
    ShutDownError,
    UnknownQueueError,
    UnroutableError,
)

CAUGHT_BY: dict[type[SqliteBackend], str] = {}
"""Every broken backend, and the test that must fail on it."""


def caught_by(test: str) -> Callable[[type[SqliteBackend]], type[SqliteBackend]]:
    """Name the test of the contract that a broken backend fails."""

    def register(broken: type[SqliteBackend]) -> type[SqliteBackend]:
        CAUGHT_BY[broken] = test
        return broken

    return register


# Publishing


@caught_by("test_publishing_to_a_queue_that_does_not_exist_says_unroutable_and_names_it")
class DropsWhatIsUnroutable(SqliteBackend):
    """A publish to no queue succeeds, and the job is nowhere."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        with suppress(UnroutableError):
            super().put(envelope, due_ms)


@caught_by("test_of_ten_publishes_in_flight_exactly_the_unroutable_one_fails")
class BlamesTheNeighbour(SqliteBackend):
    """The error of an unroutable publish is reported by the next one."""

    _owed: QueueyError | None = None

    def publish_nowait(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        future = super().publish_nowait(envelope, delay=delay)
        reported: Future[None] = Future()
        owed, self._owed = self._owed, future.exception()  # type: ignore[assignment]  # it is a QueueyError
        if owed is None:
            reported.set_result(None)
        else:
            reported.set_exception(owed)
        return reported


@caught_by("test_a_future_of_a_publish_is_done_only_when_the_job_can_be_had")
class ConfirmsTooEarly(SqliteBackend):
    """A publish is confirmed when it is in memory, and in the file a publish later."""

    _unwritten: Envelope | None = None

    def publish_nowait(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        unwritten, self._unwritten = self._unwritten, envelope
        done: Future[None] = Future()
        done.set_result(None)
        return done if unwritten is None else super().publish_nowait(unwritten, delay=delay)


@caught_by("test_many_jobs_are_published_in_order_and_the_errors_come_by_their_places")
class CountsFromOne(SqliteBackend):
    """The errors of many publishes are at the wrong places."""

    def publish_many(self, envelopes: Iterable[Envelope]) -> Mapping[int, QueueyError]:
        return {place + 1: error for place, error in super().publish_many(envelopes).items()}


@caught_by("test_a_payload_arrives_byte_for_byte")
class WritesPayloadsAnew(SqliteBackend):
    """A payload is decoded and encoded on its way, and comes out as other bytes."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        super().put(_encoded_anew(envelope), due_ms)


@caught_by("test_a_job_arrives_as_it_was_published")
class DropsCorrelationIds(SqliteBackend):
    """What ties a job to a request is lost."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        super().put(_without(envelope, "correlation_id"), due_ms)


@caught_by("test_a_publish_that_fails_raises_and_nothing_is_on_the_queue")
class HidesAFailedPublish(SqliteBackend):
    """A full disk is nobody's business."""

    def publish(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> None:
        with suppress(QueueyError):
            super().publish(envelope, delay=delay)


@caught_by("test_a_job_that_waits_longer_than_its_queue_lets_it_is_dropped")
class KeepsJobsForEver(SqliteBackend):
    """A queue's message_ttl is not looked at."""

    def _make_queue(self, queue: QueueConfig) -> None:
        self.store.make_queue(queue.name, top_priority=queue.top_priority, ttl_ms=None)


@caught_by("test_a_job_that_is_held_for_longer_than_its_queue_lets_jobs_wait_comes_all_the_same")
class ExpiresWhatIsHeld(SqliteBackend):
    """A queue's message_ttl counts while a job is put off."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        super().put(envelope, due_ms)
        self.store.db.execute(
            "UPDATE jobs SET expires_ms = ? + (SELECT ttl_ms FROM queues WHERE name = queue) "
            "WHERE place = (SELECT max(place) FROM jobs)",
            (self.now_ms(),),
        )


# Declaring


@caught_by("test_declaring_a_queue_twice_leaves_its_jobs_alone")
class DeclaresByEmptying(SqliteBackend):
    """A queue that is declared again loses its jobs."""

    def _make_queue(self, queue: QueueConfig) -> None:
        self.store.db.execute("DELETE FROM jobs WHERE queue = ?", (queue.name,))
        super()._make_queue(queue)


# Waiting


@caught_by("test_a_held_job_comes_whole_and_never_early")
class ReleasesEarly(SqliteBackend):
    """A job comes back 20 ms before its time."""

    def _wait_ms(self, queue: str, delay: timedelta | float) -> int:
        return max(1, super()._wait_ms(queue, delay) - 20)


@caught_by("test_defer_nowait_holds_a_job_as_defer_does")
class HoldsOnlyWhoWaits(SqliteBackend):
    """Whoever does not wait for the job to be held has it back at once."""

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        return self.publish_nowait(envelope)


@caught_by("test_a_delay_of_no_whole_number_of_steps_is_rounded_up")
class RoundsDown(SqliteBackend):
    """Delays are cut to whole steps of 50 ms."""

    def _wait_ms(self, queue: str, delay: timedelta | float) -> int:
        return max(1, super()._wait_ms(queue, delay) // 50 * 50)


@caught_by("test_holding_a_job_for_a_queue_that_was_not_declared_is_refused")
class MakesQueuesForUnknownNames(SqliteBackend):
    """Holding on a queue that nobody has declared makes one."""

    def due_ms(self, doing: str, queue: str, delay: timedelta | float) -> int:
        try:
            return super().due_ms(doing, queue, delay)
        except UnknownQueueError:
            with self.working("making a queue"):
                self.store.make_queue(queue, top_priority=0, ttl_ms=None)
            raise


@caught_by("test_holding_for_longer_than_the_cap_is_refused")
class HoldsForEver(SqliteBackend):
    """Nothing is too long to be held, as long as nobody moves to another backend."""

    def _wait_ms(self, queue: str, delay: timedelta | float) -> int:
        return min(super()._wait_ms(queue, 1), 1000)


@caught_by("test_a_short_wait_is_not_stuck_behind_a_long_one")
class KeepsOneWaitingLine(SqliteBackend):
    """What waits comes back in the order in which it began to wait."""

    _last_ms = 0

    def due_ms(self, doing: str, queue: str, delay: timedelta | float) -> int:
        self._last_ms = max(self._last_ms, super().due_ms(doing, queue, delay))
        return self._last_ms


@caught_by("test_a_held_job_outlives_the_backend_that_held_it")
class HoldsInMemory(SqliteBackend):
    """A backend that ends takes with it what it held."""

    def close(self) -> None:
        if not self._closed:
            with self.working("closing"):
                self.store.db.execute("DELETE FROM jobs WHERE due_ms IS NOT NULL AND consumer IS NULL")
        super().close()


class _RetriesWithNewPayloads(SqliteDelivery):
    def _put_off(self, doing: str, envelope: Envelope, delay: timedelta | float) -> None:
        super()._put_off(doing, _encoded_anew(envelope), delay)


@caught_by("test_a_job_put_off_comes_whole_with_its_payload_byte_for_byte")
class WritesPayloadsAnewOnRetry(SqliteBackend):
    """A payload changes its bytes with every attempt."""

    delivery_type = _RetriesWithNewPayloads


# Priorities and order


@caught_by("test_urgent_jobs_go_first_and_equal_ones_in_order")
class IgnoresPriorities(SqliteBackend):
    """All jobs are equal."""

    def _make_queue(self, queue: QueueConfig) -> None:
        self.store.make_queue(queue.name, top_priority=0, ttl_ms=queue.message_ttl_ms)


@caught_by("test_a_deferred_job_is_consumed_before_the_backlog_which_follows_in_order")
class ForgetsPrioritiesWhileWaiting(SqliteBackend):
    """What was held comes back behind the backlog."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        super().put(envelope if due_ms is None else _without(envelope, "priority"), due_ms)


@caught_by("test_jobs_arrive_in_the_order_of_their_publishing")
class DeliversTheLatestFirst(SqliteBackend):
    """A stack, not a queue."""

    def put(self, envelope: Envelope, due_ms: int | None) -> None:
        super().put(envelope, due_ms)
        self.store.db.execute(
            "UPDATE jobs SET place = (SELECT min(place) FROM jobs) - 1 WHERE place = (SELECT max(place) FROM jobs)"
        )


# Consuming


class _TakesAll(SqliteDeliveries):
    def _next_row(self, queue: QueueConfig) -> Row | None:
        return self._backend.store.take(queue.name, self._name, prefetch=1000)


@caught_by("test_prefetch_bounds_what_is_unsettled")
class IgnoresPrefetch(SqliteBackend):
    """A consumer gets as much as there is."""

    deliveries_type = _TakesAll


class _TakesWithoutATrace(SqliteDeliveries):
    def _next_row(self, queue: QueueConfig) -> Row | None:
        row = super()._next_row(queue)
        if row is not None:
            self._backend.store.db.execute("UPDATE jobs SET consumer = NULL WHERE place = ?", (row.place,))
        return row


@caught_by("test_two_consumers_never_get_the_same_job")
class DeliversToEverybody(SqliteBackend):
    """A job that is out is still there for others."""

    deliveries_type = _TakesWithoutATrace


class _NeverRedelivered(SqliteDelivery):
    @property
    def redelivered(self) -> bool:
        return False


@caught_by("test_a_job_given_back_comes_again_before_the_backlog_and_says_so")
class NeverSaysRedelivered(SqliteBackend):
    """A handler cannot know that it may have seen a job."""

    delivery_type = _NeverRedelivered


class _WaitsForBodies(SqliteDeliveries):
    def _set_aside(self, row: Row, error: SerializationError) -> None:
        raise error


@caught_by("test_a_malformed_body_does_not_stop_the_consumer")
class StumblesOverMalformedBodies(SqliteBackend):
    """A body that is no job ends the stream."""

    deliveries_type = _WaitsForBodies


class _Swallows(SqliteDeliveries):
    def _set_aside(self, row: Row, error: SerializationError) -> None:
        self._backend.store.remove(row.place, self._name)


@caught_by("test_a_malformed_body_is_among_the_dead_letters_untouched_and_with_a_reason")
class SwallowsMalformedBodies(SqliteBackend):
    """A body that is no job is gone."""

    deliveries_type = _Swallows


class _KnowsAllFields(SqliteDeliveries):
    def _next_row(self, queue: QueueConfig) -> Row | None:
        row = super()._next_row(queue)
        if row is None or b'"colour"' not in row.body:
            return row
        return Row(row.place, row.queue, b"a field that is unknown here", row.redelivered)


@caught_by("test_what_an_older_worker_or_a_newer_one_writes_is_a_job")
class RefusesUnknownFields(SqliteBackend):
    """What a newer worker writes is no job."""

    deliveries_type = _KnowsAllFields


# Settling


class _AcksFirst(SqliteDelivery):
    def _put_off(self, doing: str, envelope: Envelope, delay: timedelta | float) -> None:
        due_ms = self._backend.due_ms(doing, envelope.queue, delay)
        with self._settling(doing):
            self._remove()
        with self._backend.working(doing):
            self._backend.put(envelope, due_ms)


@caught_by("test_a_job_whose_outcome_failed_comes_again_once_its_consumer_closes")
class AcksBeforePublishing(SqliteBackend):
    """A retry removes the job, and then puts it on the queue, if it can."""

    delivery_type = _AcksFirst


class _SettledByTrying(SqliteDelivery):
    @contextmanager
    def _settling(self, doing: str) -> Iterator[None]:
        try:
            with super()._settling(doing):
                yield
        finally:
            self._settled = True


@caught_by("test_after_a_failed_outcome_another_may_be_chosen")
class TakesAFailureForAnOutcome(SqliteBackend):
    """After an outcome that failed no other may be chosen."""

    delivery_type = _SettledByTrying


class _ChecksLast(SqliteDelivery):
    def _put_off(self, doing: str, envelope: Envelope, delay: timedelta | float) -> None:
        with self._settling(doing):
            self._remove()
        with self._backend.working(doing):
            self._backend.put(envelope, self._backend.due_ms(doing, envelope.queue, delay))


@caught_by("test_putting_off_for_longer_than_the_cap_leaves_the_delivery_unsettled")
class RefusesAfterAcking(SqliteBackend):
    """What is too long to be held is refused when the job is gone."""

    delivery_type = _ChecksLast


class _SettlesAgain(SqliteDelivery):
    @contextmanager
    def _settling(self, doing: str) -> Iterator[None]:
        with suppress(AlreadySettledError), super()._settling(doing):
            yield
            return
        yield

    def _remove(self) -> None:
        self._backend.store.remove(self._row.place, self._consumer)


@caught_by("test_a_settled_delivery_takes_no_other_outcome")
class SettlesTwiceSilently(SqliteBackend):
    """A second outcome is as good as the first."""

    delivery_type = _SettlesAgain


class _BuriesWithoutReason(SqliteDelivery):
    def dead_letter(self, reason: str) -> None:
        super().dead_letter(reason[:0])


@caught_by("test_a_dead_letter_is_kept_as_it_was_with_its_reason")
class DeadLettersWithoutReason(SqliteBackend):
    """Nobody will know why."""

    delivery_type = _BuriesWithoutReason


class _BuriesACopy(SqliteDelivery):
    def dead_letter(self, reason: str) -> None:
        with self._settling("dead-lettering"):
            self._backend.store.bury(self.queue, self.envelope.to_bytes(), reason)
            self._backend.store.give_back(self._row.place, self._consumer, due_ms=0)


@caught_by("test_a_dead_letter_never_comes_again")
class DeliversDeadLettersAgain(SqliteBackend):
    """A dead letter is a copy."""

    delivery_type = _BuriesACopy


class _BuriesAnotherPayload(SqliteDelivery):
    def dead_letter(self, reason: str) -> None:
        self.envelope = _encoded_anew(self.envelope)
        super().dead_letter(reason)


@caught_by("test_a_dead_letter_keeps_its_payload_byte_for_byte")
class WritesDeadLettersAnew(SqliteBackend):
    """A dead letter is not the job that died."""

    delivery_type = _BuriesAnotherPayload


class _GoesToTheEnd(SqliteDelivery):
    def give_back(self, *, after: timedelta | float = 0) -> None:
        with self._settling("giving back"):
            self._backend.put(self.envelope, None)
            self._remove()


@caught_by("test_a_job_given_back_comes_again_before_the_backlog_and_says_so")
class GivesBackToTheEnd(SqliteBackend):
    """Giving back costs a job its place."""

    delivery_type = _GoesToTheEnd


class _GivesBackAtOnce(SqliteDelivery):
    def give_back(self, *, after: timedelta | float = 0) -> None:
        super().give_back(after=after and 0)


@caught_by("test_a_job_that_is_given_back_after_a_while_stays_out_for_it")
class GivesBackAtOnce(SqliteBackend):
    """A job that fails comes again and again, as fast as it can."""

    delivery_type = _GivesBackAtOnce


# Closing


class _LosesWhatItHeld(SqliteDeliveries):
    def _let_go(self) -> None:
        self._backend.store.db.execute("DELETE FROM jobs WHERE consumer = ?", (self._name,))


@caught_by("test_closing_a_consumer_gives_back_what_it_held_in_order")
class LosesOnClose(SqliteBackend):
    """What was out when a consumer closed is gone."""

    deliveries_type = _LosesWhatItHeld


class _KeepsWhatItHeld(SqliteDeliveries):
    def _let_go(self) -> None:
        pass


@caught_by("test_closing_a_backend_gives_back_what_its_consumers_held")
class KeepsOnClose(SqliteBackend):
    """What was out when a consumer closed stays with it."""

    deliveries_type = _KeepsWhatItHeld


class _WorksOn(SqliteDeliveries):
    def close(self) -> None:
        with self._backend.working("closing a consumer"):
            self._let_go()


@caught_by("test_a_closed_consumer_yields_nothing_more")
class DeliversAfterClosing(SqliteBackend):
    """A closed consumer takes jobs that nobody handles."""

    deliveries_type = _WorksOn


@caught_by("test_a_closed_backend_does_nothing_more")
class PublishesAfterClosing(SqliteBackend):
    """A closed backend takes jobs, and drops them."""

    def publish(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> None:
        with suppress(ShutDownError):
            super().publish(envelope, delay=delay)


class _SettlesAfterClosing(SqliteDelivery):
    def _remove(self) -> None:
        self._backend.store.remove(self._row.place, self._consumer)


@caught_by("test_settling_after_the_consumer_closed_raises_and_the_job_comes_again")
class SettlesAfterClosing(SqliteBackend):
    """An ack that comes too late looks like one that was in time."""

    delivery_type = _SettlesAfterClosing


class _AcksOnceAllIsClosed(SqliteDelivery):
    def ack(self) -> None:
        with suppress(ShutDownError):
            super().ack()


@caught_by("test_settling_after_the_backend_closed_raises_and_the_job_comes_again")
class AcksOnceAllIsClosed(SqliteBackend):
    """An ack of a backend that is closed goes nowhere, and nobody is told."""

    delivery_type = _AcksOnceAllIsClosed


def _encoded_anew(envelope: Envelope) -> Envelope:
    fields: dict[str, Any] = json.loads(envelope.to_bytes())
    return Envelope.from_bytes(json.dumps(fields).encode())


def _without(envelope: Envelope, field: str) -> Envelope:
    fields = json.loads(envelope.to_bytes())
    fields.pop(field, None)
    # The payload's own bytes, so that nothing else is broken.
    del fields["payload"]
    body = json.dumps(fields, separators=(",", ":"))[:-1].encode() + b',"payload":' + envelope.payload_json + b"}"
    return Envelope.from_bytes(body)
