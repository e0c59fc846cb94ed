"""Worker processes that are killed, stopped and restarted lose no job, and repeat only what was in flight."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from queuey_rabbitmq import Job, Producer, Queue, QueueSet, RabbitMqBackend, job

JOBS = 3_000
LATER_JOBS = 100  # that only the restarted worker can do
PREFETCH = 20
TIMEOUT_S = 60

PROGRAM = """
import os, sys, time
from queuey_rabbitmq import Job, Queue, QueueSet, RabbitMqBackend, Worker, job

class Work(QueueSet, prefix=sys.argv[2]):
    some = Queue(prefetch=20)

@job(Work.some)
class Do(Job[Work]):
    number: int

done = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with RabbitMqBackend.connect(sys.argv[1]) as backend:
    worker = Worker(backend, Work, concurrency=8)

    @worker.handler(Do)
    def do(job: Do) -> None:
        time.sleep(0.002)  # so that a fast machine has jobs left when its workers are killed and stopped
        os.write(done, b"%d\\n" % job.number)

    worker.run()
    sys.exit(worker.settle_failures)
"""


class Processes:
    """Worker processes on one queue, and what they have done."""

    def __init__(self, url: str, prefix: str, done: Path) -> None:
        self._arguments = [url, prefix, str(done)]
        self._done = done
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, *self._arguments]
        self._started.append(subprocess.Popen(command))  # noqa: S603 -- our own interpreter and program
        return self._started[-1]

    def done(self) -> list[int]:
        lines = self._done.read_bytes().split(b"\n") if self._done.exists() else []
        return [int(line) for line in lines if line]

    def wait_for_done(self, count: int) -> None:
        ends_at = time.monotonic() + TIMEOUT_S
        while len(set(self.done())) < count:
            assert time.monotonic() < ends_at, f"only {len(set(self.done()))} of {count} jobs are done"
            time.sleep(0.02)

    def kill(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def prefix() -> str:
    return f"queuey-test-{uuid.uuid4()}"


@pytest.fixture
def processes(
    rabbitmq_url: str,
    prefix: str,
    tmp_path: Path,
    operator: pika.adapters.blocking_connection.BlockingChannel,
) -> Iterator[Processes]:
    processes = Processes(rabbitmq_url, prefix, tmp_path / "done")
    yield processes
    processes.kill()
    for suffix in ("", ".dead"):
        operator.queue_delete(f"{prefix}.some{suffix}")


@pytest.fixture
def enqueue(rabbitmq_url: str, prefix: str) -> Callable[[range], None]:
    class Work(QueueSet, prefix=prefix):
        some = Queue(prefetch=PREFETCH)

    @job(Work.some)
    class Do(Job[Work]):
        number: int

    def enqueue(numbers: range) -> None:
        with RabbitMqBackend.connect(rabbitmq_url) as backend:
            Producer(backend, Work).enqueue_many([Do(n) for n in numbers])

    return enqueue


def test_one_worker_killed_and_another_stopped_and_restarted_lose_no_job(
    processes: Processes,
    enqueue: Callable[[range], None],
    prefix: str,
    operator: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    killed, stopped = processes.start(), processes.start()
    enqueue(range(JOBS))
    processes.wait_for_done(JOBS // 10)
    killed.send_signal(signal.SIGKILL)
    processes.wait_for_done(JOBS // 3)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(TIMEOUT_S) == 0  # it told the broker every outcome
    restarted = processes.start()
    enqueue(range(JOBS, JOBS + LATER_JOBS))
    processes.wait_for_done(JOBS + LATER_JOBS)  # so the restarted one runs, and hears the signal
    restarted.send_signal(signal.SIGTERM)
    assert restarted.wait(TIMEOUT_S) == 0

    times = Counter(processes.done())
    assert sorted(times) == list(range(JOBS + LATER_JOBS))
    assert sum(times.values()) - len(times) <= PREFETCH  # only what the killed one had in flight came twice
    for suffix in ("", ".dead"):  # no worker is left, so nothing is with one
        assert operator.queue_declare(f"{prefix}.some{suffix}", passive=True).method.message_count == 0
