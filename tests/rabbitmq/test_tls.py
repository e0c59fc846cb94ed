"""TLS with a RabbitMQ that demands certificates of its clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from pytest_queuey.sources.local import LocalProgress, LocalServer, free_ports
from pytest_queuey.sources.server import wait_until_ready
from queuey_rabbitmq import ConnectError, Envelope, QueueConfig, RabbitMqBackend

CONFIGURATION = """
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {folder}/ca.pem
ssl_options.certfile = {folder}/broker.pem
ssl_options.keyfile = {folder}/broker.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


class TlsBroker:
    """A private server with a port for TLS, and the files that its clients have."""

    def __init__(self, executable: str, folder: Path) -> None:
        self.port, self.folder = free_ports(1)[0], folder
        self._authority = trustme.CA()
        for authority, name in ((self._authority, "ours"), (trustme.CA(), "theirs")):
            authority.cert_pem.write_to_path(str(folder / f"{name}-ca.pem"))
            client = authority.issue_cert("client").private_key_and_cert_chain_pem
            client.write_to_path(str(folder / f"{name}-client.pem"))
        self.server = LocalServer.start(Path(executable), self._configure)

    def _configure(self, folder: Path) -> str:
        self._authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        broker = self._authority.issue_cert("localhost").private_key_and_cert_chain_pem
        broker.write_to_path(str(folder / "broker.pem"))
        return CONFIGURATION.format(port=self.port, folder=folder)


@pytest.fixture(scope="module")
def broker(executable: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    broker = TlsBroker(executable, tmp_path_factory.mktemp("tls"))
    try:
        wait_until_ready(broker.server.server, LocalProgress(Path(str(broker.server.server.folder))))
        yield broker
    finally:
        broker.server.close()


@pytest.fixture
def connect(broker: TlsBroker) -> Callable[..., RabbitMqBackend]:
    """Connect to the port for TLS, with files that are named without their folder."""

    def connect(*, scheme: str = "amqps", host: str = "localhost", port: int = broker.port, **files: str) -> Any:
        query = "&".join(f"{name}={broker.folder / file}" for name, file in files.items())
        return RabbitMqBackend.connect(f"{scheme}://{host}:{port}/%2f?{query}".rstrip("?"))

    return connect


def test_jobs_small_and_large_go_and_come_over_tls(connect: Callable[..., RabbitMqBackend]) -> None:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=100)
    payloads = ["x" * size for size in (10, 100_000, 3_000_000) for _ in range(20)]
    with connect(cacertfile="ours-ca.pem", certfile="ours-client.pem") as backend:
        backend.declare([config])
        jobs = [
            Envelope(job_id=uuid.uuid4(), job_type="x", queue=config.name, enqueued_at_ms=0, payload=payload)
            for payload in payloads
        ]
        assert backend.publish_many(jobs) == {}
        got = {}
        with backend.consume(config) as deliveries:
            while len(got) < len(jobs):
                delivery = deliveries.get(timeout=10)
                assert delivery is not None
                got[delivery.envelope.job_id] = delivery.envelope.payload
                delivery.ack()
        assert got == {job.job_id: job.payload for job in jobs}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"cacertfile": "ours-ca.pem"},
            "demands a certificate of the client: name|or demand one .certfile",
        ),
        ({"cacertfile": "ours-ca.pem", "certfile": "theirs-client.pem"}, "accept the certificate of the client"),
        ({"cacertfile": "theirs-ca.pem", "certfile": "ours-client.pem"}, "is not trusted"),
        ({"certfile": "ours-client.pem"}, "is not trusted"),
        ({"cacertfile": "ours-ca.pem", "certfile": "ours-client.pem", "host": "127.0.0.1"}, "bears another name"),
        ({"scheme": "amqp"}, "Where it is one for TLS, the URL begins with amqps://"),
    ],
)
def test_what_keeps_tls_from_coming_about_is_said(
    connect: Callable[..., RabbitMqBackend], files: dict[str, str], reason: str
) -> None:
    host = files.pop("host", "localhost")
    scheme = files.pop("scheme", "amqps")
    with pytest.raises(ConnectError, match=reason):
        connect(host=host, scheme=scheme, **files)


def test_the_port_without_tls_is_told_from_the_one_with(
    connect: Callable[..., RabbitMqBackend], broker: TlsBroker
) -> None:
    plain = urlsplit(broker.server.server.url).port
    with pytest.raises(ConnectError, match="does not speak TLS: give the port for TLS"):
        connect(port=plain, cacertfile="ours-ca.pem")
