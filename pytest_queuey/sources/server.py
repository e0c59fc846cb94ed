"""Owns what a real broker is to the rest of the plugin: where it listens, how to reach inside it, whether it answers.

A `RealServer` is plain data, so that the controller of an xdist run can hand it to its workers. Refuses to start or
end anything.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from pytest_queuey.node_control import CommandControl, NodeControl, SocketControl
from pytest_queuey.sources.handshake import HandshakeError, greet
from queuey_fake.real_time import monotonic_s
from queuey_rabbitmq import broker_urls

READY_WITHIN = 60.0
"""Seconds that a server which this run has started may take to answer; a loaded machine starts three in twelve."""
_LOOK_EVERY = 0.05


class SourceError(Exception):
    """A real broker cannot be had from a source; the message says at which stage, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealServer:
    """A RabbitMQ that this run may use."""

    source: str
    """The source it came from: url, local or docker."""
    what: str
    """For people: the executable, the image, or the address."""
    url: str
    """AMQP URL of the virtual host that it was given with."""
    folder: str | None = None
    """The private folder of a local server."""
    container: str | None = None
    """The id of a container."""
    ctl: tuple[str, ...] = ()
    """The command that runs rabbitmqctl for the broker of a URL."""

    @property
    def is_of_this_run(self) -> bool:
        """Return whether the run has started it, and it ends with the run."""
        return self.folder is not None or self.container is not None

    def vhost_url(self, vhost: str) -> str:
        """Return the AMQP URL of another virtual host of the server."""
        return broker_urls.split(self.url)._replace(path="/" + quote(vhost, safe="")).geturl()

    @property
    def user(self) -> str:
        """Return the user that the URL logs in as."""
        return broker_urls.parse(self.url)[0].user

    @property
    def vhost(self) -> str:
        """Return the virtual host that the URL leads to."""
        return broker_urls.parse(self.url)[0].virtual_host

    def control(self) -> NodeControl | None:
        """Return the way into the node, or None where there is none."""
        if self.folder is not None:
            return SocketControl(Path(self.folder, "control"))
        if self.container is not None:
            from pytest_queuey.sources.container import ContainerControl

            return ContainerControl(self.container)
        return CommandControl(self.ctl) if self.ctl else None

    def to_wire(self) -> dict[str, Any]:
        """Return it as what xdist can send to a worker."""
        return dataclasses.asdict(self) | {"ctl": list(self.ctl)}

    @classmethod
    def from_wire(cls, fields: dict[str, Any]) -> RealServer:
        """Return what `to_wire` was called on."""
        return cls(**fields | {"ctl": tuple(fields["ctl"])})


class Progress(Protocol):
    """What can be seen of a server that is starting."""

    def ended(self) -> str | None:
        """Return how it ended where it has, in words."""

    def last_lines(self) -> str:
        """Return what it said last."""

    def complete(self) -> bool:
        """Return whether it has finished to boot, as far as can be seen from outside."""


def wait_until_ready(server: RealServer, progress: Progress, *, within: float = READY_WITHIN) -> str:
    """Wait until a server that is starting answers AMQP and has finished to boot; return its version.

    Raises SourceError as soon as it has ended, and after `within` seconds, with the stage and its last lines.
    """
    deadline = monotonic_s() + within
    stage = "nothing has listened on its port yet"
    while monotonic_s() < deadline:
        if (ending := progress.ended()) is not None:
            raise SourceError(f"{server.what} {ending} while it was starting. Its last lines:\n{progress.last_lines()}")
        try:
            version = greet(server.url, within=1.0)
        except HandshakeError as error:
            stage = str(error)
        else:
            if progress.complete():
                return version
            stage = "it answers AMQP but has not finished to boot"
        time.sleep(_LOOK_EVERY)
    raise SourceError(
        f"{server.what} was not ready within {within:g} s: {stage}. Its last lines:\n{progress.last_lines()}"
    )


def last_lines(*files: Path, count: int = 20) -> str:
    """Return the last lines of the first file that has any, indented."""
    for file in files:
        lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
        if wanted := [line for line in lines if line.strip()][-count:]:
            return "\n".join(f"    {line}" for line in wanted)
    return "    (it said nothing)"
