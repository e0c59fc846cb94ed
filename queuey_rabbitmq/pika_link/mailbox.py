"""From turns to the threads of an application: a queue whose waits no frozen clock can stretch.

`queue.SimpleQueue` waits in C on the machine's own monotonic clock, and costs a twentieth of `queue.Queue`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_WAIT_S = threading.TIMEOUT_MAX


class _Refusing(SimpleQueue[T]):
    """Stands for items that are not for this process."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        self._refuse = refuse

    def get_nowait(self) -> T:
        self._refuse()
        raise Empty


class PikaMailbox(Generic[T]):
    """The port's Mailbox. `refuse_to_block` raises where the calling thread must not wait."""

    def __init__(self, refuse_to_block: Callable[[], None]) -> None:
        self._items: SimpleQueue[T] = SimpleQueue()
        self._refuse_to_block = refuse_to_block
        self.put = self._items.put

    def refuse(self, refuse: Callable[[], None]) -> None:
        """Give nothing more, but raise what `refuse` does: what is here is the parent's, in a forked process."""
        self._items = _Refusing(refuse)

    def get(self, timeout_ms: int | None) -> T | None:
        """Take the oldest item; see the port.

        Raises BackendError in a forked process, and on the I/O thread where nothing is ready: it would wait for
        itself.
        """
        try:
            return self._items.get_nowait()
        except Empty:
            if timeout_ms is not None and timeout_ms <= 0:
                return None
        self._refuse_to_block()
        try:
            return self._items.get(timeout=None if timeout_ms is None else min(timeout_ms / 1000, MAX_WAIT_S))
        except Empty:
            return None
