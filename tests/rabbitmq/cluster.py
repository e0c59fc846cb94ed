"""A cluster of private nodes on this machine, which find each other as they start; each can be killed and come back."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pytest_queuey.broker_node import BrokerNode
from pytest_queuey.sources.local import LocalProgress, LocalServer, Seat
from pytest_queuey.sources.server import wait_until_ready


class Node:
    """One node of a cluster."""

    def __init__(self, server: LocalServer, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.server.url
        control = server.server.control()
        assert control is not None, "a private server has a way in"
        self.ask = control.evaluate
        self.broker = BrokerNode(control)

    def wait(self) -> None:
        """Wait until it has booted, and is a member of its cluster."""
        assert self.server.server.folder is not None
        wait_until_ready(self.server.server, LocalProgress(Path(self.server.server.folder)))

    def is_running(self) -> bool:
        """Tell whether it has not been killed since it was last started."""
        assert self.server.server.folder is not None
        return LocalProgress(Path(self.server.server.folder)).ended() is None

    def come_back(self) -> None:
        """Start it after it was killed, and wait until it has booted."""
        self.server.start_again()
        self.wait()

    def connections(self) -> int:
        """Return how many connections clients have to this node."""
        return int(self.ask("integer_to_list(length(rabbit_networking:local_connections()))"))


class Cluster:
    """Nodes that have found each other."""

    def __init__(self, executable: Path, size: int) -> None:
        seats = Seat.of_cluster(size)
        lines = ["cluster_formation.peer_discovery_backend = classic_config"]
        lines += [
            f"cluster_formation.classic_config.nodes.{place} = {seat.name}" for place, seat in enumerate(seats, 1)
        ]
        joining = "\n".join([*lines, ""])
        self.nodes: list[Node] = []
        try:
            for seat in seats:
                # The first knows of no other: nodes that start together may each found a cluster of their own, and one
                # of 4.0 that looks for others waits for a second one (rabbit_peer_discovery:can_use_discovered_nodes).
                configuration = joining if self.nodes else ""
                server = LocalServer.start(executable, lambda _folder, lines=configuration: lines, seat=seat)
                self.nodes.append(Node(server, seat.name))
                if len(self.nodes) == 1:
                    self.nodes[0].wait()
            for node in self.nodes:
                node.wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Return one URL with the address of every node."""
        first = urlsplit(self.nodes[0].url)
        credentials = first.netloc.rpartition("@")[0]
        addresses = ",".join(f"127.0.0.1:{urlsplit(node.url).port}" for node in self.nodes)
        return first._replace(netloc=f"{credentials}@{addresses}").geturl()

    def members(self) -> int:
        """Return how many members of the cluster run, as the first that runs sees it."""
        seen_by = next(node for node in self.nodes if node.is_running())
        return int(
            seen_by.ask(
                """integer_to_list(length(case erlang:function_exported(rabbit_nodes, list_running, 0) of
                    true -> rabbit_nodes:list_running();
                    false -> rabbit_nodes:all_running()  % 3.10
                end))"""
            )
        )

    def close(self) -> None:
        """End every node."""
        for node in self.nodes:
            node.server.close()
