"""The bound on what may be in flight: messages and bytes published and not yet settled.

Used by the threads of an application (to enter) and by turns (to leave), so it has a lock of its own; nothing else
happens under it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Lock

LOW_WATER = 0.75
"""Once the bound was reached, waiters are let in again below this share of it: in a batch, not one by one, as each
costs a switch of threads."""


class InFlightBound:
    """Slots for messages in flight; waiters get theirs in the order they came.

    A message larger than the whole byte bound enters when nothing else is in flight.
    """

    def __init__(self, *, messages: int, bytes_: int) -> None:
        self._lock = Lock()
        self._max_messages = messages
        self._max_bytes = bytes_
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def enter(self, size: int) -> Future[None] | None:
        """Take a slot and return None, or return the future of the slot that was not free."""
        with self._lock:
            if not self._waiting and self._fits(size):
                self._messages += 1
                self._bytes += size
                return None
            future: Future[None] = Future()
            self._waiting.append((size, future))
            return future

    def give_up(self, slot: Future[None], size: int) -> list[Future[None]]:
        """Leave the line, or give back the slot that was granted meanwhile; return the futures to resolve."""
        granted = self._forget(slot)
        return self.leave(size) if granted is None else granted

    def forget(self, slot: Future[None]) -> list[Future[None]]:
        """Leave the line, if the slot was not granted meanwhile; return the futures to resolve."""
        return self._forget(slot) or []

    def leave(self, size: int, *, messages: int = 1) -> list[Future[None]]:
        """Give slots of `size` bytes in all back; return the futures of the waiters that have theirs now.

        The caller resolves them.
        """
        with self._lock:
            self._messages -= messages
            self._bytes -= size
            if not self._waiting:
                return []
            return self._grant()

    def drain(self) -> list[Future[None]]:
        """Take out every waiter: nothing will ever leave."""
        with self._lock:
            waiting = [future for _, future in self._waiting]
            self._waiting.clear()
            return waiting

    def _forget(self, slot: Future[None]) -> list[Future[None]] | None:
        with self._lock:
            for waiting in self._waiting:
                if waiting[1] is slot:
                    self._waiting.remove(waiting)
                    return self._grant()
        return None

    def _grant(self) -> list[Future[None]]:
        granted: list[Future[None]] = []
        if self._messages > self._max_messages * LOW_WATER or self._bytes > self._max_bytes * LOW_WATER:
            return granted
        while self._waiting and self._fits(self._waiting[0][0]):
            size, future = self._waiting.popleft()
            self._messages += 1
            self._bytes += size
            granted.append(future)
        return granted

    def _fits(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self._max_messages and self._bytes + size <= self._max_bytes
