"""Owns the container of a run: starting the image with testcontainers, looking at it, reaching inside, removing it.

Imported only when a container is wanted. Refuses to wait for the broker in it (`server`).
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass
from typing import Any, Self

from pytest_queuey.node_control import ControlError, as_base64, from_base64
from pytest_queuey.sources.server import RealServer, SourceError, real_seconds

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the imports warn of their own deprecations, which `-W error` would raise
    try:
        import docker  # type: ignore[import-untyped]  # it ships no annotations
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise SourceError("testcontainers is not installed: pip install 'queuey-rabbitmq[testing]'") from error

_AMQP_PORT = 5672
_LOOPBACK = "127.0.0.1"
_ASK_EVERY = 1.0
"""Seconds between two questions about a container's state: each is a request to the Docker daemon."""


@dataclass(frozen=True, slots=True)
class ContainerServer:
    """A container that this process has started."""

    server: RealServer
    _container: DockerContainer

    @classmethod
    def start(cls, image: str, docker_host: str) -> Self:
        """Start a container and return without waiting for the broker in it; raises SourceError with the stage."""
        stage = f"reaching Docker at {docker_host}"
        started: DockerContainer | None = None
        try:
            started = DockerContainer(image)
            ports: dict[str, Any] = started.ports
            is_here = _is_on_this_machine(docker_host)
            ports[f"{_AMQP_PORT}/tcp"] = (_LOOPBACK, None) if is_here else None
            stage = f"starting a container of the image {image}"
            started.start()
            stage = f"finding the port of the container of {image}"
            host = _LOOPBACK if is_here else started.get_container_host_ip()
            port = started.get_exposed_port(_AMQP_PORT)
            container = started.get_container_id()
        except Exception as error:  # whatever docker, requests or testcontainers raise
            if started is not None:
                with contextlib.suppress(Exception):
                    started.stop()
            raise SourceError(f"{stage} failed: {type(error).__name__}: {error}") from error
        url = f"amqp://guest:guest@{host}:{port}/%2f"
        return cls(RealServer(source="docker", what=f"image {image}", url=url, container=container), started)

    def close(self) -> None:
        """Remove the container and its volumes."""
        self._container.stop()


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
        if real_seconds() < self._ask_again_at:
            return None
        self._ask_again_at = real_seconds() + _ASK_EVERY
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
        return from_base64(output)
