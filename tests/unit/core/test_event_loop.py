"""The event loop of a worker: it runs nothing once it is closed, and says why it cannot start."""

from __future__ import annotations

import asyncio
import threading

import pytest

from queuey_rabbitmq.core.event_loop import Abandoned, EventLoop


async def done(seen: list[str]) -> None:
    seen.append(threading.current_thread().name)


def test_a_loop_that_was_closed_runs_nothing_until_it_is_opened_again() -> None:
    loop = EventLoop()
    seen: list[str] = []
    loop.run(done(seen), timeout_ms=None)
    loop.close()
    loop.close()
    with pytest.raises(Abandoned):
        loop.run(done(seen), timeout_ms=None)
    loop.open()
    loop.run(done(seen), timeout_ms=1000)
    loop.close()
    assert seen == ["queuey worker's event loop"] * 2
    assert "queuey worker's event loop" not in [thread.name for thread in threading.enumerate()]


def test_a_loop_that_cannot_start_says_so_to_whoever_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", refuse)
    monkeypatch.setattr(asyncio.events, "new_event_loop", refuse)
    with pytest.raises(OSError, match="too many open files"):
        EventLoop().run(done([]), timeout_ms=None)
