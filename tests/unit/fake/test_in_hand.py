"""Whether a thread is at work is looked up without anything else happening meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

import pytest

from queuey_fake.in_hand import is_at_work


def test_no_garbage_is_collected_while_it_is_looked_where_threads_are(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[bool] = []
    frames = sys._current_frames

    def look() -> dict[int, FrameType]:
        collected.append(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", look)
    assert is_at_work(threading.current_thread())
    assert collected == [False]
    assert gc.isenabled()


def test_who_has_the_garbage_collector_switched_off_finds_it_so_afterwards() -> None:
    gc.disable()
    try:
        assert is_at_work(threading.current_thread())
        assert not gc.isenabled()
    finally:
        gc.enable()
