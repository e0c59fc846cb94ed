"""Owns the future that a caller is given on a broker in memory: who waits for it waits in the broker's time.

Refuses to know how that is done: the link does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class InProcessFuture(Future[Any]):
    """A future whose `result` and `exception` wait as `wait_until` does, up to a deadline in ms."""

    def __init__(self, wait_until: Callable[[Callable[[], bool], int | None], object]) -> None:
        super().__init__()
        self._wait_until = wait_until

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, for `timeout` seconds at most; return the result or raise the error."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, for `timeout` seconds at most; return the error, or None where there is none."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            self._wait_until(self.done, None if timeout is None else max(0, round(timeout * 1000)))
