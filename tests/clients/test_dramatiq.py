"""A dramatiq worker with delays, retries and dead letters."""

import threading
from typing import Any

import pytest

from queuey_fake import FakeBroker

dramatiq = pytest.importorskip("dramatiq")
rabbitmq = pytest.importorskip("dramatiq.brokers.rabbitmq")
TIMEOUT_S = 10


@pytest.fixture
def rabbitmq_broker(broker: FakeBroker) -> Any:
    client = rabbitmq.RabbitmqBroker(url=broker.url, confirm_delivery=True)
    dramatiq.set_broker(client)
    yield client
    client.close()


def dead_letters(broker: FakeBroker) -> int:
    queue = broker.queue("default.XQ")
    return 0 if queue is None else queue.ready


def test_dramatiq_delays_retries_and_dead_letters(broker: FakeBroker, rabbitmq_broker: Any) -> None:
    attempts: list[str] = []

    @dramatiq.actor(broker=rabbitmq_broker, max_retries=1, min_backoff=50, max_backoff=50)  # type: ignore[untyped-decorator]  # dramatiq is not there for mypy
    def work(what: str) -> None:
        attempts.append(what)
        if what == "fails":
            raise ValueError(what)

    worker = dramatiq.Worker(rabbitmq_broker, worker_threads=1, worker_timeout=50)
    worker.start()
    try:
        work.send("works")
        work.send_with_options(args=("delayed",), delay=200)
        work.send("fails")
        rabbitmq_broker.join("default", timeout=TIMEOUT_S * 1000)
        looks = iter(range(200))
        while not dead_letters(broker):
            next(looks)
            threading.Event().wait(0.05)
    finally:
        worker.stop(timeout=TIMEOUT_S * 1000)
    assert dead_letters(broker) == 1
    assert sorted(attempts) == ["delayed", "fails", "fails", "works"]


def test_dramatiq_works_on_when_its_connections_were_cut(broker: FakeBroker, rabbitmq_broker: Any) -> None:
    done = threading.Semaphore(0)

    @dramatiq.actor(broker=rabbitmq_broker)  # type: ignore[untyped-decorator]  # dramatiq is not there for mypy
    def work() -> None:
        done.release()

    worker = dramatiq.Worker(rabbitmq_broker, worker_threads=1, worker_timeout=50)
    worker.start()
    try:
        work.send()
        assert done.acquire(timeout=TIMEOUT_S)
        broker.faults.drop_connections()
        work.send()
        assert done.acquire(timeout=TIMEOUT_S)
    finally:
        worker.stop(timeout=TIMEOUT_S * 1000)
