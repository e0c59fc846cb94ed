"""The lanes of the project's own tests: everything runs in memory, and what is marked `rabbitmq` on a real broker.

`pytest` runs the first, `pytest --queuey-broker=all` both; there a real broker that cannot be had fails the tests.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.contract.broker_door import BrokerDoor
    from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend

pytest_plugins = ["pytester"]

LEFT_OUT = (
    "queuey_rabbitmq.cli",
    "queuey_rabbitmq.opentelemetry",
    "queuey_rabbitmq.prometheus",
    "pytest_queuey.sources.container",
    "queuey_fake.__main__",
    "pytest_queuey.test_contract",
)
"""What loads other people's packages, or is a program or a test: no run inside a run takes a part of it."""

# Each run tries the same few examples, so that a red test is about the change; HYPOTHESIS_PROFILE=deep looks further.
settings.register_profile("fast", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rabbitmq: needs a real RabbitMQ; runs where --queuey-broker asks for one.")


@pytest.hookimpl(trylast=True)  # folders mark their tests in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("queuey_broker") in (None, "fake"):
        skip = pytest.mark.skip(reason="needs a real RabbitMQ: run with --queuey-broker=all")
        for item in items:
            if item.get_closest_marker("rabbitmq") is not None:
                item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from looking through thousands of collected tests again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def everything_is_loaded() -> None:
    """Load our modules, as a run inside a run forgets those that it was the first to load.

    Another run then loads them again, beside modules that still hold the first ones' classes: an event that no
    `isinstance` knows is never answered.
    """
    for package in ("queuey_rabbitmq", "queuey_fake", "pytest_queuey"):
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(LEFT_OUT):
                import_module(module.name)


@pytest.fixture
def run_pytest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, everything_is_loaded: None
) -> pytest.Pytester:
    """A pytest run of its own, with queuey's plugin alone and without what the surrounding run was told."""
    for name in ("QUEUEY_RABBITMQ_URL", "PYTEST_XDIST_WORKER", "CI", "BUILD_NUMBER"):  # the last two lengthen summaries
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_queuey.plugin -p no:cacheprovider --strict-markers")
    return pytester


@pytest.fixture
def door(queuey_broker: BrokerUnderTest) -> Iterator[BrokerDoor]:
    """A way into the broker past the backend."""
    from pytest_queuey.contract.broker_door import BrokerDoor

    with BrokerDoor(queuey_broker.url) as door:
        yield door


@pytest.fixture
def emails(queuey_broker: BrokerUnderTest, queuey_backend: RabbitMqBackend) -> QueueConfig:
    """A work queue that is declared."""
    from queuey_rabbitmq import QueueConfig

    config = QueueConfig(queuey_broker.name("emails"))
    queuey_backend.declare([config])
    return config


@pytest.fixture
def bury(queuey_backend: RabbitMqBackend, emails: QueueConfig) -> Callable[..., Envelope]:
    """Makes a dead letter, as a worker does: from a job with this payload, for a reason."""
    from queuey_rabbitmq import Envelope

    def bury(payload: Any, reason: str = "no use", **fields: Any) -> Envelope:
        known: dict[str, Any] = {"job_id": uuid.uuid4(), "job_type": "send_email", "queue": emails.name}
        known |= {"enqueued_at_ms": queuey_backend.now_ms(), "payload": payload}
        job = Envelope(**(known | fields))
        queuey_backend.publish(job)
        with queuey_backend.consume(emails) as deliveries:
            delivery = deliveries.get(timeout=5)
            assert delivery is not None
            delivery.dead_letter(reason)
        return job

    return bury
