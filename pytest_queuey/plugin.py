"""Owns the hooks and fixtures that pytest sees.

It is loaded in every test run of everyone who has queuey installed, so it imports pytest and the option table, and
nothing else before a fixture needs it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_queuey.options import Settings, add_options, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from pytest_queuey.queuey_clock import QueueyClock
    from pytest_queuey.real_broker import ReadyBroker, RealBroker
    from queuey_rabbitmq import RabbitMqBackend

_SETTINGS: Final = pytest.StashKey[Settings]()
_REAL_BROKER: Final = pytest.StashKey["RealBroker"]()
_WORKER_INPUT: Final = "queuey_rabbitmq"
_MARK: Final = "queuey_broker"
_EXPECT_LOSS: Final = "queuey_expect_loss"
_NEEDS: Final = "queuey_needs"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its ini."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything runs, and register the mark."""
    settings = config.stash[_SETTINGS] = read_settings(config)
    if settings.backend is not None:
        from pytest_queuey.contract.named_backend import load

        load(config, settings)
    config.addinivalue_line(
        "markers",
        f"{_MARK}(*kinds): run a test that uses queuey_broker only on these kinds of broker, 'fake' or 'rabbitmq'.",
    )
    config.addinivalue_line(
        "markers",
        f"{_EXPECT_LOSS}(reason=None, queue=None): do what queuey_broker.journal.expect_loss does, for a whole test.",
    )
    config.addinivalue_line(
        "markers",
        f"{_NEEDS}(*capabilities): of the contract: run a test only on backends that declare these capabilities.",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which brokers are used, where it is more than the one in memory."""
    settings = config.stash[_SETTINGS]
    if "rabbitmq" not in settings.kinds:
        return None
    from pytest_queuey.sources.selection import choose
    from pytest_queuey.sources.server import SourceError

    try:
        real = choose(settings).what
    except SourceError as error:
        real = str(error)
    return f"queuey: brokers {settings.broker}; the real RabbitMQ is {real}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use `queuey_broker` on each kind of broker that was asked for, all of one kind together."""
    if "queuey_broker_kind" not in metafunc.fixturenames:
        return
    kinds = metafunc.config.stash[_SETTINGS].kinds
    mark = metafunc.definition.get_closest_marker(_MARK)
    wanted = kinds if mark is None else mark.args
    # A kind that the mark leaves out is skipped by name: a test that vanishes explains nothing.
    said = f"{_MARK}({', '.join(map(repr, wanted))})"
    if not set(wanted) <= {"fake", "rabbitmq"}:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.name}: {said}: the kinds of broker are 'fake' and 'rabbitmq'"
        )
    skip = pytest.mark.skip(reason=f"only for {said}")
    metafunc.parametrize(
        "queuey_broker_kind",
        [pytest.param(kind, id=kind, marks=() if kind in wanted else skip) for kind in kinds],
        indirect=True,
        scope="session",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the contract on the backend that is named, or on RabbitMQ."""
    if "pytest_queuey.contract" in sys.modules:
        from pytest_queuey.contract_report import leave_to_its_backend

        leave_to_its_backend(config, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Bridge freezegun where tests have it and queuey loaded; fixtures see to what is loaded later."""
    del session
    if "freezegun.api" in sys.modules and "queuey_rabbitmq" in sys.modules:
        from queuey_fake import frozen_time

        frozen_time.bridge()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of an xdist run has to say of lost messages, and of the contract."""
    output = getattr(node, "workeroutput", {})
    if output.get("queuey_contract"):
        from pytest_queuey.contract_report import HAS_RUN

        node.config.stash[HAS_RUN] = True
    losses = output.get("queuey_losses")
    if losses:
        from pytest_queuey.failure_report import LOSSES

        node.config.stash.setdefault(LOSSES, []).extend(losses)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which messages were lost, where they did not fail their tests, and what became of the contract."""
    if "pytest_queuey.contract_report" in sys.modules:
        from pytest_queuey.contract_report import summarise_contract

        summarise_contract(terminalreporter, config)
    if "pytest_queuey.failure_report" in sys.modules:
        from pytest_queuey.failure_report import LOSSES, summarise

        summarise(terminalreporter, config.stash.get(LOSSES, []))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start the real broker in the controller of an xdist run, and tell the worker where it is."""
    if "rabbitmq" in node.config.stash[_SETTINGS].kinds:
        node.workerinput[_WORKER_INPUT] = _real_broker(node.config).for_worker()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the real broker if this process has started it."""
    broker = config.stash.get(_REAL_BROKER, None)
    if broker is not None:
        broker.close()


def _real_broker(config: pytest.Config) -> RealBroker:
    if _REAL_BROKER not in config.stash:
        from pytest_queuey.real_broker import RealBroker

        given = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
        config.stash[_REAL_BROKER] = RealBroker(config.stash[_SETTINGS], from_controller=given)
    return config.stash[_REAL_BROKER]


@pytest.fixture(scope="session")
def queuey_broker_kind(request: pytest.FixtureRequest) -> str:
    """Say which kind of broker the test runs on, 'fake' or 'rabbitmq'; parametrised by --queuey-broker."""
    # Asked for at run time only, there is no parametrisation: then it is the first kind.
    return getattr(request, "param", request.config.stash[_SETTINGS].kinds[0])


@pytest.fixture(scope="session")
def queuey_rabbitmq_server(request: pytest.FixtureRequest) -> ReadyBroker:
    """Give the real RabbitMQ of the run: started when first needed, ended with the run, one for all xdist workers."""
    from pytest_queuey.sources.server import SourceError

    try:
        return _real_broker(request.config).ready()
    except SourceError as error:
        reason = str(error)  # outside, or pytest prints every exception that led to it
    if request.config.stash[_SETTINGS].broker == "auto":
        pytest.skip(reason)
    pytest.fail(reason, pytrace=False)


@pytest.fixture
def queuey_broker(request: pytest.FixtureRequest, queuey_broker_kind: str) -> Iterator[BrokerUnderTest]:
    """Give the test an empty broker: in memory, or a virtual host of its own on a real RabbitMQ.

    The same on both: `.kind`, `.version`, `.url`, `.backend(options)`, `.name(queue)`, `.advance(seconds)`,
    `.queue(name)`, `.queues()`. Backends are closed when the test ends.
    """
    settings = request.config.stash[_SETTINGS]
    if queuey_broker_kind == "rabbitmq":
        from pytest_queuey.broker_under_test import RabbitMqUnderTest

        server = request.getfixturevalue("queuey_rabbitmq_server")
        with_faults = "queuey_faults" in request.fixturenames
        broker = RabbitMqUnderTest(server, settings, with_faults=with_faults)
        yield broker
        broker.close()
        return
    from pytest_queuey.broker_under_test import FakeUnderTest
    from pytest_queuey.failure_report import FailureReport
    from queuey_fake import FakeBroker

    fake = FakeBroker(wait_guard=settings.wait_guard)
    for mark in request.node.iter_markers(_EXPECT_LOSS):
        fake.journal.expect_loss(**mark.kwargs)
    report = FailureReport.of(request.config, settings)
    report.watch(request.node, fake)
    yield FakeUnderTest(fake)
    report.end(request.node)


@pytest.fixture
def queuey_backend(queuey_broker: BrokerUnderTest) -> RabbitMqBackend:
    """Give the test a backend with default options on its broker, closed when the test ends."""
    return queuey_broker.backend()


@pytest.fixture
def queuey_clock(queuey_broker: BrokerUnderTest) -> QueueyClock:
    """Give the test the time of its broker: `.now_ms()`, `.advance(seconds)`, `.move_to(datetime)`."""
    from pytest_queuey.queuey_clock import QueueyClock

    return QueueyClock(queuey_broker)


@pytest.fixture
def queuey_faults(queuey_broker: BrokerUnderTest) -> Faults:
    """Give the test what it can make fail on its broker: `.drop_connections()`, `.hang()`, `.restart()` and others.

    On a real broker, everything of a test that asks for this leads through a proxy of its own.
    """
    return queuey_broker.faults


@pytest.fixture
def queuey_queue_name(queuey_broker: BrokerUnderTest) -> Any:
    """Give the test a function that makes queue names no other test meets: `queuey_queue_name("emails")`.

    Needed only by suites that also run on a shared virtual host, where nobody may make one for each test.
    """
    return queuey_broker.name
