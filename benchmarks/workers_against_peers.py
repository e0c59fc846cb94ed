"""No-op jobs from a real RabbitMQ: one worker process with 8 threads, beside dramatiq, celery and taskiq.

    python benchmarks/workers_against_peers.py amqp://guest:guest@127.0.0.1:5672/%2f [repetitions]

Needs dramatiq[rabbitmq], celery, taskiq and taskiq-aio-pika. All publish persistent messages to a durable classic
queue and wait for confirms, with one prefetch, no results, and logs off. Three measures: how fast each enqueues what
it can enqueue in one go; how fast its worker works that off, from the first job to the last; and how long a job is
under way at 100 jobs a second. Medians of interleaved repetitions; only the ratios mean anything on a shared machine.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pika
from interleaved import interleaved, report
from peers.measured import PREFETCH

JOBS = 2_000
PACED_JOBS = 300
TIMEOUT_S = 120
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent

WORKERS = {
    "queuey": [sys.executable, "-m", "peers.with_queuey", "work"],
    "dramatiq": [str(BIN / "dramatiq"), "peers.with_dramatiq", "--processes", "1", "--threads", "8"],
    "celery": [
        *(str(BIN / "celery"), "-A", "peers.with_celery", "worker", "-P", "threads", "-c", "8", "-l", "CRITICAL"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ],
    "taskiq": [
        *(str(BIN / "taskiq"), "worker", "peers.with_taskiq:broker", "--workers", "1"),
        *("--max-threadpool-threads", "8", "--log-level", "CRITICAL", "--ack-type", "when_executed"),
    ],
}
QUEUES = (
    *("benchmark.queuey", "benchmark.queuey.dead", "benchmark.taskiq", "benchmark.celery"),
    *(f"benchmark.dramatiq{suffix}" for suffix in ("", ".DQ", ".XQ")),
)


class Peer:
    """One of the contestants, on one broker."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self.rates_by_cpu: list[float] = []
        self.report = folder / f"{name}.json"
        self.environment = {
            **os.environ,
            "BENCHMARK_URL": url,
            "BENCHMARK_REPORT": str(self.report),
            "PYTHONPATH": str(HERE),
            "dramatiq_queue_prefetch": str(PREFETCH),
        }

    def enqueue(self, what: str, jobs: int) -> None:
        """Enqueue jobs in a process of their own."""
        command = [sys.executable, "-m", f"peers.with_{self.name}", what]
        environment = self.environment | {"BENCHMARK_JOBS": str(jobs)}
        subprocess.run(command, env=environment, cwd=HERE, timeout=TIMEOUT_S, check=True)  # noqa: S603 -- ours

    def enqueue_rate(self) -> float:
        """Return how many jobs a second are enqueued; they stay on the queue."""
        self.enqueue("many", JOBS)
        return self._measured()["rate"]

    def work(self, jobs: int, meanwhile: Callable[[], object] = lambda: None) -> dict[str, float]:
        """Start a worker, let it work off so many jobs, and return what it has measured."""
        self.report.unlink(missing_ok=True)
        environment = self.environment | {"BENCHMARK_JOBS": str(jobs)}
        with subprocess.Popen(  # noqa: S603 -- ours
            WORKERS[self.name], env=environment, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                meanwhile()
                return self._measured()
            finally:
                process.terminate()
                try:
                    process.wait(TIMEOUT_S / 4)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _measured(self) -> dict[str, float]:
        """Wait for the report."""
        give_up_s = time.monotonic() + TIMEOUT_S
        while not self.report.exists():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{self.name} has not done its jobs within {TIMEOUT_S} s")
            time.sleep(0.05)
        measured: dict[str, float] = json.loads(self.report.read_text())
        self.report.unlink()
        return measured

    def work_rate(self) -> float:
        """Return how many jobs a second a worker works off."""
        self.enqueue("many", JOBS)
        measured = self.work(JOBS)
        self.rates_by_cpu.append(measured["rate_by_cpu"])
        return measured["rate"]

    def latency(self) -> float:
        """Return the p50 latency as a rate, so that more is better, as it is elsewhere."""
        return 1000 / self.work(PACED_JOBS, partial(self.enqueue, "paced", PACED_JOBS))["p50_ms"]


def delete_queues(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for queue in QUEUES:
            connection.channel().queue_delete(queue)


def compare(title: str, medians: Mapping[str, float]) -> None:
    report(title, medians, against="queuey")
    ratios = (f"{medians['queuey'] / rate:.2f} times {name}" for name, rate in medians.items() if name != "queuey")
    print(f"  queuey is {', '.join(ratios)}", flush=True)


def main(url: str, repetitions: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    peers = [Peer(name, url, folder) for name in WORKERS]
    measures = {
        "jobs worked off": Peer.work_rate,
        "jobs enqueued and confirmed": Peer.enqueue_rate,
        "p50 latency at 100 jobs/s, as 1/s": Peer.latency,
    }
    delete_queues(url)
    for title, measure in measures.items():
        medians = interleaved({peer.name: partial(measure, peer) for peer in peers}, repetitions=repetitions)
        compare(title, medians)
        if measure is Peer.work_rate:
            by_cpu = {peer.name: statistics.median(peer.rates_by_cpu[1:]) for peer in peers}
            compare("jobs worked off in a second of the worker's processor time", by_cpu)
        delete_queues(url)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
