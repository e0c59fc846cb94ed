"""A soak: two hundred connections that publish with confirms, consume and ack, on a fake in a process of its own.

QUEUEY_SOAK_MESSAGES says how many messages; the figure to beat is 100,000.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pika
import pytest

CONNECTIONS = 200
QUEUES = 20
A_ROUND = 25
"""Messages that each connection publishes, and then takes."""
MESSAGES = int(os.environ.get("QUEUEY_SOAK_MESSAGES", "20000"))
GROWTH_MB = 8
"""From the first round, when each queue and connection has what it needs, to the last."""

pytestmark = pytest.mark.skipif(
    os.environ.get("QUEUEY_CLIENTS") != "1", reason="takes its time: run with QUEUEY_CLIENTS=1, as tox -e clients does"
)


class Served:
    """The development server and its memory."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "queuey_fake", "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 -- our own program
        assert self._process.stdout is not None
        [self.url] = re.findall(r"amqp://\S+", self._process.stdout.readline())

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def close(self) -> None:
        self._process.terminate()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(10)


@pytest.fixture
def served() -> Iterator[Served]:
    with closing(Served()) as served:
        yield served


def test_two_hundred_connections_lose_and_double_nothing_and_leave_memory_flat(served: Served) -> None:
    rounds = MESSAGES // (CONNECTIONS * A_ROUND)
    assert rounds >= 2, "QUEUEY_SOAK_MESSAGES: memory can be compared from 10,000 messages on"
    memory_mb: list[float] = []
    seen: list[bytes] = []
    with ExitStack() as stack:
        channels = []
        for number in range(CONNECTIONS):
            connection = stack.enter_context(closing(pika.BlockingConnection(pika.URLParameters(served.url))))
            channel = connection.channel()
            channel.queue_declare(f"soak.{number % QUEUES}", durable=True)
            channel.confirm_delivery()
            channels.append((channel, f"soak.{number % QUEUES}"))
        for a_round in range(rounds):
            for number, (channel, queue) in enumerate(channels):
                for place in range(A_ROUND):
                    body = b"%d of connection %d in round %d" % (place, number, a_round)
                    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
            for channel, queue in channels:
                for _ in range(A_ROUND):
                    method, _properties, body = channel.basic_get(queue)
                    channel.basic_ack(method.delivery_tag)
                    seen.append(body)
            memory_mb.append(served.resident_mb())
        assert [channel.basic_get(queue)[0] for channel, queue in channels] == [None] * CONNECTIONS
    assert len(set(seen)) == len(seen) == rounds * CONNECTIONS * A_ROUND
    assert memory_mb[-1] - memory_mb[0] < GROWTH_MB, memory_mb
