"""Owns how a selector is told what to wait for on a socket, which it takes in three ways. Refuses to wait."""

from __future__ import annotations

import selectors
import socket


def watch(selector: selectors.BaseSelector, sock: socket.socket, *, before: int, wanted: int, data: object) -> None:
    """Wait for these events of a socket from now on, where it was waited for those; 0 is for none."""
    if wanted == before:
        return
    if not wanted:
        selector.unregister(sock)
    elif before:
        selector.modify(sock, wanted, data)
    else:
        selector.register(sock, wanted, data)
