"""TLS with a RabbitMQ that demands certificates of its clients."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from queuey_rabbitmq import ConnectError, Envelope, QueueConfig, RabbitMqBackend
from tests.rabbitmq.private_broker import PrivateBroker


@pytest.fixture
def connect(private_broker: PrivateBroker) -> Callable[..., RabbitMqBackend]:
    """Connect to the port for TLS, with files that are named without their folder."""

    def connect(
        *, scheme: str = "amqps", host: str = "localhost", port: int = private_broker.tls_port, **files: str
    ) -> Any:
        query = "&".join(f"{name}={private_broker.folder / file}" for name, file in files.items())
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
    connect: Callable[..., RabbitMqBackend], private_broker: PrivateBroker
) -> None:
    plain = urlsplit(private_broker.url).port
    with pytest.raises(ConnectError, match="does not speak TLS: give the port for TLS"):
        connect(port=plain, cacertfile="ours-ca.pem")


TESTS = """
    from queuey_rabbitmq import QueueConfig
    from pytest_queuey.contract.broker_door import BrokerDoor

    def test_it(queuey_broker, queuey_backend):
        emails = QueueConfig(queuey_broker.name("emails"))
        queuey_backend.declare([emails])
        assert queuey_broker.queue(emails.name).ready == 0
        with BrokerDoor(queuey_broker.url) as door:
            door.publish(emails.name, b"raw")
            assert door.depth(emails.name) == 1
"""


def tls_url(broker: PrivateBroker, *, nodes: str | None = None, **files: str) -> str:
    query = "&".join(f"{name}={broker.folder / file}" for name, file in files.items())
    return f"amqps://{nodes or f'localhost:{broker.tls_port}'}/%2f?{query}"


def test_tests_run_on_several_nodes_and_with_an_authority_of_ones_own(
    run_pytest: pytest.Pytester, private_broker: PrivateBroker
) -> None:
    run_pytest.makepyfile(TESTS)
    with closing(socket.create_server(("127.0.0.1", 0))) as dead:
        nodes = f"localhost:{dead.getsockname()[1]},localhost:{private_broker.tls_port}"
    url = tls_url(private_broker, nodes=nodes, cacertfile="ours-ca.pem", certfile="ours-client.pem")
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={url}")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"cacertfile": "theirs-ca.pem"}, "*: the certificate of * is not trusted *"),
        ({"cacertfile": "ours-ca.pem"}, "*: *certificate of the client*"),
        ({"cacertfile": "nowhere.pem"}, "*: the broker's URL cannot be used: cacertfile=*nowhere.pem *"),
    ],
)
def test_what_keeps_tests_from_running_over_tls_is_said_in_words(
    run_pytest: pytest.Pytester, private_broker: PrivateBroker, files: dict[str, str], reason: str
) -> None:
    run_pytest.makepyfile(TESTS)
    url = tls_url(private_broker, **files)
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={url}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"amqps://localhost:{private_broker.tls_port}/{reason}"])
