"""Owns the choice of a source: which one is there, in order, and what is said where none is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_queuey.sources.server import RealServer, SourceError, wait_until_ready

if TYPE_CHECKING:
    from pytest_queuey.options import Settings


class Started(Protocol):
    """A broker that a source has given to this process, until it closes it."""

    @property
    def server(self) -> RealServer:
        """What it is to every process of the run."""

    def close(self) -> None:
        """Let it go: end what was started for this run, leave what was there before."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A source that is there."""

    what: str
    """For people: what will be used."""
    start: Callable[[], Started]
    """Starts it and returns without waiting for it; raises SourceError."""


def choose(settings: Settings, version: str | None = None) -> Choice:
    """Return the source that was asked for, or with auto the first that is there: url, local, docker.

    With a version, a server of that version; one that does not say its version before it runs may be another.

    Nothing is started. Raises SourceError that says of each source why it is not there. What is there and then does
    not work is an error, not a reason to take another: tests would run on a broker that nobody expects.
    """
    finders = {"url": _url, "local": _local, "docker": _docker}
    wanted = list(finders) if settings.rabbitmq_source == "auto" else [settings.rabbitmq_source]
    reasons = []
    for source in wanted:
        try:
            return finders[source](settings, version)
        except SourceError as error:
            reasons.append(f"{source}: {error}")
    said = f" {reasons[0]}" if len(reasons) == 1 else "".join(f"\n  {reason}" for reason in reasons)
    raise SourceError(f"no real RabbitMQ can be had:{said}")


def wait_for(server: RealServer) -> str:
    """Wait until a broker from any source can be used, in any process of the run; return its version."""
    if server.folder is not None:
        from pytest_queuey.sources.local import LocalProgress

        return wait_until_ready(server, LocalProgress(Path(server.folder)))
    if server.container is not None:
        from pytest_queuey.sources.container import ContainerProgress

        return wait_until_ready(server, ContainerProgress(server.container))
    from pytest_queuey.sources import url

    return url.check(server)


def _url(settings: Settings, _version: str | None) -> Choice:
    from pytest_queuey.sources.url import UrlServer, without_password

    url = settings.rabbitmq_url
    if url is None:
        raise SourceError("no URL is given (--queuey-rabbitmq-url=URL, or environment QUEUEY_RABBITMQ_URL)")
    return Choice(f"the one at {without_password(url)}", lambda: UrlServer.start(url, settings.rabbitmq_ctl))


def _local(settings: Settings, version: str | None) -> Choice:
    from pytest_queuey.sources.local import LocalServer, find_server

    executable = find_server(settings.rabbitmq_server, version)
    return Choice(f"a private server, {executable}", lambda: LocalServer.start(executable))


def _docker(settings: Settings, version: str | None) -> Choice:
    from pytest_queuey.sources.docker import find_docker

    host = find_docker()
    image = settings.rabbitmq_image if version is None else f"{_repository(settings.rabbitmq_image)}:{version}"

    def start() -> Started:
        from pytest_queuey.sources.container import ContainerServer

        return ContainerServer.start(image, host)

    return Choice(f"a container of {image} at {host}", start)


def _repository(image: str) -> str:
    """Return an image's name without its tag; a colon before a slash is that of a registry's port."""
    path, slash, name = image.rpartition("/")
    return f"{path}{slash}{name.partition(':')[0]}"
