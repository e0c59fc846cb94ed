"""Owns what the contract's chapters on faults stand on: backends that come back quickly, and how long is too long.

Refuses to wait for long: deadlines are fractions of a second. And refuses to test anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from pytest_queuey.contract.rabbitmq_surroundings import QUICK, RabbitMqSurroundings
from pytest_queuey.contract.surroundings import PATIENCE, ContractClock
from queuey_rabbitmq.core.delivery import Delivery
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.core.reconnect import ReconnectPolicy

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from queuey_rabbitmq.backend import RabbitMqBackend
    from queuey_rabbitmq.options import RabbitMqOptions

OUTAGE: Final = 0.3
"""Seconds for which connections are refused."""
DEADLINE: Final = 0.5
"""Seconds that calls are given where they are to fail."""
LATENESS_MS: Final = 1500
"""How much later than its deadline a call may end: it waits for a thread of a busy machine."""

RESILIENT: Final = QUICK.replace(reconnect=ReconnectPolicy(base=0.05, max_delay=0.1))
HURRIED: Final = RESILIENT.replace(connect_timeout=DEADLINE, operation_timeout=DEADLINE, close_timeout=DEADLINE)

Settle = Callable[[Delivery], None]
OUTCOMES_THAT_PUBLISH: Final = pytest.mark.parametrize(
    "settle",
    [
        lambda delivery: delivery.retry(delivery.envelope.next_attempt(), 0.1),
        lambda delivery: delivery.defer(delivery.envelope.deferred(0), 0.1),
        lambda delivery: delivery.dead_letter("for good"),
    ],
    ids=["retry", "defer", "dead_letter"],
)


@contextmanager
def ending_in_time(clock: ContractClock) -> Iterator[None]:
    """Fail where what is done takes much longer than DEADLINE."""
    started_ms = clock.now_ms()
    yield
    took_ms = clock.now_ms() - started_ms
    assert took_ms <= DEADLINE * 1000 + LATENESS_MS, f"with a deadline of {DEADLINE:g} s it took {took_ms} ms"


def error_of(future: Future[None], clock: ContractClock) -> BaseException | None:
    """Return how a publish ended, letting time pass until it has."""
    patient_until_ms = clock.now_ms() + PATIENCE * 1000
    while not future.done() and clock.now_ms() < patient_until_ms:
        clock.advance(0.02)
    return future.exception(0)


def ready(broker: BrokerUnderTest, queue: QueueConfig) -> int:
    """Return how many messages of a queue are ready; fail where there is no such queue."""
    look = broker.queue(queue.name)
    assert look is not None, f"there is no queue '{queue.name}'"
    return look.ready


class WithFaults(RabbitMqSurroundings):
    """What the tests on faults share."""

    @pytest.fixture
    def faults(self, queuey_faults: Faults) -> Faults:
        """Return what the test can make fail."""
        return queuey_faults

    @pytest.fixture
    def connect(
        self,
        backend_factory: Callable[[RabbitMqOptions], RabbitMqBackend],
        backend: RabbitMqBackend,
        queue: QueueConfig,
        faults: Faults,
    ) -> Callable[[RabbitMqOptions], RabbitMqBackend]:
        """Make backends that have declared the test's queue; it exists by then, as making it takes its time."""
        backend.close()

        def make(options: RabbitMqOptions) -> RabbitMqBackend:
            backend = backend_factory(options)
            backend.declare([queue])
            return backend

        return make

    @pytest.fixture
    def resilient(self, connect: Callable[[RabbitMqOptions], RabbitMqBackend]) -> RabbitMqBackend:
        """Return a backend that comes back quickly."""
        return connect(RESILIENT)

    @pytest.fixture
    def hurried(self, connect: Callable[[RabbitMqOptions], RabbitMqBackend]) -> RabbitMqBackend:
        """Return a backend that comes back quickly and whose calls have short deadlines."""
        return connect(HURRIED)
