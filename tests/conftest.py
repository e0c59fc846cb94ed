"""The lanes of the project's own tests: everything runs in memory, and what is marked `rabbitmq` on a real broker.

`pytest` runs the first, `pytest --queuey-broker=all` both; there a real broker that cannot be had fails the tests.
"""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rabbitmq: needs a real RabbitMQ; runs where --queuey-broker asks for one.")


@pytest.hookimpl(trylast=True)  # folders mark their tests in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("queuey_broker") in (None, "fake"):
        skip = pytest.mark.skip(reason="needs a real RabbitMQ: run with --queuey-broker=all")
        for item in items:
            if item.get_closest_marker("rabbitmq") is not None:
                item.add_marker(skip)


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest run of its own: without what the surrounding run was told, or what other plugins warn of."""
    for name in ("PYTEST_ADDOPTS", "QUEUEY_RABBITMQ_URL", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pytester.plugins = []
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:cacheprovider --strict-markers")
    return pytester
