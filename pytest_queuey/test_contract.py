"""The contract, to be run from outside: pytest --pyargs pytest_queuey.test_contract.

With --queuey-backend=MODULE:CLASS it runs on that backend, else on the brokers that --queuey-broker names.
"""

import pytest

from pytest_queuey.contract import BackendContract, RabbitMqContract
from pytest_queuey.contract.named_backend import try_out


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Look at what a named backend is made by, before its tests are."""
    if metafunc.cls is TestBackend:
        try_out(metafunc.config)


class TestBackend(BackendContract):
    """The backend that --queuey-backend names."""


class TestRabbitMqBackend(RabbitMqContract):
    """The backend on RabbitMQ."""
