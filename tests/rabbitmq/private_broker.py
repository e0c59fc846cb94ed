"""A private server for tests that need more than an AMQP port: TLS, a look inside, a hand on its processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import trustme

from pytest_queuey.sources.local import LocalProgress, LocalServer, free_ports
from pytest_queuey.sources.server import wait_until_ready

CONFIGURATION = """
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {folder}/ca.pem
ssl_options.certfile = {folder}/broker.pem
ssl_options.keyfile = {folder}/broker.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


class PrivateBroker:
    """A server of these tests' own: its processes may be stopped, its node asked; one port more is for TLS.

    Clients have to show a certificate there. `folder` has the files that they have, ours and those of a stranger.
    """

    def __init__(self, executable: str, folder: Path) -> None:
        self.tls_port, self.folder = free_ports(1)[0], folder
        self._authority = trustme.CA()
        for authority, name in ((self._authority, "ours"), (trustme.CA(), "theirs")):
            authority.cert_pem.write_to_path(str(folder / f"{name}-ca.pem"))
            client = authority.issue_cert("client").private_key_and_cert_chain_pem
            client.write_to_path(str(folder / f"{name}-client.pem"))
        self._started = LocalServer.start(Path(executable), self._configure)
        self.url = self._started.server.url

    def wait_until_ready(self) -> None:
        wait_until_ready(self._started.server, LocalProgress(Path(str(self._started.server.folder))))

    def close(self) -> None:
        self._started.close()

    def evaluate(self, expressions: str) -> str:
        """Have the node evaluate Erlang expressions, whose value is iodata."""
        control = self._started.server.control()
        assert control is not None
        return control.evaluate(expressions).decode()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop its processes for a while: its sockets stay, and nothing answers."""
        os.killpg(self._started._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._started._pid, signal.SIGCONT)

    def _configure(self, folder: Path) -> str:
        self._authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        broker = self._authority.issue_cert("localhost").private_key_and_cert_chain_pem
        broker.write_to_path(str(folder / "broker.pem"))
        return CONFIGURATION.format(port=self.tls_port, folder=folder)
