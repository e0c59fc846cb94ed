"""The chapters in which jobs are held, die or lose their connection, on quorum queues."""

from __future__ import annotations

import pytest

from pytest_queuey.contract.dead_lettering import DeadLettering
from pytest_queuey.contract.delaying import Delaying
from pytest_queuey.contract.faults import LostConnections
from pytest_queuey.contract.lost_consumers import LostConsumers
from pytest_queuey.contract.rabbitmq_surroundings import RabbitMqSurroundings
from queuey_rabbitmq import QueueConfig


class TestOnQuorumQueues(DeadLettering, Delaying, LostConsumers, LostConnections, RabbitMqSurroundings):
    @pytest.fixture
    def queue(self, queue_name: str) -> QueueConfig:
        return QueueConfig(queue_name, queue_type="quorum")
