"""Eight threads that publish, consume, retry, defer and dead-letter, by every way there is."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from queuey_rabbitmq import (
    DeadLetters,
    Deferred,
    Envelope,
    Fatal,
    Hooks,
    Job,
    JobContext,
    JobsNotConfirmedError,
    Producer,
    Queue,
    QueueSet,
    QueueyError,
    RabbitMqBackend,
    RabbitMqDelivery,
    RabbitMqOptions,
    ReconnectPolicy,
    Retryable,
    RetryPolicy,
    ShutDownError,
    Worker,
    job,
)
from tests.torture.fates import GRANULARITY_MS, LONGEST_DELAY_MS, Step
from tests.torture.record import UNANSWERED_S, Record, Run, following

HOLD_LEASE_MARGIN_S = 10
"""Longer than the broker is stopped for; without it RabbitMQ loses what is held when it is stopped."""
OPERATION_TIMEOUT_S = UNANSWERED_S
"""More than a broker takes to come back after it was killed, so most calls outlive that."""
CLOSE_TIMEOUT_S = 5
BACKLOG = 1_500
"""Publishers rest while more jobs than that wait."""
PACE_S = 0.01
"""The pause of a publisher between two calls."""
WINDOW = 50


class Torture(QueueSet, prefix="torture"):
    """One queue for a worker, one for deliveries that are taken by hand."""

    worked = Queue(prefetch=20, retry=RetryPolicy.fixed(10, 1))
    taken = Queue(prefetch=20)


@job(Torture.worked)
class Do(Job[Torture]):
    """A job; what becomes of it is its number's fate."""

    number: int


def options(seed: int) -> RabbitMqOptions:
    """Return options with which a loss is noticed within seconds."""
    return RabbitMqOptions(
        retry_granularity=GRANULARITY_MS / 1000,
        deferred_granularity=GRANULARITY_MS / 1000,
        hold_lease_margin=HOLD_LEASE_MARGIN_S,
        heartbeat=2,
        connect_timeout=3,
        operation_timeout=OPERATION_TIMEOUT_S,
        close_timeout=CLOSE_TIMEOUT_S,
        max_in_flight=200,
        reconnect=ReconnectPolicy(base=0.05, max_delay=0.5, random_source=random.Random(seed)),  # noqa: S311 -- a game, not a secret
    )


class Confirmations(Hooks):
    """Tells the record which of the worker's jobs are held, as soon as the broker has confirmed it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._holds: dict[uuid.UUID, tuple[int, Run]] = {}

    def awaited(self, context: JobContext, number: int, run: Run) -> None:
        """Note that a job is about to be held until a run."""
        self._holds[context.job_id] = number, run

    def retried(self, context: JobContext, *_: Any, **__: Any) -> None:
        """See a job that is held."""
        if context.job_id in self._holds:
            self._record.held(*self._holds.pop(context.job_id))

    deferred = retried

    def settle_failed(self, context: JobContext, *_: Any, **__: Any) -> None:
        """See a job of which that is not known."""
        self._holds.pop(context.job_id, None)


class Load:
    """The threads and what they use: one backend publishes, one has the worker, one is used by hand."""

    def __init__(self, url: str, seed: int, record: Record) -> None:
        self._record = record
        self._dice = random.Random(seed)  # noqa: S311 -- a game, not a secret
        self._backends = [RabbitMqBackend.with_options(url, options(seed + number)) for number in range(3)]
        self.publishing, working, self._by_hand = self._backends
        self._publishes = True
        self._confirmations = Confirmations(record)
        self.worker = Worker(
            working,
            Torture,
            only=[Torture.worked],
            concurrency=3,
            grace=CLOSE_TIMEOUT_S,
            settle_backoff=0.5,
            hooks=[self._confirmations],
        )
        self.worker.register(Do, self._do)
        self._producer = Producer(self.publishing, Torture)
        self._by_hand.declare([Torture.taken.config])
        self._deliveries = self._by_hand.consume(Torture.taken.config)
        self._publishers = self._start(self._publish_singly, self._publish_many, self._publish_nowait)
        self._consumers = self._start(self._work, self._take, self._take)

    def stop_publishing(self, within: float) -> None:
        """End the publishers when their last call has ended."""
        self._publishes = False
        _join(self._publishers, within)

    def close(self, within: float) -> None:
        """End the consumers and close every backend."""
        self.worker.shutdown()
        self._deliveries.close()
        _join(self._consumers, within)
        for backend in self._backends:
            began = time.monotonic()
            backend.close()
            self._record.called(began)

    def dead(self) -> set[int]:
        """Return the numbers of the jobs in the dead queues."""
        letters = [*DeadLetters(self.publishing, Torture.worked), *DeadLetters(self.publishing, Torture.taken)]
        return {letter.envelope.payload["number"] for letter in letters if letter.envelope is not None}

    def _start(self, *targets: Callable[[], None]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guard, args=(target,), daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        return threads

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 -- the test raises it
            self._record.unexpected.append(error)

    # ---------------------------------------------------------------------------------------- publishers

    def _publish(self) -> bool:
        """Tell whether to publish more, after a pause where many jobs wait."""
        time.sleep(PACE_S)
        while self._publishes and self._record.open_jobs() > BACKLOG:
            time.sleep(10 * PACE_S)
        return self._publishes

    def _publish_singly(self) -> None:
        while self._publish():
            number = self._record.new_job()
            wait_ms = self._dice.choice((0, 0, 0, self._dice.randrange(GRANULARITY_MS, LONGEST_DELAY_MS)))
            began = time.monotonic()
            try:
                if wait_ms:
                    put_off = self._dice.choice((self._producer.defer, self._producer.enqueue_after))
                    self._record.asked(number, (1, 0), wait_ms / 1000)
                    put_off(Do(number), wait_ms / 1000)
                    self._record.held(number, (1, 0))
                else:
                    self._producer.enqueue(Do(number))
                self._record.confirmed(number)
            except QueueyError as error:
                self._record.failed(error)
            self._record.called(began)

    def _publish_many(self) -> None:
        while self._publish():
            numbers = [self._record.new_job() for _ in range(5)]
            began = time.monotonic()
            failed: Any = ()
            try:
                self._producer.enqueue_many(Do(number) for number in numbers)
            except JobsNotConfirmedError as error:
                failed = error.errors
                for reason in error.errors.values():
                    self._record.failed(reason)
            self._record.called(began)
            for place, number in enumerate(numbers):
                if place not in failed:
                    self._record.confirmed(number)

    def _publish_nowait(self) -> None:
        window: deque[tuple[int, Future[None]]] = deque()
        while self._publish() or window:
            if self._publishes and len(window) < WINDOW:
                number = self._record.new_job()
                with contextlib.suppress(QueueyError):
                    window.append((number, self.publishing.publish_nowait(_envelope(number, self.publishing))))
                continue
            number, future = window.popleft()
            began = time.monotonic()
            try:
                future.result(OPERATION_TIMEOUT_S + CLOSE_TIMEOUT_S)
                self._record.confirmed(number)
            except QueueyError as error:
                self._record.failed(error)
            self._record.called(began)

    # ----------------------------------------------------------------------------------------- consumers

    def _work(self) -> None:
        self.worker.run(signals=False)

    def _do(self, job: Do, context: JobContext) -> None:
        run = context.attempt, context.deferrals
        step = self._record.ran(job.number, run)
        if step.delay_ms:
            self._confirmations.awaited(context, job.number, following(run, step))
        if step.outcome == "dead":
            raise Fatal("it is its fate")
        if step.outcome == "defer":
            raise Deferred(step.delay_ms / 1000)
        if step.outcome == "retry":
            raise Retryable("it is its fate", delay=step.delay_ms / 1000)

    def _take(self) -> None:
        with contextlib.suppress(ShutDownError):
            for delivery in self._deliveries:
                envelope = delivery.envelope
                number, run = envelope.payload["number"], (envelope.attempt, envelope.deferrals)
                step = self._record.ran(number, run)
                began = time.monotonic()
                try:
                    _settle(delivery, step)
                    if step.delay_ms:
                        self._record.held(number, following(run, step))
                except QueueyError as error:
                    self._record.failed(error)
                    with contextlib.suppress(QueueyError):
                        delivery.give_back(after=0.5)
                self._record.called(began)


def _envelope(number: int, backend: RabbitMqBackend) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(),
        job_type="do",
        queue=Torture.taken.name,
        enqueued_at_ms=backend.now_ms(),
        payload={"number": number},
    )


def _settle(delivery: RabbitMqDelivery, step: Step) -> None:
    envelope = delivery.envelope
    if step.outcome == "done":
        delivery.ack()
    elif step.outcome == "dead":
        delivery.dead_letter("it is its fate")
    elif step.outcome == "defer":
        delivery.defer(envelope.deferred(10), step.delay_ms / 1000)
    else:
        delivery.retry(envelope.next_attempt(), step.delay_ms / 1000)


def _join(threads: list[threading.Thread], within: float) -> None:
    deadline = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"these threads have not ended within {within:g} s: {stuck}"
