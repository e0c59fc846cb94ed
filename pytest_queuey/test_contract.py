"""The contract on the brokers that --queuey-broker names: pytest --pyargs pytest_queuey.test_contract."""

from pytest_queuey.contract import RabbitMqContract


class TestRabbitMqBackend(RabbitMqContract):
    """The backend on RabbitMQ."""
