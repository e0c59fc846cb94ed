"""Turns: all session code of a link, one at a time, and what is owed when a turn is over.

Owns the guard around session code (its first error ends the link), the completion of futures after a turn, and
events that came up inside a command. Everything here runs on the I/O thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import InvalidStateError
from functools import partial
from typing import Any, TypeVar

from queuey_rabbitmq.amqp import Driven, Event, Pending

T = TypeVar("T")

log = logging.getLogger("queuey_rabbitmq")


class Turns:
    """The turns of one session."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven
        self.failure: BaseException | None = None
        """The first error that escaped from session code: after it, no more of it runs until `abandon`."""
        self._under_way = False
        self._over = False
        self._late: list[tuple[Callable[[Event], None], Event]] = []
        self._outcomes: list[tuple[Pending[Any], Any, BaseException | None]] = []

    def step(self, step: Callable[[], object]) -> None:
        """Run a step in the present turn."""
        if self.failure is not None or self._over:
            return
        self._under_way = True
        try:
            step()
        except BaseException as error:  # noqa: BLE001 -- whatever it is, it must end the link and be told to all
            self._fail(error)

    def event(self, handle: Callable[[Event], None], event: Event) -> None:
        """Hand an event to the session in the present turn."""
        if self.failure is not None or self._over:
            return
        self._under_way = True
        try:
            handle(event)
        except BaseException as error:  # noqa: BLE001 -- as above
            self._fail(error)

    def late_event(self, handle: Callable[[Event], None], event: Event) -> None:
        """Hand an event to the session once the code that runs now, which caused it, has returned."""
        self._late.append((handle, event))

    @property
    def owes_a_turn(self) -> bool:
        """Whether events wait that came up when the turn was ending."""
        return bool(self._late)

    def settle(self, future: Pending[T], result: T | None, error: BaseException | None) -> None:
        """Note the outcome of a future for when the turn is over."""
        self._outcomes.append((future, result, error))

    def end(self) -> None:
        """Give late events, then let the session send what the turn has gathered."""
        late, self._late = self._late, []
        for handle, event in late:
            self.event(handle, event)
        if self._under_way:
            self.step(self._driven.end_of_turn)
            self._under_way = False

    def abandon(self, error: BaseException, accepted: Iterable[Callable[[], object]]) -> None:
        """Let the session fail what is open, and then what the accepted steps begin; none of its code runs after."""
        self._over = True
        steps: list[Callable[[], object]] = [partial(self._driven.abandon, error), *accepted]
        for step in steps:
            try:
                step()
            except BaseException:
                log.exception("the session could not be abandoned: what is open may wait for its deadline")

    def complete_futures(self) -> None:
        """Complete the futures of the turn that is over; code of users may run here, in their callbacks."""
        outcomes, self._outcomes = self._outcomes, []
        for future, result, error in outcomes:
            try:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            except InvalidStateError:
                _was_cancelled(future)
            except BaseException:  # SystemExit, which a Future lets out of its callbacks
                log.exception("a callback of a future tried to end the link's I/O thread; it goes on")

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        log.critical("an error in a turn ends the link to the broker: %r", error, exc_info=error)


def _was_cancelled(future: Pending[Any]) -> None:
    """Let those who wait for several futures see that one was cancelled, as an executor does."""
    if future.cancelled():
        try:
            future.set_running_or_notify_cancel()
        except RuntimeError:
            log.exception("a cancelled future was given two outcomes")
    else:
        log.error("a future was given a second outcome, which is dropped")
