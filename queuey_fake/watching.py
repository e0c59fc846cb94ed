"""Waiting for sockets: epoll itself where the system has it, else what `selectors` picks.

Owns who is watched for what. The selectors of the standard library make a key for each socket that is ready, which
costs more than what a turn does with it.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Iterable
from typing import Protocol

MOST_AT_ONCE = 64  # the others are told of by the next wait


class Watcher(Protocol):
    """Who waits for sockets. Of what `wait` tells, more than `write` is to be read, more than `read` to be written."""

    read: int
    """The event of octets that are there, or of an end."""
    write: int
    """The event of room for octets."""

    def watch(self, fileno: int, *, before: int, wanted: int) -> None:
        """Watch a socket for these events from now on, where it was watched for those; 0 is for none."""

    def wait(self, timeout_s: float | None) -> Iterable[tuple[int, int]]:
        """Wait for the first that can do what it is watched for; return them, and what they can do."""

    def close(self) -> None:
        """Watch nothing any more."""


class EpollWatcher:
    """Linux."""

    def __init__(self) -> None:
        self.read, self.write = select.EPOLLIN, select.EPOLLOUT
        self._epoll = select.epoll()

    def watch(self, fileno: int, *, before: int, wanted: int) -> None:
        """Watch a socket for these events from now on, where it was watched for those; 0 is for none."""
        if not wanted:
            self._epoll.unregister(fileno)
        elif before:
            self._epoll.modify(fileno, wanted)
        else:
            self._epoll.register(fileno, wanted)

    def wait(self, timeout_s: float | None) -> Iterable[tuple[int, int]]:
        """Wait for the first that can do what it is watched for; return them, and what they can do."""
        return self._epoll.poll(timeout_s, MOST_AT_ONCE)

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()


class SelectorWatcher:
    """Any other system."""

    read, write = selectors.EVENT_READ, selectors.EVENT_WRITE

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fileno: int, *, before: int, wanted: int) -> None:
        """Watch a socket for these events from now on, where it was watched for those; 0 is for none."""
        watch(self._selector, fileno, before=before, wanted=wanted)

    def wait(self, timeout_s: float | None) -> Iterable[tuple[int, int]]:
        """Wait for the first that can do what it is watched for; return them, and what they can do."""
        return [(key.fd, events) for key, events in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Watch nothing any more."""
        self._selector.close()


def watch(
    selector: selectors.BaseSelector, sock: socket.socket | int, *, before: int, wanted: int, data: object = None
) -> None:
    """Have a selector watch a socket for these events from now on, where it did for those; 0 is for none."""
    if wanted == before:
        return
    if not wanted:
        selector.unregister(sock)
    elif before:
        selector.modify(sock, wanted, data)
    else:
        selector.register(sock, wanted, data)


def watcher() -> Watcher:
    """Return what this system has."""
    return EpollWatcher() if hasattr(select, "epoll") else SelectorWatcher()
