"""From a delivery to its outcome: decode, call the handler, decide, tell the broker, the log and the hooks.

Runs in the thread that calls it, and never raises for what a handler or the broker did. An outcome that the broker
could not be told is counted, and the delivery given back after a backoff, so that it neither keeps a prefetch slot
nor comes round at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from queuey_rabbitmq.core.attempt import Attempt, TimeoutWatch
from queuey_rabbitmq.core.delivery import SettlesWithoutWaiting
from queuey_rabbitmq.core.durations import whole_ms
from queuey_rabbitmq.core.errors import (
    AlreadySettledError,
    DelayTooLongError,
    DeliveryLost,
    InvalidConfigError,
    QueueyError,
    ShutDownError,
    UnknownQueueError,
)
from queuey_rabbitmq.core.event_loop import Abandoned, EventLoop
from queuey_rabbitmq.core.outcomes import (
    DONE,
    Dead,
    Done,
    Fatal,
    Hold,
    JobTimeoutError,
    Outcome,
    Retry,
    Retryable,
    failed,
    outcome_of,
    said,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from queuey_rabbitmq.core.backend import Backend
    from queuey_rabbitmq.core.delivery import Delivery
    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.handlers import Handler, RetryRules
    from queuey_rabbitmq.core.hooks import HookChain
    from queuey_rabbitmq.core.outstanding import Outstanding
    from queuey_rabbitmq.core.queue_config import QueueConfig
    from queuey_rabbitmq.core.retry import RandomSource

log = logging.getLogger("queuey_rabbitmq.worker")

_CAN_NEVER_WORK = (DelayTooLongError, UnknownQueueError, InvalidConfigError)
_GONE = (DeliveryLost, ShutDownError, AlreadySettledError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a dispatcher goes by."""

    configs: Mapping[str, QueueConfig]
    """The queues that are consumed, by name."""
    handlers: Mapping[str, Handler]
    """By the name of their job."""
    retry: RetryRules
    hooks: HookChain
    random_source: RandomSource
    settle_backoff_ms: int


class Dispatcher:
    """Handles deliveries, in any number of threads."""

    def __init__(self, backend: Backend, rules: Rules, loop: EventLoop) -> None:
        self._now_ms = backend.now_ms
        self._rules = rules
        self._handlers = rules.handlers
        self._hooks = rules.hooks
        self._loop = loop
        self.watch: TimeoutWatch | None = None
        """Who minds the time of handlers while they run, where anybody does."""
        self.outstanding: Outstanding | None = None
        """Who minds outcomes that the broker has not confirmed, so that no thread waits for it, where anybody does."""
        self._lock = threading.Lock()
        self.settle_failures = 0
        """How many outcomes the broker was not told."""

    def handle(self, delivery: Delivery) -> None:
        """Do a job and settle it."""
        envelope = delivery.envelope
        began_ms = self._now_ms()
        handler = self._handlers.get(envelope.job_type)
        if handler is None:
            attempt = Attempt(delivery, self._rules.retry.of_queue(delivery.queue), began_ms=began_ms)
            self._conclude(attempt, Dead(f"no handler for job type {envelope.job_type!r}"))
            return
        try:
            payload = envelope.decode(handler.job_type.payload)
        except BaseException as error:  # a model's own code may run here, and raise anything
            attempt = Attempt(delivery, self._rules.retry.of_queue(delivery.queue), began_ms=began_ms)
            if _interrupts(error):
                self._give_back(attempt, after_ms=0)
                raise
            self._conclude(attempt, Dead(f"undecodable payload: {said(error.__cause__ or error)}", error))
            return
        policy = self._rules.retry.of_job(handler.job_type, delivery.queue)
        if handler.choose_retry is not None:
            try:
                policy = handler.chosen_policy(payload) or policy
            except BaseException as error:  # the handler's code; its choice failing fails the attempt
                attempt = Attempt(delivery, policy, began_ms=began_ms)
                if _interrupts(error):
                    self._give_back(attempt, after_ms=0)
                    raise
                self._conclude(attempt, self._outcome_of(attempt, error))
                return
        attempt = Attempt(delivery, policy, began_ms=began_ms, timeout_ms=handler.timeout_ms)
        self._tell("started", attempt)
        outcome = self._call(handler, payload, attempt)
        if outcome is not None and attempt.claim():
            self._conclude(attempt, outcome)

    def overran(self, attempt: Attempt) -> None:
        """Count an attempt as failed while its thread goes on: a thread cannot be stopped from outside."""
        if attempt.claim():
            log.error(
                "job %s (%s) of queue '%s' runs longer than its timeout. Its attempt counts as failed now; the thread "
                "cannot be stopped, and takes no other job until the handler returns",
                attempt.context.job_id,
                attempt.context.job_type,
                attempt.context.queue,
                extra=attempt.context.log_fields(),
            )
            self._conclude(attempt, self._outcome_of(attempt, self._timed_out(attempt)))

    def _call(self, handler: Handler, payload: object, attempt: Attempt) -> Outcome | None:
        """Call the handler; None where its worker closes, and the job goes back."""
        watch = self.watch if attempt.timeout_ms is not None else None
        if watch is not None:
            watch.start(attempt)
        try:
            result = handler.function(payload, attempt.context) if handler.wants_context else handler.function(payload)
            if result is not None and isinstance(result, Awaitable):
                if watch is not None:
                    watch.stop(attempt)
                self._loop.run(result, timeout_ms=attempt.timeout_ms)
        except Abandoned:
            self._log(logging.WARNING, attempt, "not done, as its worker ends; it goes back to the broker")
            self._tell("given_back", attempt)
            return None
        except BaseException as error:  # whatever a handler raises, SystemExit too, fails its attempt
            if _interrupts(error):
                self._give_back(attempt, after_ms=0)
                self._tell("given_back", attempt)
                raise
            return self._outcome_of(attempt, error)
        finally:
            if watch is not None:
                watch.stop(attempt)
            self._tell("handler_ended", attempt)
        if attempt.timeout_ms is not None and self._now_ms() - attempt.began_ms > attempt.timeout_ms:
            return self._outcome_of(attempt, self._timed_out(attempt))
        return DONE

    def _tell(self, what: str, attempt: Attempt) -> None:
        if self._hooks:
            self._hooks.tell(what, attempt.context)

    def _timed_out(self, attempt: Attempt) -> JobTimeoutError:
        assert attempt.timeout_ms is not None, "only an attempt with a timeout can time out"
        return JobTimeoutError(f"it took longer than {attempt.timeout_ms / 1000:g} s")

    def _outcome_of(self, attempt: Attempt, error: BaseException) -> Outcome:
        try:
            return outcome_of(
                error,
                attempt=attempt.delivery.envelope.attempt,
                policy=attempt.policy,
                random_source=self._rules.random_source,
            )
        except Exception as broken:  # noqa: BLE001 -- a Deferred without a delay, say: no error may end the worker
            return Dead(f"what follows from {type(error).__name__} cannot be decided: {said(broken)}", error)

    def _conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        """Tell the broker, then everyone else."""
        if isinstance(outcome, Dead) and self._hooks:
            self._hooks.tell("dead_lettered", attempt.context, outcome.reason, outcome.error, self._took(attempt))
        outstanding = self.outstanding
        try:
            if isinstance(outcome, Done):
                attempt.delivery.ack()
            elif outstanding is not None and isinstance(attempt.delivery, SettlesWithoutWaiting):
                future = self._start_to_settle(attempt.delivery, attempt.delivery, outcome)
                outstanding.follow(future, partial(self._settled, attempt, outcome))
                return
            else:
                self._settle(attempt.delivery, outcome)
        except Exception as error:  # noqa: BLE001 -- an error of our own must not end the worker either
            self._settled(attempt, outcome, error)
        else:
            self._concluded(attempt, outcome)

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        if isinstance(outcome, Retry):
            delivery.retry(delivery.envelope.next_attempt(), outcome.delay)
        elif isinstance(outcome, Hold):
            delivery.defer(self._deferred(delivery), outcome.delay)
        elif isinstance(outcome, Dead):
            delivery.dead_letter(outcome.reason)

    def _start_to_settle(
        self, delivery: Delivery, settles: SettlesWithoutWaiting, outcome: Retry | Hold | Dead
    ) -> Future[None]:
        if isinstance(outcome, Retry):
            return settles.retry_nowait(delivery.envelope.next_attempt(), outcome.delay)
        if isinstance(outcome, Hold):
            return settles.defer_nowait(self._deferred(delivery), outcome.delay)
        return settles.dead_letter_nowait(outcome.reason)

    def _deferred(self, delivery: Delivery) -> Envelope:
        return delivery.envelope.deferred(self._rules.configs[delivery.queue].top_priority)

    def _settled(self, attempt: Attempt, outcome: Outcome, error: BaseException | None) -> None:
        """Go on when the broker has answered an outcome, or could not be told."""
        if error is None:
            self._concluded(attempt, outcome)
        elif isinstance(error, _CAN_NEVER_WORK) and not isinstance(outcome, Dead):
            self._conclude(attempt, self._instead(attempt, outcome, error))
        else:
            self._settle_failed(attempt, error)

    def _instead(self, attempt: Attempt, outcome: Outcome, refusal: QueueyError) -> Outcome:
        """Choose another outcome for one that would be refused each time."""
        if isinstance(outcome, Hold):
            return failed(
                refusal,
                attempt=attempt.delivery.envelope.attempt,
                policy=attempt.policy,
                random_source=self._rules.random_source,
            )
        error = outcome.error if isinstance(outcome, Retry) else None
        last = "" if error is None else f"; the last error was {said(error)}"
        return Dead(f"cannot be tried again: {refusal}{last}", error)

    def _settle_failed(self, attempt: Attempt, error: BaseException) -> None:
        if not isinstance(error, _GONE):
            # Before anybody is told: who moves virtual time when they have been must find the job on its way.
            self._give_back(attempt, after_ms=self._rules.settle_backoff_ms)
        with self._lock:
            self.settle_failures += 1
        context = attempt.context
        log.error(
            "the broker could not be told what became of job %s (%s) of queue '%s': %s. It will be delivered again",
            context.job_id,
            context.job_type,
            context.queue,
            said(error).removesuffix("."),
            extra=context.log_fields(),
            exc_info=None if isinstance(error, QueueyError) else error,
        )
        if self._hooks:
            self._hooks.tell("settle_failed", context, error)

    def _give_back(self, attempt: Attempt, *, after_ms: int) -> None:
        try:
            attempt.delivery.give_back(after=timedelta(milliseconds=after_ms))
        except QueueyError as error:
            log.debug("giving back job %s: %s; it goes back with its channel", attempt.context.job_id, error)

    def _took(self, attempt: Attempt) -> float:
        return max(0, self._now_ms() - attempt.began_ms) / 1000

    def _concluded(self, attempt: Attempt, outcome: Outcome) -> None:
        """Log what became of a job, and show it to the hooks."""
        if outcome is DONE:
            if log.isEnabledFor(logging.DEBUG):
                self._log(logging.DEBUG, attempt, "done in %g s", self._took(attempt))
            if self._hooks:
                self._hooks.tell("succeeded", attempt.context, self._took(attempt))
        elif isinstance(outcome, Retry):
            error, seconds = outcome.error, whole_ms(outcome.delay) / 1000
            self._log(logging.WARNING, attempt, "failed: %s. Tried again in %g s", said(error), seconds, error=error)
            if self._hooks:
                delay = timedelta(seconds=seconds)
                self._hooks.tell("retried", attempt.context, error, delay, self._took(attempt))
        elif isinstance(outcome, Hold):
            seconds = whole_ms(outcome.delay) / 1000
            self._log(logging.INFO, attempt, "deferred by %g s: %s", seconds, outcome.reason or "no reason given")
            if self._hooks:
                delay = timedelta(seconds=seconds)
                self._hooks.tell("deferred", attempt.context, outcome.reason, delay, self._took(attempt))
        elif isinstance(outcome, Dead):
            self._log(logging.ERROR, attempt, "dead-lettered: %s", outcome.reason, error=outcome.error)

    def _log(
        self, level: int, attempt: Attempt, message: str, *values: object, error: BaseException | None = None
    ) -> None:
        context = attempt.context
        log.log(
            level,
            "job %s (%s) of queue '%s', attempt %d of %d: %s",
            context.job_id,
            context.job_type,
            context.queue,
            context.attempt,
            context.max_attempts,
            message % values,
            extra=context.log_fields(),
            # What a handler says on purpose needs no traceback, unless it has a cause.
            exc_info=None if isinstance(error, Retryable | Fatal) and error.__cause__ is None else error,
        )


def _interrupts(error: BaseException) -> bool:
    """Tell whether somebody has interrupted the thread that steps; in another, a handler has raised it itself."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
