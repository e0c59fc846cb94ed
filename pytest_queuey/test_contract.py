"""The contract, to be run from outside: pytest --pyargs pytest_queuey.test_contract.

With --queuey-backend=MODULE:CLASS it runs on that backend, else on the brokers that --queuey-broker names.
"""

from pytest_queuey.contract import BackendContract, RabbitMqContract


class TestBackend(BackendContract):
    """The backend that --queuey-backend names."""


class TestRabbitMqBackend(RabbitMqContract):
    """The backend on RabbitMQ."""
