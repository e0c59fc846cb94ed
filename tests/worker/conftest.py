"""Producers and workers on each kind of broker: in memory in virtual time, and on a real one (--queuey-broker=all)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import Envelope, RabbitMqBackend, RabbitMqOptions, topology

TIMEOUT_S = 10


@pytest.fixture
def backend(queuey_broker: BrokerUnderTest) -> RabbitMqBackend:
    """A backend whose waits may be short, for what these tests wait on a real broker."""
    return queuey_broker.backend(RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1))


@pytest.fixture
def dead_letters(door: BrokerDoor) -> Callable[[Any], list[tuple[Envelope, str]]]:
    """Takes the dead letters of a queue of a set, with their reasons, oldest first."""

    def take(queue: Any) -> list[tuple[Envelope, str]]:
        taken = []
        while (message := door.get(topology.dead_queue_name(queue.name, ".dead"))) is not None:
            taken.append((Envelope.from_bytes(message.body), message.headers[topology.HEADER_DEATH_REASON]))
        return taken

    return take


class Running:
    """A worker that runs in a thread of its own, as in a program."""

    def __init__(self, worker: Any, **how: Any) -> None:
        self.worker = worker
        self.ended: Future[None] = Future()
        Thread(target=self._run, kwargs=how, daemon=True).start()

    def _run(self, **how: Any) -> None:
        try:
            self.ended.set_result(self.worker.run(**how))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the test gets it
            self.ended.set_exception(error)

    def shut_down(self, **how: Any) -> None:
        self.worker.shutdown(**how)
        self.ended.result(TIMEOUT_S)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts workers in threads; they are shut down when the test ends, if not before."""
    started = []

    def start(worker: Any, **how: Any) -> Running:
        started.append(Running(worker, **how))
        return started[-1]

    yield start
    for running in started:
        running.worker.shutdown(grace=0)
    for running in started:
        running.ended.exception(TIMEOUT_S)
