"""Hooks: who wants to see what happens to jobs. They watch; whatever they raise is logged and changes nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from queuey_rabbitmq.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from datetime import timedelta

    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.job_context import JobContext

log = logging.getLogger("queuey_rabbitmq.hooks")


class Hooks:
    """Override what you want to see; every method must be quick, and may be called in several threads at a time.

    Those of producers are called in the thread that enqueues, on the event loop where a coroutine does. Of a worker,
    `started`, `handler_ended`, `succeeded` and `given_back` are called in the thread that takes the job, also where the
    handler is a coroutine and runs elsewhere; and `dead_lettered` where the handler has ended. What depends on the
    broker's answer is told in the thread of `Worker.run`, as those that take jobs do not wait for it, or in one of them
    when many have been answered: `retried`, `deferred`, `settle_failed` but for an ack. So is everything that follows
    where a function runs longer than its timeout. In `step` and in a burst, all are called in the caller's thread.

    `took` is how long the handler ran, in seconds of the backend's clock, to the millisecond. One attempt at a job is
    one `context`, the same object from `started` on.
    """

    # of producers

    def enqueuing(self, envelope: Envelope, delay: timedelta | None) -> Mapping[str, str] | None:
        """See a job that is about to be sent; return headers to send with it, if any.

        Either `enqueued` or `enqueue_failed` follows.
        """

    def enqueued(self, envelope: Envelope, delay: timedelta | None) -> None:
        """See a job that the broker has confirmed."""

    def enqueue_failed(self, envelope: Envelope, error: BaseException) -> None:
        """See a job that was not confirmed, or whose `await` was cancelled; the broker may have it all the same."""

    # of workers

    def started(self, context: JobContext) -> None:
        """See a job that goes to its handler now."""

    def handler_ended(self, context: JobContext) -> None:
        """See that the handler has ended, however, in the thread of `started`; what becomes of the job is told apart.

        Not after it: where a function runs longer than its timeout, that is told while it still runs.
        """

    def succeeded(self, context: JobContext, took: float) -> None:
        """See a job that is done, after the broker was told."""

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """See a job that failed and comes back after `delay`, when the broker has it."""

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """See a job that is held for `delay`, when the broker has it."""

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """See a job that goes to the dead queue, before the broker is told: at least once for each."""

    def settle_failed(self, context: JobContext, error: BaseException) -> None:
        """See that the broker could not be told what became of a job; it will be delivered again."""

    def given_back(self, context: JobContext) -> None:
        """See a job whose handler was ended because its worker ends; it will be delivered again."""


_TOLD = frozenset(name for name in vars(Hooks) if not name.startswith("_"))


class HookChain(tuple[Hooks, ...]):
    """Everyone who wants to see; false where nobody does.

    An object of another class is told what it has methods for. Raises InvalidConfigError for what has none.
    """

    __slots__ = ()

    def __new__(cls, hooks: Iterable[Hooks]) -> Self:
        """Check each."""
        try:
            chain = super().__new__(cls, hooks)
        except TypeError:
            raise InvalidConfigError(f"hooks: expected a list of Hooks, got {hooks!r}") from None
        for one in chain:
            if not isinstance(one, Hooks) and (isinstance(one, type) or not any(hasattr(one, name) for name in _TOLD)):
                raise InvalidConfigError(f"hooks: expected objects that are Hooks or like it, got {one!r}")
        return chain

    def tell(self, what: str, *about: Any) -> None:
        """Call the method `what` of each."""
        for hooks in self:
            try:
                see = getattr(hooks, what, None)
                if see is not None:
                    see(*about)
            except BaseException as error:  # noqa: BLE001 -- SystemExit too would end a thread of the worker
                _raised(hooks, what, error)

    def with_headers(self, envelope: Envelope, delay: timedelta | None) -> Envelope:
        """Tell each that a job is about to be sent; return it with the headers that they give it."""
        for hooks in self:
            try:
                see = getattr(hooks, "enqueuing", None)
                if see is not None and (headers := see(envelope, delay)):
                    envelope = envelope.with_headers(_checked(headers))
            except BaseException as error:  # noqa: BLE001 -- as above
                _raised(hooks, "enqueuing", error)
        return envelope


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers whose values can be sent; what cannot must not keep a job from its queue."""
    for name, value in headers.items():
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(f"a header that a hook gives is a text, got {name!r}: {value!r}")
    return headers


def _raised(hooks: Hooks, what: str, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error  # somebody ends the program, and no hook
    log.error(
        "%s.%s raised; a hook only watches, so it is as if it had not", type(hooks).__name__, what, exc_info=error
    )
