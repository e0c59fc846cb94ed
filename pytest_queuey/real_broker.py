"""Owns the one real broker of a test run: started once, by whoever runs first, used by every process of the run.

In a plain run this process starts it when a test first needs it. Under xdist the controller starts it as it starts
its first worker, and the workers wait for it on first use. Refuses to know how it is started (`sources`) and what a
test does with it (`broker_under_test`).
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_queuey.asked import AskedBroker
from pytest_queuey.broker_node import BrokerNode
from pytest_queuey.node_control import ControlError
from pytest_queuey.orphaned_worker import end_without
from pytest_queuey.own_vhost import VhostPool, left_behind, prefix_of
from pytest_queuey.sources.selection import Started, choose, wait_for
from pytest_queuey.sources.server import RealServer, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from pytest_queuey.options import Settings


class ReadyBroker(NamedTuple):
    """A real broker that answers, and the virtual hosts that can be had on it."""

    server: RealServer
    version: str
    node: BrokerNode | None
    """The way into it, where there is one."""
    vhosts: VhostPool | None
    """None where there is no way in: then tests share the virtual host of the URL."""
    restart: Callable[[], None] | None
    """Restarts it in good order; None where it is not this process's alone."""


def _node_of(server: RealServer) -> BrokerNode | None:
    """Return the way into a broker, where there is one; raises SourceError for a command that leads elsewhere."""
    control = server.control()
    if control is None:
        return None
    node = BrokerNode(control)
    if server.ctl:
        try:
            vhosts = node.vhosts()
        except ControlError as error:
            raise SourceError(f"--queuey-rabbitmq-ctl: {error}") from error
        if server.vhost not in vhosts:
            raise SourceError(
                f"--queuey-rabbitmq-ctl='{' '.join(server.ctl)}' leads to a broker without virtual host "
                f"'{server.vhost}': is it another one than {server.what}?"
            )
    return node


class RealBroker:
    """The real broker of the run, as one process sees it."""

    def __init__(
        self, settings: Settings, wanted: str | None = None, *, from_controller: dict[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._run = secrets.token_hex(4)
        self._started: Started | None = None
        self._server: RealServer | None = None
        self._ready: ReadyBroker | None = None
        self._error: SourceError | None = None
        self._controller: int | None = None
        self._watch: Event | None = None
        if from_controller is not None:
            self._run = from_controller["run"]
            if "error" in from_controller:
                self._error = SourceError(from_controller["error"])
            else:
                self._server = RealServer.from_wire(from_controller["server"])
                self._controller = from_controller["controller"]

    def for_worker(self) -> dict[str, Any]:
        """Start the broker unless that is done, and return what a worker needs to find it, or why there is none."""
        try:
            return {"run": self._run, "server": self._start().to_wire(), "controller": os.getpid()}
        except SourceError as error:
            return {"run": self._run, "error": str(error)}

    def ready(self) -> ReadyBroker:
        """Return the broker when it can be used; raises SourceError, the same each time, where it cannot."""
        if self._ready is None:
            server = self._start()
            if self._controller is not None and self._watch is None and server.is_of_this_run:
                self._watch = end_without(self._controller)
            try:
                version = wait_for(server)
                self._check_version(server, version)
                node = _node_of(server)
            except SourceError as error:
                self._error = error
                raise
            vhosts = VhostPool(server, node, run=self._run) if node is not None else None
            is_ours_alone = self._started is not None and server.folder is not None
            self._ready = ReadyBroker(server, version, node, vhosts, self._restart if is_ours_alone else None)
        return self._ready

    def _check_version(self, server: RealServer, version: str) -> None:
        if not AskedBroker("rabbitmq", self._wanted, "").is_of(version):
            raise SourceError(
                f"rabbitmq-{self._wanted} was asked for (--queuey-broker), and {server.what} is RabbitMQ {version}"
            )

    def _restart(self) -> None:
        ready = self.ready()
        assert ready.node is not None, "there is a way into a private server"
        if ready.vhosts is not None:
            ready.vhosts.finish_making()
        ready.node.restart()
        wait_for(ready.server)

    def close(self) -> str | None:
        """End what this process has started, and delete on what it has not the virtual hosts that runs made.

        These are the run's own, and those that killed ones have left. Return what may be left, and why.
        """
        if self._watch is not None:
            self._watch.set()
        ready, self._ready = self._ready, None
        if ready is not None and ready.vhosts is not None:
            ready.vhosts.close()
        started, self._started = self._started, None
        if started is None:
            return None
        try:
            control = started.server.control()
            if started.server.ctl and control is not None and self._error is None:
                node = BrokerNode(control)
                node.delete_vhosts_named(prefix_of(self._run))
                node.delete_vhosts(left_behind(node.vhosts()))
        except ControlError as error:
            return f"virtual hosts named {prefix_of(self._run)}... may be left on {started.server.what}: {error}"
        finally:
            started.close()
        return None

    def _start(self) -> RealServer:
        if self._error is not None:
            raise self._error
        if self._server is None:
            try:
                self._started = choose(self._settings, self._wanted).start()
            except SourceError as error:
                self._error = error
                raise
            self._server = self._started.server
        return self._server
