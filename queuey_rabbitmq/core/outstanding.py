"""Outcomes that the broker has been told and has not confirmed, and what follows when it has.

A future ends on a thread of the backend, which must not be kept; so what follows is done by whoever looks. Decides
nothing about the jobs themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock

HELPS_FROM = 256
"""With so many answers not looked at, whoever adds an outcome looks at them first: slow hooks slow the worker down."""


class Outstanding:
    """The outcomes of a worker that runs in threads; `wake` asks somebody to look, soon."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Lock()
        self._open = 0
        self._answered: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return self._open

    def follow(self, future: Future[None], then: Callable[[BaseException | None], None]) -> None:
        """Have `then` called with the future's error, or None, by somebody who looks after it has ended."""
        if len(self._answered) >= HELPS_FROM:
            self.look()
        with self._lock:
            self._open += 1
        future.add_done_callback(partial(self._ended, then))

    def look(self) -> None:
        """Do what follows from the outcomes that have been answered; what an error keeps from it waits for the next."""
        with self._lock:
            answered, self._answered = deque(self._answered), []
        try:
            while answered:
                then = answered.popleft()
                try:
                    then()
                finally:
                    with self._lock:
                        self._open -= 1
        finally:
            if answered:
                with self._lock:
                    self._answered[:0] = answered
                self._wake()

    def _ended(self, then: Callable[[BaseException | None], None], future: Future[None]) -> None:
        with self._lock:
            is_first = not self._answered
            self._answered.append(partial(then, future.exception()))
        if is_first:
            self._wake()
