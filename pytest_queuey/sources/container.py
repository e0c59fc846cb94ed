"""Owns the container of a run: starting the image with testcontainers, looking at it, reaching inside, removing it.

Imported only when a container is wanted. Refuses to wait for the broker in it (`server`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pytest_queuey.node_control import ControlError, as_base64, from_base64
from pytest_queuey.sources.docker import is_plain
from pytest_queuey.sources.server import RealServer, SourceError
from queuey_fake.real_time import monotonic_s

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the imports warn of their own deprecations, which `-W error` would raise
    try:
        import docker  # type: ignore[import-untyped]  # it ships no annotations
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise SourceError("testcontainers is not installed: pip install 'queuey-rabbitmq[testing]'") from error

_AMQP_PORT = 5672
_LOOPBACK = "127.0.0.1"
_REMOVED_WITHIN = 30.0
_ASK_EVERY = 1.0
"""Seconds between two questions about a container's state: each is a request to the Docker daemon."""


@dataclass(slots=True)
class ContainerServer:
    """A container that this process has started."""

    server: RealServer
    _container: DockerContainer
    _keeper: subprocess.Popen[bytes] | None
    """Removes the container when this process is gone; None where only testcontainers' own reaper can reach it."""

    @classmethod
    def start(cls, image: str, docker_host: str) -> Self:
        """Start a container and return without waiting for the broker in it; raises SourceError with the stage."""
        name = f"queuey-{secrets.token_hex(8)}"
        stage = f"reaching Docker at {docker_host}"
        started: DockerContainer | None = None
        keeper: subprocess.Popen[bytes] | None = None
        try:
            started = DockerContainer(image).with_name(name)
            ports: dict[str, Any] = started.ports
            is_here = _is_on_this_machine(docker_host)
            ports[f"{_AMQP_PORT}/tcp"] = (_LOOPBACK, None) if is_here else None
            stage = f"starting a container of the image {image}"
            if is_plain(docker_host):
                keeper = _start_keeper(docker_host, name)
                with _without_reaper():
                    started.start()
            else:
                started.start()
            stage = f"finding the port of the container of {image}"
            host = _LOOPBACK if is_here else started.get_container_host_ip()
            port = started.get_exposed_port(_AMQP_PORT)
            container = started.get_container_id()
        except Exception as error:  # whatever docker, requests or testcontainers raise
            last_words = _last_words(started)
            if started is not None:
                with contextlib.suppress(Exception):
                    started.stop()
            _end(keeper)
            raise SourceError(f"{stage} failed: {type(error).__name__}: {error}{last_words}") from error
        url = f"amqp://guest:guest@{host}:{port}/%2f"
        return cls(RealServer(source="docker", what=f"image {image}", url=url, container=container), started, keeper)

    def close(self) -> None:
        """Remove the container and its volumes; returns when it is gone. Idempotent."""
        if self._keeper is None:
            self._container.stop()
            return
        _end(self._keeper)
        self._container.get_docker_client().client.close()


def _last_words(container: DockerContainer | None) -> str:
    """Return how a container ended and what it said, where there is one that has ended."""
    if container is None:
        return ""
    with contextlib.suppress(Exception):  # what is wrong is said without it too
        progress = ContainerProgress(container.get_wrapped_container().id)
        if (ending := progress.ended()) is not None:
            return f". It {ending}. Its last lines:\n{progress.last_lines()}"
    return ""


def _start_keeper(docker_host: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 -- our own interpreter and script
        [
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("container_keeper.py"))),
            *(docker_host, name, str(os.getpid())),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and a killed process group of the test run must not reach it
    )


def _end(keeper: subprocess.Popen[bytes] | None) -> None:
    """Have the keeper do its work, and wait for it."""
    if keeper is None or keeper.stdin is None or keeper.stdin.closed:
        return
    # Whatever there is to be removed is there by now.
    with contextlib.suppress(OSError):
        keeper.stdin.write(b"there\n")
        keeper.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        keeper.wait(_REMOVED_WITHIN)


@contextlib.contextmanager
def _without_reaper() -> Iterator[None]:
    # testcontainers would have a second container see to it that this one is removed: its image may not be had here,
    # and the keeper does that. Containers that tests start for themselves keep theirs.
    before = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


def _is_on_this_machine(docker_host: str) -> bool:
    # Then only this machine may reach the container. testcontainers' own variables name the host of a Docker whose
    # socket is here and whose containers are not, as in a container that starts its siblings.
    named = os.environ.get("TC_HOST") or os.environ.get("TESTCONTAINERS_HOST_OVERRIDE") or _LOOPBACK
    return docker_host.startswith("unix:") and named in (_LOOPBACK, "localhost")


class ContainerProgress:
    """What any process can see of a container that is starting."""

    def __init__(self, container: str) -> None:
        self._id = container
        self._client = docker.from_env()
        self._ask_again_at = 0.0

    def ended(self) -> str | None:
        """Return how it ended where it has."""
        if monotonic_s() < self._ask_again_at:
            return None
        self._ask_again_at = monotonic_s() + _ASK_EVERY
        try:
            state = self._client.containers.get(self._id).attrs["State"]
        except docker.errors.NotFound:
            return "was removed"
        except (docker.errors.DockerException, OSError) as error:
            return f"can no longer be asked about ({error})"
        return f"exited with status {state['ExitCode']}" if state["Status"] in ("exited", "dead") else None

    def last_lines(self) -> str:
        """Return what it said last."""
        try:
            said = self._client.containers.get(self._id).logs(tail=20).decode(errors="replace")
        except docker.errors.DockerException as error:
            said = f"(its log cannot be read: {error})"
        return "\n".join(f"    {line}" for line in said.splitlines()) or "    (it said nothing)"

    def complete(self) -> bool:
        """Return True: from outside, a container that answers AMQP has booted."""
        return True


@dataclass(frozen=True, slots=True)
class ContainerControl:
    """rabbitmqctl inside a container; a call takes half a second and more."""

    container: str
    batch: int = 24

    def evaluate(self, expressions: str) -> bytes:
        """Return the value of Erlang expressions."""
        where = f"container {self.container[:12]}"
        client = docker.from_env()
        try:
            command = ["rabbitmqctl", "-q", "eval", as_base64(expressions)]
            status, output = client.containers.get(self.container).exec_run(command)
        except (docker.errors.DockerException, OSError) as error:
            raise ControlError(f"rabbitmqctl could not be run in {where}: {error}") from error
        finally:
            client.close()
        if status != 0:
            raise ControlError(f"rabbitmqctl in {where} ended with {status}: {output.decode(errors='replace')}")
        if (value := from_base64(output)) is None:
            raise ControlError(f"rabbitmqctl in {where} printed no value: {output!r}")
        return value
