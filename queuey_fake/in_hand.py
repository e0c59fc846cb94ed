"""Which threads are at work on deliveries: who has taken one and not settled it, and whether such a thread still runs.

Owns the note of that; what is done about it is the engine's.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Container, Iterator
from threading import Thread
from types import FrameType

POOLS = frozenset({"threading", "queue", "concurrent.futures.thread", "anyio._backends._asyncio"})
"""The modules that are on the stack of a pool's thread which waits for something to do."""


class InHand:
    """The deliveries of one connection that threads have in hand. In turns, but for `take`: under the lock."""

    def __init__(self, open_channels: Container[int]) -> None:
        self._open_channels = open_channels
        self.by_channel: dict[int, dict[int, Thread]] = {}
        """Who holds what: by channel, and by delivery tag."""

    def take(self, channel: int, delivery_tag: int) -> None:
        """Note that the calling thread has taken a delivery; one of a channel that is gone is nobody's any more."""
        if channel in self._open_channels:
            self.by_channel.setdefault(channel, {})[delivery_tag] = threading.current_thread()

    def settle(self, channel: int, delivery_tag: int, *, multiple: bool) -> None:
        """Note that a delivery is settled, or with `multiple` it and all before it."""
        held = self.by_channel.get(channel)
        if held is None:
            return
        for tag in [tag for tag in held if tag == delivery_tag or (multiple and tag < delivery_tag)]:
            del held[tag]
        if not held:
            del self.by_channel[channel]

    def forget(self, channel: int) -> None:
        """Note that a channel is gone: what came from it is nobody's any more."""
        self.by_channel.pop(channel, None)

    def threads(self) -> Iterator[Thread]:
        """Yield the threads that have something in hand."""
        for held in self.by_channel.values():
            yield from held.values()


def is_at_work(thread: Thread) -> bool:
    """Tell whether a thread runs something: it has not ended, and does not wait in a pool for something to do."""
    frame = _frame_of(thread) if thread.is_alive() else None
    while frame is not None:
        if frame.f_globals.get("__name__") not in POOLS:
            return True
        frame = frame.f_back
    return False


def _frame_of(thread: Thread) -> FrameType | None:
    """Return where a thread is.

    Without the garbage collector: CPython makes the frames under a lock that the end of a `threading.local` takes too,
    and waits for itself for ever where that is in the garbage (`_PyThread_CurrentFrames`; seen on 3.11.7 with gdb).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 -- documented
    finally:
        if collects:
            gc.enable()
