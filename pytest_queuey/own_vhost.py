"""Owns the virtual hosts that tests of one process get, a fresh one each: made in bulk, deleted in bulk.

Their names say the run, the process and the day, so that what a killed run has left is known by its name. Refuses any
virtual host that no run has made.
"""

from __future__ import annotations

import itertools
import re
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from queuey_fake import real_time
from queuey_rabbitmq import RabbitMqBackend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_queuey.broker_node import BrokerNode, QueueState
    from pytest_queuey.sources.server import RealServer
    from queuey_rabbitmq import RabbitMqOptions

_MADE_BY_A_RUN: Final = re.compile(r"queuey-[0-9a-f]{8}-[0-9a-f]{8}-(?P<made>\d{8}T\d{6}Z)-\d+")
_DAY_MS: Final = 86_400_000


def prefix_of(run: str) -> str:
    """Return what the names of all virtual hosts of a run start with; a run is 8 hexadecimal digits."""
    return f"queuey-{run}-"


def left_behind(names: Iterable[str]) -> list[str]:
    """Return those virtual hosts that runs made over a day ago: a run that is not killed deletes its own."""
    day_ago = _stamp(real_time.now_ms() - _DAY_MS)
    return [name for name in names if (found := _MADE_BY_A_RUN.fullmatch(name)) and found["made"] < day_ago]


def _stamp(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y%m%dT%H%M%SZ}"


class VhostPool:
    """Virtual hosts of one server, each used by one test.

    The next ones are made while tests run: a node waits for its disk as it makes and deletes them. Those that earlier
    tests have left are deleted by the way, so a long run stays small; who owns the server deletes the rest at the end.
    """

    def __init__(self, server: RealServer, node: BrokerNode, *, run: str) -> None:
        self._server = server
        self._node = node
        self._prefix = f"{prefix_of(run)}{secrets.token_hex(4)}-"  # processes of one run share the server
        self._numbers = itertools.count(1)
        self._fresh: list[str] = []
        self._used: list[str] = []
        self._maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queuey-vhosts")
        self._coming: Future[list[str]] | None = None

    def take(self) -> OwnVhost:
        """Return an empty virtual host."""
        if self._coming is None and len(self._fresh) <= self._node.control.batch // 2:
            used = self._used.copy()
            self._used.clear()
            self._coming = self._maker.submit(self._make, used)
        if not self._fresh and self._coming is not None:
            coming, self._coming = self._coming, None
            self._fresh = coming.result()
        name = self._fresh.pop(0)
        return OwnVhost(name, self._server.vhost_url(name), self._node, self._used)

    def finish_making(self) -> None:
        """Wait until those that are being made are there."""
        if self._coming is not None:
            self._coming.result()

    def close(self) -> None:
        """Wait until no virtual host is being made: then whoever deletes them finds them all."""
        self._maker.shutdown()

    def _make(self, used: list[str]) -> list[str]:
        prefix = f"{self._prefix}{_stamp(real_time.now_ms())}-"
        fresh = [f"{prefix}{next(self._numbers)}" for _ in range(self._node.control.batch)]
        self._node.make_vhosts(fresh, user=self._server.user)
        self._node.delete_vhosts(used)
        return fresh


@dataclass(frozen=True, slots=True)
class OwnVhost:
    """A virtual host of one test alone, on a node that can be asked from inside."""

    vhost: str
    url: str
    _node: BrokerNode
    _used: list[str]

    def name(self, name: str) -> str:
        """Return the name itself: nobody else is here."""
        return name

    def backend(self, options: RabbitMqOptions, url: str) -> RabbitMqBackend:
        """Return a backend in this virtual host, which `url` leads to."""
        return RabbitMqBackend.with_options(url, options)

    def queue(self, name: str) -> QueueState | None:
        """Return one queue as it is now, or None where there is none; renews no lease."""
        return self._node.queue(self.vhost, name)

    def queues(self) -> list[QueueState]:
        """Return every queue as it is now, by name; renews no lease."""
        return self._node.queues(self.vhost)

    def close(self) -> None:
        """Leave it to be deleted with others; nobody gets it again."""
        self._used.append(self.vhost)
