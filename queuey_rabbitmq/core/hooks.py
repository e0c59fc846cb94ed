"""Hooks: who wants to see what happens to jobs. They watch; whatever they raise is logged and changes nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta

    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.job_context import JobContext

log = logging.getLogger("queuey_rabbitmq.hooks")


class Hooks:
    """Override what you want to see; every method is called in the thread in which it happens, and must be quick.

    `took` is how long the handler ran, in seconds of the backend's clock, to the millisecond.
    """

    def enqueued(self, envelope: Envelope, delay: timedelta | None) -> None:
        """See a job that the broker has confirmed."""

    def started(self, context: JobContext) -> None:
        """See a job that goes to its handler now."""

    def succeeded(self, context: JobContext, took: float) -> None:
        """See a job that is done, after the broker was told."""

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """See a job that failed and comes back after `delay`, when the broker has it."""

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """See a job that is held for `delay`, when the broker has it."""

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """See a job that goes to the dead queue, before the broker is told: at least once for each."""

    def settle_failed(self, context: JobContext, error: Exception) -> None:
        """See that the broker could not be told what became of a job; it will be delivered again."""


class HookChain(tuple[Hooks, ...]):
    """Everyone who wants to see; false where nobody does."""

    __slots__ = ()

    def tell(self, what: str, *about: Any) -> None:
        """Call the method `what` of each."""
        for hooks in self:
            try:
                getattr(hooks, what)(*about)
            except Exception:
                log.exception(
                    "%s.%s raised; a hook only watches, so it is as if it had not", type(hooks).__name__, what
                )
