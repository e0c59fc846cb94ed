"""The chapters that depend on what RabbitMQ does, on the older versions that the broker in memory imitates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_queuey.broker_under_test import FakeUnderTest
from pytest_queuey.contract.dead_queues import DeadQueues
from pytest_queuey.contract.hold_queues import HoldQueues
from pytest_queuey.contract.lost_consumers import LostConsumers
from pytest_queuey.contract.priorities import Priorities
from pytest_queuey.contract.queues_on_the_broker import QueuesOnTheBroker
from pytest_queuey.contract.quorum_queues import QuorumQueues
from pytest_queuey.contract.refusals import Refusals
from pytest_queuey.contract.retry_queue import RetryQueue
from queuey_fake import FakeBroker


class TestOlderFakes(
    Priorities, Refusals, QueuesOnTheBroker, HoldQueues, DeadQueues, RetryQueue, QuorumQueues, LostConsumers
):
    @pytest.fixture(params=["3.10", "4.0"])
    def queuey_broker(self, request: pytest.FixtureRequest) -> Iterator[FakeUnderTest]:
        broker = FakeUnderTest(FakeBroker(request.param))
        yield broker
        broker.close()
