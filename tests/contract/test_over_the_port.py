"""The contract over a socket: the link that production uses, on the port of the broker in memory.

That link waits in real time, so this runs in the lane of the real broker, which does too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from time import sleep, time_ns

import pytest

from pytest_queuey.broker_under_test import FakeUnderTest
from pytest_queuey.contract import RabbitMqContract
from pytest_queuey.contract.rabbitmq_surroundings import QUICK, MakeRabbitMqBackend
from queuey_fake import FakeBroker
from queuey_fake.clock import SystemClock
from queuey_rabbitmq import RabbitMqBackend


class RealTime:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def advance(self, seconds: float) -> None:
        sleep(seconds)


@pytest.mark.rabbitmq
class TestOverThePort(RabbitMqContract):
    @pytest.fixture
    def queuey_broker(self) -> Iterator[FakeUnderTest]:
        broker = FakeUnderTest(FakeBroker(clock=SystemClock()))
        yield broker
        broker.close()

    @pytest.fixture
    def clock(self) -> RealTime:
        return RealTime()

    @pytest.fixture
    def backend_factory(self, queuey_broker: FakeUnderTest) -> Iterator[MakeRabbitMqBackend]:
        with ExitStack() as backends:
            yield lambda options=None: backends.enter_context(
                RabbitMqBackend.with_options(queuey_broker.url, options or QUICK)
            )
