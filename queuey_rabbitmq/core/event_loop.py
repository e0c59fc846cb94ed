"""The event loop that a worker's async handlers run on: one thread, started when the first of them is called."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING

from queuey_rabbitmq.core.outcomes import JobTimeoutError
from queuey_rabbitmq.core.real_time import monotonic_s

if TYPE_CHECKING:
    import asyncio

JOIN_S = 5.0
"""How long `close` waits for handlers that were cancelled and do not end."""


HEEDS_WITHIN_S = 5.0
"""How long a handler that was cancelled may take to clean up."""


class Abandoned(BaseException):
    """A coroutine was cancelled because its worker closes."""


class EventLoop:
    """Runs coroutines for the threads of a worker, each of which waits for its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event
        self._thread: threading.Thread
        self._closing = False

    def run(self, work: Awaitable[object], *, timeout_ms: int | None) -> None:
        """Await a coroutine, or whatever can be awaited; raise what it raises, SystemExit included.

        Raises JobTimeoutError once it was cancelled because it took longer than `timeout_ms`, also where it does not
        heed that and goes on, and Abandoned where the loop was closed under it or before.
        """
        import asyncio

        try:
            loop = self._started()
        except BaseException:
            if isinstance(work, Coroutine):
                work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(self._watched(work, timeout_ms), loop)
        patience_s = None if timeout_ms is None else min(timeout_ms / 1000 + HEEDS_WITHIN_S, threading.TIMEOUT_MAX)
        try:
            error = future.result(patience_s)
        except TimeoutError:  # `_watched` returns those of the handler
            raise JobTimeoutError(f"{_too_long(timeout_ms)}, and goes on all the same") from None
        except CancelledError:
            raise Abandoned from None
        except BaseException:
            future.cancel()
            raise
        if error is not None:
            raise error

    def open(self) -> None:
        """Let coroutines run, after a `close` too."""
        self._closing = False

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Idempotent; nothing runs until `open`."""
        with self._lock:
            loop, self._loop = self._loop, None
            self._closing = True
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(JOIN_S)

    async def _watched(self, work: Awaitable[object], timeout_ms: int | None) -> BaseException | None:
        import asyncio

        limit = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
        try:
            async with limit:
                await work
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            return error
        except BaseException as error:  # noqa: BLE001 -- SystemExit would end the loop, and every other job on it
            if limit.expired() and isinstance(error, TimeoutError):
                return JobTimeoutError(_too_long(timeout_ms))
            return error
        # One that takes its cancellation for its end has not done the job.
        return JobTimeoutError(_too_long(timeout_ms)) if limit.expired() else None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closing:
                raise Abandoned
            if self._loop is None:
                ready: Future[asyncio.AbstractEventLoop] = Future()
                self._thread = threading.Thread(
                    target=self._serve, args=(ready,), name="queuey worker's event loop", daemon=True
                )
                self._thread.start()
                self._loop = ready.result()
            return self._loop

    def _serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        import asyncio

        async def until_stopped(loop: asyncio.AbstractEventLoop) -> None:
            self._stop = asyncio.Event()
            ready.set_result(loop)
            await self._stop.wait()

        try:
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                with suppress(AttributeError):  # a loop that is not asyncio's own reads the clock in its own way
                    # Handlers sleep in real time, as those in threads do, also where a test freezes time.
                    loop.time = monotonic_s  # type: ignore[method-assign]  # a clock of one loop, and not of all
                runner.run(until_stopped(loop))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)


def _too_long(timeout_ms: int | None) -> str:
    assert timeout_ms is not None, "only a limit expires"
    return f"cancelled, as it took longer than {timeout_ms / 1000:g} s"
