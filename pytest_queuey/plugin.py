"""Owns the hooks and fixtures that pytest sees.

It is loaded in every test run of everyone who has queuey installed, so it imports pytest and the option table, and
nothing else before a fixture needs it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_queuey.asked import FAKE_VERSIONS, AskedBroker, check_mark
from pytest_queuey.options import Settings, add_options, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_queuey.broker_under_test import BrokerUnderTest
    from pytest_queuey.faults import Faults
    from pytest_queuey.queuey_clock import QueueyClock
    from pytest_queuey.real_broker import ReadyBroker, RealBroker
    from pytest_queuey.trace.traces import Traces
    from queuey_rabbitmq import RabbitMqBackend

_SETTINGS: Final = pytest.StashKey[Settings]()
_REAL_BROKERS: Final = pytest.StashKey["dict[str | None, RealBroker]"]()
"""The real brokers of the run, by the version that was asked for."""
_SAID: Final = pytest.StashKey["set[str]"]()
"""Why there is no real broker, as tests have said it already."""
_WORKER_INPUT: Final = "queuey_rabbitmq"
_MARK: Final = "queuey_broker"
_EXPECT_LOSS: Final = "queuey_expect_loss"
_NEEDS: Final = "queuey_needs"
_TRACES: Final = pytest.StashKey["Traces"]()
"""What is there where --queuey-trace asks for it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its ini."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything runs, and register the mark."""
    settings = config.stash[_SETTINGS] = read_settings(config)
    if settings.backend is not None:
        from pytest_queuey.contract.named_backend import load

        load(config, settings)
    if settings.trace is not None:
        from pytest_queuey.trace.traces import start

        config.stash[_TRACES] = start(config, settings.trace)
    config.addinivalue_line(
        "markers",
        f"{_MARK}(*kinds, reason=None): run a test that uses queuey_broker only on these brokers: 'fake', 'rabbitmq', "
        "or of a version, 'rabbitmq-4.3'.",
    )
    config.addinivalue_line(
        "markers",
        f"{_EXPECT_LOSS}(reason=None, queue=None): do what queuey_broker.journal.expect_loss does, for a whole test.",
    )
    config.addinivalue_line(
        "markers",
        f"{_NEEDS}(*capabilities): of the contract: run a test only on backends that declare these capabilities.",
    )


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Say which brokers are used, where it is more than the one in memory."""
    settings = config.stash[_SETTINGS]
    if not settings.broker.real:
        return None
    from pytest_queuey.sources.selection import choose
    from pytest_queuey.sources.server import SourceError

    lines = [f"queuey: brokers {', '.join(broker.id for broker in settings.broker.brokers)}"]
    for broker in settings.broker.real:
        try:
            lines.append(f"queuey: {broker.id} is {choose(settings, broker.version).what}")
        except SourceError as error:
            lines.append(f"queuey: {broker.id}: {error}")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use `queuey_broker` on each broker that was asked for, all of one broker together."""
    uses_server = "_queuey_asked_server" in metafunc.fixturenames
    asked = metafunc.config.stash[_SETTINGS].broker
    real = asked.real
    if "_queuey_asked_broker" not in metafunc.fixturenames:
        if uses_server and len(real) > 1:
            metafunc.parametrize(
                "_queuey_asked_server",
                [pytest.param(broker, id=broker.id) for broker in real],
                indirect=True,
                scope="session",
            )
        return
    skip_reason = _skipping(metafunc)
    # Where a test uses the server too, it is the one that its broker is on.
    names = ["_queuey_asked_broker", *(["_queuey_asked_server"] if uses_server else [])]
    on_server = {broker: broker if broker in real else next(iter(real), None) for broker in asked.brokers}
    metafunc.parametrize(
        names,
        [
            pytest.param(
                *(broker, on_server[broker])[: len(names)],
                id=broker.id,
                # One that the mark leaves out is skipped by name: a test that vanishes explains nothing.
                marks=[pytest.mark.skip(reason=reason)] if (reason := skip_reason(broker)) else [],
            )
            for broker in asked.brokers
        ],
        indirect=True,
        scope="session",
    )


def _skipping(metafunc: pytest.Metafunc) -> Callable[[AskedBroker], str | None]:
    """Return why a test is not for a broker, by its mark."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return lambda _: None
    said = f"{_MARK}({', '.join(map(repr, mark.args))})"
    reason = mark.kwargs.get("reason")
    try:
        check_mark(mark.args, mark.kwargs)
    except ValueError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.name}: {said}: {error}") from error
    text = f"only for {said}{f': {reason}' if reason else ''}"
    return lambda broker: None if any(broker.is_meant_by(word) for word in mark.args) else text


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
    real = node.config.stash[_SETTINGS].broker.real
    if real:
        node.workerinput[_WORKER_INPUT] = [
            (broker.version, _real_broker(node.config, broker.version).for_worker()) for broker in real
        ]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the real brokers that this process has started, and say where that is not to be had."""
    for broker in config.stash.get(_REAL_BROKERS, {}).values():
        if (left := broker.close()) is not None:
            sys.stderr.write(f"\nqueuey: {left}\n")


def _real_broker(config: pytest.Config, version: str | None) -> RealBroker:
    brokers = config.stash.setdefault(_REAL_BROKERS, {})
    if version not in brokers:
        from pytest_queuey.real_broker import RealBroker

        given = dict(getattr(config, "workerinput", {}).get(_WORKER_INPUT, ()))
        brokers[version] = RealBroker(config.stash[_SETTINGS], version, from_controller=given.get(version))
    return brokers[version]


def _ready_broker(config: pytest.Config, version: str | None) -> ReadyBroker:
    """Return a real broker that can be used; fails or skips the test where there is none."""
    from pytest_queuey.sources.server import SourceError

    try:
        return _real_broker(config, version).ready()
    except SourceError as error:
        reason = str(error)  # outside, or pytest prints every exception that led to it
    if config.stash[_SETTINGS].may_lack_a_real_broker:
        pytest.skip(reason)
    said = config.stash.setdefault(_SAID, set())
    first_line, _, more = reason.partition("\n")
    if more and reason in said:  # it may have many lines of a log, and there may be many tests
        reason = f"{first_line} ... (the rest is said by the first test that needed it)"
    said.add(reason)
    pytest.fail(reason, pytrace=False)


@pytest.fixture(scope="session")
def _queuey_asked_broker(request: pytest.FixtureRequest) -> AskedBroker:
    # Asked for at run time only, there is no parametrisation: then it is the first.
    return getattr(request, "param", request.config.stash[_SETTINGS].broker.brokers[0])


@pytest.fixture(scope="session")
def _queuey_asked_server(request: pytest.FixtureRequest) -> AskedBroker | None:
    return getattr(request, "param", next(iter(request.config.stash[_SETTINGS].broker.real), None))


@pytest.fixture(scope="session")
def queuey_broker_kind(_queuey_asked_broker: AskedBroker) -> str:
    """Say which kind of broker the test runs on, 'fake' or 'rabbitmq'; parametrised by --queuey-broker."""
    return _queuey_asked_broker.kind


@pytest.fixture(scope="session")
def queuey_rabbitmq_server(request: pytest.FixtureRequest, _queuey_asked_server: AskedBroker | None) -> ReadyBroker:
    """Give the real RabbitMQ of the run: started when first needed, ended with the run, one for all xdist workers.

    Where several versions were asked for, tests that use it run on each.
    """
    return _ready_broker(request.config, _queuey_asked_server.version if _queuey_asked_server else None)


@pytest.fixture
def queuey_broker(request: pytest.FixtureRequest, _queuey_asked_broker: AskedBroker) -> Iterator[BrokerUnderTest]:
    """Give the test an empty broker: in memory, or a virtual host of its own on a real RabbitMQ.

    The same on both: `.kind`, `.version`, `.url`, `.backend(options)`, `.name(queue)`, `.advance(seconds)`,
    `.queue(name)`, `.queues()`. Backends are closed when the test ends.
    """
    settings = request.config.stash[_SETTINGS]
    if _queuey_asked_broker.kind == "rabbitmq":
        from pytest_queuey.broker_under_test import RabbitMqUnderTest

        server = _ready_broker(request.config, _queuey_asked_broker.version)
        _skip_if_unmeant(request, server.version)
        with_faults = "queuey_faults" in request.fixturenames
        broker = RabbitMqUnderTest(server, settings, with_faults=with_faults)
        yield broker
        broker.close()
        return
    from pytest_queuey.broker_under_test import FakeUnderTest
    from pytest_queuey.failure_report import FailureReport
    from queuey_fake import FakeBroker

    version = _queuey_asked_broker.version or FAKE_VERSIONS[-1]
    fake = FakeBroker(version, wait_guard=settings.wait_guard)
    for mark in request.node.iter_markers(_EXPECT_LOSS):
        try:
            fake.journal.expect_loss(*mark.args, **mark.kwargs)
        except TypeError as error:
            pytest.fail(f"{_EXPECT_LOSS} takes reason= and queue=, both text: {error}", pytrace=False)
    report = FailureReport.of(request.config, settings)
    report.watch(request.node, fake)
    traces: Traces | None = request.config.stash.get(_TRACES, None)
    if traces is not None:
        traces.watch(request.node)
    yield FakeUnderTest(fake)
    if traces is not None:
        traces.keep(request.node, fake)
    report.end(request.node)


def _skip_if_unmeant(request: pytest.FixtureRequest, version: str) -> None:
    """Skip a test whose mark names other versions, where the version was not known before the broker ran."""
    mark = request.node.get_closest_marker(_MARK)
    running = AskedBroker("rabbitmq", version, version)
    if mark is not None and not any(running.is_meant_by(word) for word in mark.args):
        pytest.skip(f"only for {_MARK}({', '.join(map(repr, mark.args))}), and this is RabbitMQ {version}")


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
