"""Owns what every chapter of the contract stands on: backends, a queue, jobs, time, and how a test takes deliveries.

An author of another backend overrides these fixtures in their subclass. Refuses to test anything.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.options import RabbitMqOptions
from queuey_rabbitmq.topology import DEFAULT_DEAD_SUFFIX, HEADER_DEATH_REASON, dead_queue_name

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from queuey_rabbitmq.core.backend import Backend, Deliveries
    from queuey_rabbitmq.core.delivery import Delivery

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds to wait for what is on its way; on a backend that keeps the contract nobody ever waits so long."""

QUICK: Final = RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1)
"""Steps of 100 ms, so that a real broker need not be waited for in seconds."""


class MakeBackend(Protocol):
    """Makes backends on the test's broker; each is closed when the test ends."""

    def __call__(self, options: RabbitMqOptions | None = None, /) -> Backend:
        """Return a new backend: with these options, or with any whose delays are exact to 100 ms."""


class MakeJob(Protocol):
    """Makes jobs of the test's queue."""

    def __call__(self, payload: Any = None, /, **fields: Any) -> Envelope:
        """Return a new job; `fields` are those of Envelope."""


class ContractClock(Protocol):
    """The time that the backend lives by."""

    def now_ms(self) -> int:
        """Return the present, in ms since the epoch."""

    def advance(self, duration: timedelta | float, /) -> None:
        """Let a duration (seconds or timedelta) pass; what is due in it has happened when this returns."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that failed for good, and why."""

    envelope: Envelope
    reason: str


TakeDeadLetters = Callable[[str], Sequence[DeadLetter]]
"""Takes the dead letters of a work queue, oldest first."""


class Surroundings:
    """The fixtures of the contract, over `queuey_broker`."""

    @pytest.fixture
    def backend_factory(self, queuey_broker: BrokerUnderTest) -> MakeBackend:
        """Make backends; what another backend's author overrides first."""

        def make(options: RabbitMqOptions | None = None, /) -> Backend:
            return queuey_broker.backend(options or QUICK)

        return make

    @pytest.fixture
    def clock(self, queuey_clock: ContractClock) -> ContractClock:
        """Return the time that the backends live by."""
        return queuey_clock

    @pytest.fixture
    def queue_name(self, queuey_queue_name: Callable[[str], str]) -> str:
        """Return the name that every queue of the test starts with."""
        return queuey_queue_name("work")

    @pytest.fixture
    def queue(self, queue_name: str) -> QueueConfig:
        """Return the test's queue."""
        return QueueConfig(queue_name)

    @pytest.fixture
    def backend(self, backend_factory: MakeBackend, queue: QueueConfig) -> Backend:
        """Return a backend that has declared the test's queue."""
        backend = backend_factory()
        backend.declare([queue])
        return backend

    @pytest.fixture
    def new_job(self, queue_name: str, clock: ContractClock) -> MakeJob:
        """Make jobs of the test's queue."""

        def make(payload: Any = None, /, **fields: Any) -> Envelope:
            new: dict[str, Any] = {
                "job_id": uuid.uuid4(),
                "job_type": "contract",
                "queue": queue_name,
                "enqueued_at_ms": clock.now_ms(),
            }
            return Envelope(payload=payload, **(new | fields))

        return make

    @pytest.fixture
    def door(self, queuey_broker: BrokerUnderTest) -> Iterator[BrokerDoor]:
        """Open a way into the broker past the backend."""
        door = BrokerDoor(queuey_broker.url)
        yield door
        door.close()

    @pytest.fixture
    def dead_letters(self, door: BrokerDoor) -> TakeDeadLetters:
        """Take dead letters from where the backend keeps them."""

        def take_all(queue: str) -> list[DeadLetter]:
            dead_queue = dead_queue_name(queue, DEFAULT_DEAD_SUFFIX)
            taken = []
            while (message := door.get(dead_queue)) is not None:
                envelope = Envelope.from_bytes(message.body)
                taken.append(DeadLetter(envelope, message.headers[HEADER_DEATH_REASON]))
            return taken

        return take_all


def take(deliveries: Deliveries, count: int) -> list[Delivery]:
    """Return the next deliveries, unsettled; fail where one does not come."""
    taken: list[Delivery] = []
    for _ in range(count):
        delivery = deliveries.get(timeout=PATIENCE)
        assert delivery is not None, f"of {count} jobs only {payloads(taken)} came within {PATIENCE:g} s"
        taken.append(delivery)
    return taken


def take_one(deliveries: Deliveries) -> Delivery:
    """Return the next delivery, unsettled; fail where none comes."""
    return take(deliveries, 1)[0]


def work_off(deliveries: Deliveries, count: int) -> list[Any]:
    """Take and ack jobs one after the other; return their payloads in order."""
    worked_off = []
    for _ in range(count):
        delivery = take_one(deliveries)
        worked_off.append(delivery.envelope.payload)
        delivery.ack()
    return worked_off


def payloads(deliveries: Sequence[Delivery]) -> list[Any]:
    """Return the payloads of deliveries, in order."""
    return [delivery.envelope.payload for delivery in deliveries]


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Do something in a thread of its own, which never keeps the test run from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the future's caller gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=f"contract-{work.__name__}").start()
    return future
