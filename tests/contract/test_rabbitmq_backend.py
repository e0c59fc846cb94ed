"""The whole contract, on each kind of broker that --queuey-broker names."""

from pytest_queuey.contract import RabbitMqContract


class TestRabbitMqBackend(RabbitMqContract):
    pass
