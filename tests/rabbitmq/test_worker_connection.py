"""A worker whose connection is cut: a pause where it is made again, an error that names the queue where it is not."""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pika
import pytest

from queuey_rabbitmq import (
    ConnectionLostError,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    RabbitMqOptions,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)

JOBS = 1_000
CUTS = 3
PREFETCH = 20
TIMEOUT_S = 30


class Wire:
    """A way to the broker that can be cut."""

    def __init__(self, url: str) -> None:
        broker = urlsplit(url)
        self._target = (broker.hostname, broker.port or 5672)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        who = f"{broker.username}:{broker.password}@"
        self.url = urlunsplit(broker._replace(netloc=f"{who}127.0.0.1:{self._server.getsockname()[1]}"))
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with closing(source), suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(rabbitmq_url: str) -> Iterator[Wire]:
    wire = Wire(rabbitmq_url)
    yield wire
    wire.close()


class Work(QueueSet, prefix=f"queuey-test-{uuid.uuid4()}"):
    some = Queue(prefetch=PREFETCH, retry=RetryPolicy.fixed(3, 0.1))


@job(Work.some)
class Do(Job[Work]):
    number: int


@pytest.fixture
def producer(
    rabbitmq_url: str, operator: pika.adapters.blocking_connection.BlockingChannel
) -> Iterator[Producer[Work]]:
    with RabbitMqBackend.connect(rabbitmq_url) as backend:
        yield Producer(backend, Work)
    for suffix in ("", ".dead"):
        operator.queue_delete(f"{Work.some.name}{suffix}")


class Counts:
    """Fails every seventh job once; counts how often each was called at which attempt."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[int, int]] = Counter()
        self._lock = Lock()

    def handle(self, job: Do, context: JobContext) -> None:
        time.sleep(0.001)
        with self._lock:
            self.calls[job.number, context.attempt] += 1
        if job.number % 7 == 0 and context.attempt == 1:
            raise Retryable("once")

    def is_done(self) -> bool:
        return all((number, 2 if number % 7 == 0 else 1) in self.calls for number in range(JOBS))


def run_in_thread(worker: Worker[Any]) -> tuple[Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def test_a_connection_that_is_cut_and_made_again_is_a_pause(wire: Wire, producer: Producer[Work]) -> None:
    handler = Counts()
    with RabbitMqBackend.with_options(wire.url, RabbitMqOptions(retry_granularity=0.1)) as backend:
        worker = Worker(backend, Work, concurrency=8, settle_backoff=0.2)
        worker.register(Do, handler)
        thread, errors = run_in_thread(worker)
        producer.enqueue_many([Do(number) for number in range(JOBS)])
        for cut in range(1, CUTS + 1):
            ends_at = time.monotonic() + TIMEOUT_S
            while len(handler.calls) < cut * JOBS // (CUTS + 1) and time.monotonic() < ends_at:
                time.sleep(0.01)
            wire.cut()
        ends_at = time.monotonic() + TIMEOUT_S
        while not handler.is_done() and time.monotonic() < ends_at:
            time.sleep(0.02)
        worker.shutdown()
        thread.join(TIMEOUT_S)
    assert handler.is_done()
    assert errors == []
    # Nothing came twice but what was with the worker when its connection was cut, and the next attempt of such a job.
    assert sum(handler.calls.values()) - len(handler.calls) <= 2 * CUTS * PREFETCH


def test_a_burst_waits_for_a_connection_that_is_made_again(wire: Wire, producer: Producer[Work]) -> None:
    handler = Counts()
    with RabbitMqBackend.with_options(wire.url, RabbitMqOptions()) as backend:
        worker = Worker(backend, Work)
        worker.register(Do, handler)
        worker.step()
        producer.enqueue_many([Do(number) for number in range(1, 7)])
        wire.cut()
        worker.run(burst=True)
    assert sorted(number for number, _ in handler.calls) == list(range(1, 7))


def test_a_worker_without_a_connection_is_shut_down_at_once(wire: Wire, producer: Producer[Work]) -> None:
    with RabbitMqBackend.with_options(wire.url, RabbitMqOptions()) as backend:
        worker = Worker(backend, Work, concurrency=2)
        worker.register(Do, handler := Counts())
        thread, errors = run_in_thread(worker)
        producer.enqueue(Do(1))
        ends_at = time.monotonic() + TIMEOUT_S
        while not handler.calls and time.monotonic() < ends_at:
            time.sleep(0.01)
        wire.close()
        worker.shutdown()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert errors == []


def test_a_connection_that_is_not_made_again_ends_run_with_an_error_that_names_the_queue(
    wire: Wire, producer: Producer[Work]
) -> None:
    handler = Counts()
    backend = RabbitMqBackend.with_options(wire.url, RabbitMqOptions(reconnect=None))
    worker = Worker(backend, Work, concurrency=2)
    worker.register(Do, handler)
    thread, errors = run_in_thread(worker)
    producer.enqueue(Do(1))
    ends_at = time.monotonic() + TIMEOUT_S
    while not handler.calls and time.monotonic() < ends_at:
        time.sleep(0.01)
    wire.cut()
    thread.join(TIMEOUT_S)
    assert [type(error) for error in errors] == [ConnectionLostError]
    assert f"queue '{Work.some.name}'" in str(errors[0])
    backend.close()
