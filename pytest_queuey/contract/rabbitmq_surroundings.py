"""Owns what the chapters on RabbitMQ stand on: everything of the contract, on `queuey_broker`.

They may make backends with options, and open a way into the broker past them. Refuses to test anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import pytest

from pytest_queuey.contract.backend_under_test import DeadLetter
from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.contract.capabilities import EVERYTHING
from pytest_queuey.contract.surroundings import ContractClock, PutRaw, Surroundings, TakeDeadLetters
from queuey_rabbitmq.options import RabbitMqOptions
from queuey_rabbitmq.topology import DEFAULT_DEAD_SUFFIX, HEADER_DEATH_REASON, dead_queue_name

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from queuey_rabbitmq.core.backend import Backend

QUICK: Final = RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1)
"""Steps of 100 ms, so that a real broker need not be waited for in seconds."""

_MANY: Final = 1_000_000


class MakeRabbitMqBackend(Protocol):
    """Makes backends on the test's broker; each is closed when the test ends."""

    def __call__(self, options: RabbitMqOptions | None = None, /) -> Backend:
        """Return a new backend: with these options, or with any whose delays are exact to 100 ms."""


class RabbitMqSurroundings(Surroundings):
    """The fixtures of the contract, over `queuey_broker`."""

    capabilities: ClassVar[Collection[str] | None] = EVERYTHING

    @pytest.fixture
    def backend_factory(self, queuey_broker: BrokerUnderTest) -> MakeRabbitMqBackend:
        """Make backends."""

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
                taken.append(DeadLetter(message.body, message.headers[HEADER_DEATH_REASON]))
            return taken

        return take_all

    @pytest.fixture
    def put_raw(self, door: BrokerDoor) -> PutRaw:
        """Put bodies on queues as they are, past the backend."""
        return door.publish

    @pytest.fixture
    def refusing_publishes(self, queuey_faults: Faults) -> Callable[[], AbstractContextManager[object]]:
        """Return what has publishes refused within a `with` block."""

        @contextmanager
        def refusing() -> Iterator[None]:
            queuey_faults.nack_next(_MANY)
            yield
            queuey_faults.clear()

        return refusing

    @pytest.fixture
    def drop_connections(self, queuey_faults: Faults) -> Callable[[], None]:
        """Return what cuts the connections of the backends."""
        return queuey_faults.drop_connections
