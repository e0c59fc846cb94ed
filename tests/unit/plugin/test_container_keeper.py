"""What ends a container when its owner is gone, in front of a Docker that these tests play."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

import pytest

from pytest_queuey.sources import container_keeper

ENDED_WITHIN = 30


class Docker(UnixStreamServer):
    """Answers each request with the next status, the last one again and again."""

    def __init__(self, path: Path, *statuses: int) -> None:
        super().__init__(str(path), Answer)
        self.statuses = list(statuses)
        self.requests: list[str] = []
        self.host = f"unix://{path}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Answer(BaseHTTPRequestHandler):
    server: Docker

    def do_DELETE(self) -> None:
        self.server.requests.append(self.path)
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass

    def address_string(self) -> str:
        return "a socket file"


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Callable[..., Docker]]:
    started = []

    def start(*statuses: int) -> Docker:
        started.append(Docker(tmp_path / "docker.sock", *statuses))
        return started[-1]

    yield start
    for each in started:
        each.shutdown()
        each.server_close()


def keep(docker: Docker, said: bytes) -> int:
    """Run a keeper whose owner says something and is gone; return its status."""
    done = subprocess.run(  # noqa: S603 -- our own interpreter and script
        [sys.executable, "-I", "-S", container_keeper.__file__, docker.host, "queuey-1", str(os.getpid())],
        input=said,
        timeout=ENDED_WITHIN,
        check=False,
    )
    return done.returncode


def test_the_container_is_removed_with_its_volumes_when_the_owner_is_gone(docker: Callable[..., Docker]) -> None:
    daemon = docker(204)
    assert keep(daemon, b"there\n") == 0
    assert daemon.requests == ["/containers/queuey-1?force=1&v=1"]


def test_a_container_that_docker_is_still_making_is_looked_for_again(docker: Callable[..., Docker]) -> None:
    daemon = docker(404, 404, 204)
    assert keep(daemon, b"") == 0
    assert len(daemon.requests) == 3


def test_a_container_that_was_there_and_is_gone_is_not_looked_for_again(docker: Callable[..., Docker]) -> None:
    daemon = docker(404)
    assert keep(daemon, b"there\n") == 0
    assert len(daemon.requests) == 1


def test_a_killed_owner_is_noticed_though_its_child_holds_the_pipe_open(
    docker: Callable[..., Docker], tmp_path: Path
) -> None:
    daemon = docker(204)
    # The owner starts the keeper, and a child that keeps the other end of its pipe; then it is gone at once.
    owner = f"""
import os, subprocess, sys
keeper = subprocess.Popen(
    [sys.executable, "-I", "-S", {container_keeper.__file__!r}, {daemon.host!r}, "queuey-1", str(os.getpid())],
    stdin=subprocess.PIPE
)
keeper.stdin.write(b"there\\n"); keeper.stdin.flush()
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
os._exit(9)
"""
    with subprocess.Popen([sys.executable, "-c", owner], stdin=subprocess.PIPE) as process:  # noqa: S603 -- as above
        assert process.wait(ENDED_WITHIN) == 9
        gone = threading.Event()
        for _ in range(ENDED_WITHIN * 20):
            if daemon.requests:
                break
            gone.wait(0.05)
        assert daemon.requests == ["/containers/queuey-1?force=1&v=1"]
