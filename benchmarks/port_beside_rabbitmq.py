"""The fake's port beside a real RabbitMQ: the same clients on both, in turns.

    python benchmarks/port_beside_rabbitmq.py amqp://guest:guest@127.0.0.1:5672/%2f [repetitions]

Prints medians as rates and as ratios to the real broker; only the ratios mean anything on a shared machine. The fake
runs twice: as a process of its own, as the real broker does, and on a thread of the client's process, as in a test.
"""

import itertools
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial

import pika
from bare_socket import BareSocket
from interleaved import interleaved, rate_of, report

from queuey_fake import FakeBroker

QUEUE = f"queuey.benchmark.{uuid.uuid4().hex}"
BODY = b"x" * 200
PERSISTENT = pika.BasicProperties(delivery_mode=2)
ONE_BY_ONE, PIPELINED, DECLARED, STARTED = 500, 5_000, 200, 20


class Contestant:
    """Connections to one broker."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.queue_declare(QUEUE, durable=True)
        self.bare = BareSocket(url)
        self.bare.confirm_select()
        self.numbers = itertools.count()

    def publish_one_by_one(self) -> float:
        def work() -> None:
            for _ in range(ONE_BY_ONE):
                self.channel.basic_publish("", QUEUE, BODY, PERSISTENT, mandatory=True)

        rate = rate_of(ONE_BY_ONE, work)
        self.channel.queue_purge(QUEUE)
        return rate

    def publish_pipelined(self) -> float:
        rate = rate_of(PIPELINED, lambda: self.bare.publish_confirmed(QUEUE, BODY, count=PIPELINED, window=256))
        self.channel.queue_purge(QUEUE)
        return rate

    def declare(self) -> float:
        names = [f"{QUEUE}.{next(self.numbers)}" for _ in range(DECLARED)]

        def work() -> None:
            for name in names:
                self.channel.queue_declare(name, durable=True)

        rate = rate_of(DECLARED, work)
        for name in names:
            self.channel.queue_delete(name)
        return rate

    def close(self) -> None:
        self.channel.queue_delete(QUEUE)
        self.bare.close()
        self.connection.close()


def start_ms() -> float:
    times = []
    for _ in range(STARTED):
        start = time.perf_counter()
        with FakeBroker() as broker:
            assert broker.url
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def main() -> None:
    url, repetitions = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    command = [sys.executable, "-m", "queuey_fake", "--port", "0"]
    with FakeBroker() as near, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 -- ours
        try:
            assert process.stdout is not None
            contestants = {
                "RabbitMQ": Contestant(url),
                "the fake's process": Contestant(process.stdout.readline().split()[-1]),
                "the fake in this process": Contestant(near.url),
            }
            measured: dict[str, Callable[[Contestant], float]] = {
                "confirmed persistent publish, one outstanding, pika": Contestant.publish_one_by_one,
                "confirmed persistent publish, pipelined, bare socket": Contestant.publish_pipelined,
                "declaration of a new durable queue, pika": Contestant.declare,
            }
            for title, measure in measured.items():
                turns = {name: partial(measure, contestant) for name, contestant in contestants.items()}
                report(title, interleaved(turns, repetitions=repetitions), against="RabbitMQ")
            print(f"\nstart of a FakeBroker with its port: {start_ms():.1f} ms")
            for contestant in contestants.values():
                contestant.close()
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
