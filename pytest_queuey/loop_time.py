"""Owns what an event loop is given at each instant of virtual time: turns, and the end of what threads do for it.

Whether all tasks of a loop wait nobody can tell. So it is given some turns, and the pools of threads in which
coroutines have calls made that block, asyncio's own and anyio's, a moment to come to rest.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from queuey_fake import FakeBroker

_TURNS: Final = 10
"""A task that a future wakes needs two or three."""
_RESTED: Final = 2
"""How often in a row nothing must have been at work."""
_NAP_S: Final = 0.0005
_PATIENCE_NAPS: Final = 400
"""How many naps the pool is given at an instant: a call that waits for something else does not hold up time.

Counted, as a machine that is busy lets a nap last as much longer as the pool.
"""


class LoopTime:
    """The instants of one wait in the running loop."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._heeds_pool = True

    async def let_tasks_work(self) -> None:
        """Let the tasks of the loop do what they can at this instant.

        Raises WaitGuardError where another thread does not settle what it has taken.
        """
        naps = rested = 0
        # Twice: what a thread has ended since the loop's last turn is seen in the next.
        while rested < _RESTED:
            taken = self._broker.deliveries_taken()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            rested += 1
            if self._broker.deliveries_taken() != taken:
                # Whoever took one comes for the next, and may be on the way, where neither loop nor pool shows it.
                naps = rested = 0
            if self._broker.is_another_thread_at_work():
                await self._wait_for_other_threads()
                rested = 0
            elif self._heeds_pool and (
                _is_own_pool_at_work(self._loop, self._broker) or _is_anyio_at_work(self._loop, self._broker)
            ):
                time.sleep(_NAP_S)  # noqa: ASYNC251 -- so short that it only hands the processor to the pool
                rested = 0
                naps += 1
                self._heeds_pool = naps < _PATIENCE_NAPS

    async def _wait_for_other_threads(self) -> None:
        """Wait in a thread, as what is waited for may need this loop, and in none of its pool, which may be full."""
        executor = ThreadPoolExecutor(1)
        try:
            await self._loop.run_in_executor(executor, self._broker.wait_for_other_threads)
        finally:
            executor.shutdown(wait=False)


def _is_own_pool_at_work(loop: asyncio.AbstractEventLoop, broker: FakeBroker) -> bool:
    """Tell whether the loop's own pool has something to do, but for what waits for the broker.

    It shows nobody; a loop or a pool that is made in another way has nothing to do as far as is known.
    """
    pool = getattr(loop, "_default_executor", None)
    queue, threads, idle = (getattr(pool, name, None) for name in ("_work_queue", "_threads", "_idle_semaphore"))
    if queue is None or threads is None or idle is None:
        return False
    return bool(queue.qsize()) or idle._value + len(broker.waiting_threads() & threads) < len(threads)  # noqa: SLF001 -- asked for by name above


def _is_anyio_at_work(loop: asyncio.AbstractEventLoop, broker: FakeBroker) -> bool:
    """Tell the same of anyio's threads for the loop, by the calls that they have been given and not ended."""
    own = [thread for thread in threading.enumerate() if getattr(thread, "loop", None) is loop]
    at_work = {thread for thread in own if getattr(getattr(thread, "queue", None), "unfinished_tasks", False)}
    return bool(at_work - broker.waiting_threads())
