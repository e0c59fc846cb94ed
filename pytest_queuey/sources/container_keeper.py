"""Owns the end of a container: it is removed when its owner is gone, however that ends.

Run as a script, in a session of its own: `python container_keeper.py DOCKER_HOST NAME OWNER`. It waits. When its
standard input ends, or its parent is not the process OWNER any more (a killed test run cannot clean up), it removes the
container with its volumes, and exits. The normal end of a test run takes the same way, so it is the way that is always
tested.

Anything on its standard input says that the container is there. Before that Docker may be at making it, so for some
seconds it is looked for again.
It imports nothing of ours and nothing but the standard library: it starts in a few milliseconds, isolated.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_LOOK_EVERY_SECONDS = 0.1
_ASK_EVERY_SECONDS = 0.25
_ANSWERS_WITHIN = 20.0
_MAY_COME_WITHIN = 10.0
"""Seconds in which Docker makes a container that it was asked for."""


def main(host: str, name: str, owner: str) -> None:
    """Wait for the owner to go, remove the container."""
    is_there = _wait_for_it_to_go(int(owner))
    gives_up_at = time.monotonic() + (0 if is_there else _MAY_COME_WITHIN)
    while not remove(host, name) and time.monotonic() < gives_up_at:
        time.sleep(_ASK_EVERY_SECONDS)


def _wait_for_it_to_go(owner: int) -> bool:
    """Return whether the container was said to be there."""
    is_there = False
    # The end of the pipe is the fast sign; a forked child of the owner may hold it open, so the parent is asked too.
    while os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_EVERY_SECONDS)
        if readable:
            if not os.read(sys.stdin.fileno(), 1024):
                break
            is_there = True
    return is_there


def remove(host: str, name: str) -> bool:
    """End and remove a container; tell whether it was there."""
    connection = connect(host, within=_ANSWERS_WITHIN)
    try:
        connection.request("DELETE", f"/containers/{name}?force=1&v=1")
        return connection.getresponse().status != HTTPStatus.NOT_FOUND
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def connect(host: str, *, within: float) -> HTTPConnection:
    """Return a connection to a Docker at unix:// or tcp://, which opens with its first request."""
    parts = urlsplit(host)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path, within)
    return HTTPConnection(parts.hostname or "localhost", parts.port or 2375, timeout=within)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._within = timeout

    def connect(self) -> None:
        """Connect to the socket file."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._within)
        self.sock.connect(self._path)


if __name__ == "__main__":
    main(*sys.argv[1:])
