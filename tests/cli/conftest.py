"""The command line, run in this process against each kind of broker, over its AMQP port."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_queuey.broker_under_test import BrokerUnderTest
from queuey_rabbitmq.cli.program import program

Run = Callable[..., Result]


@pytest.fixture
def run(queuey_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line as a user does who has the broker's URL in the environment."""
    monkeypatch.setenv("QUEUEY_BROKER_URL", queuey_broker.url)

    def run(*arguments: str, **how: Any) -> Result:
        return CliRunner().invoke(program, arguments, catch_exceptions=False, **how)

    return run


@pytest.fixture
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a command set up logging and the path of modules as in a process of its own."""
    root = logging.getLogger()
    level, pikas = root.level, logging.getLogger("pika").level
    before = list(root.handlers)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
    root.setLevel(level)
    logging.getLogger("pika").setLevel(pikas)
