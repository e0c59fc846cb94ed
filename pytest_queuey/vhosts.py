"""Owns the virtual hosts that tests of one process get, a fresh one each: made in bulk, deleted in bulk.

Refuses any virtual host that it did not make.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_queuey.broker_node import BrokerNode
    from pytest_queuey.sources.server import RealServer


class VhostPool:
    """Virtual hosts of one server, each used by one test."""

    def __init__(self, server: RealServer, node: BrokerNode, *, prefix: str) -> None:
        self._server = server
        self._node = node
        self._prefix = f"{prefix}{secrets.token_hex(4)}-"  # processes of one run share the server
        self._numbers = itertools.count(1)
        self._fresh: list[str] = []
        self._used: list[str] = []

    def take(self) -> str:
        """Return the name of an empty virtual host.

        When new ones have to be made, those that earlier tests gave back are deleted: a long run stays small. Who
        owns the server deletes what is left at the end.
        """
        if not self._fresh:
            used, self._used = self._used, []
            self._node.delete_vhosts(used)
            fresh = [f"{self._prefix}{next(self._numbers)}" for _ in range(self._node.control.batch)]
            self._node.make_vhosts(fresh, user=self._server.user)
            self._fresh = fresh
        return self._fresh.pop(0)

    def give_back(self, vhost: str) -> None:
        """Take a virtual host back; nobody gets it again."""
        self._used.append(vhost)
