"""Owns what a test run says of the brokers in memory: a section in each failing test's report, and lost messages.

It becomes a plugin of the run when the first such broker is made, so that it costs nothing where none is. Refuses to
know what a loss is: the broker's journal does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from queuey_fake import real_time

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_queuey.options import Settings
    from queuey_fake import FakeBroker

LOSSES: Final = pytest.StashKey[list[tuple[str, str]]]()
"""The losses that are reported at the end of the run, each with the test that they came up in."""
WORKER_OUTPUT: Final = "queuey_losses"
_NAME: Final = "queuey-failure-report"
_SECTION: Final = "queuey: the broker in memory"
_LAST_EVENTS: Final = 20
_EXPECT: Final = (
    "Expect them with queuey_broker.journal.expect_loss(reason=..., queue=...), or see the options --queuey-losses "
    "and --queuey-foreign-losses."
)


class FailureReport:
    """What the run says, and to whom."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._brokers: dict[pytest.Item, FakeBroker] = {}
        self._failed: set[pytest.Item] = set()

    @classmethod
    def of(cls, config: pytest.Config, settings: Settings) -> FailureReport:
        """Return the one of the run."""
        report = config.pluginmanager.get_plugin(_NAME)
        if report is None:
            report = cls(config, settings)
            config.pluginmanager.register(report, _NAME)
        assert isinstance(report, cls), "nobody else registers by that name"
        return report

    def watch(self, item: pytest.Item, broker: FakeBroker) -> None:
        """Describe this broker where the test fails."""
        self._brokers[item] = broker

    def end(self, item: pytest.Item) -> None:
        """Close the test's broker, and judge what it has lost; fails the test, unless it has failed already."""
        broker = self._brokers.pop(item)
        has_failed = item in self._failed
        self._failed.discard(item)
        all_of_them = broker.journal.unexpected_losses(of_others=True)
        broker.close()
        failures = []
        for losses, mode, whose in (
            ([loss for loss in all_of_them if loss.is_ours], self._settings.losses, ""),
            ([loss for loss in all_of_them if not loss.is_ours], self._settings.foreign_losses, " of other clients"),
        ):
            if not losses or mode == "ignore":
                continue
            text = f"RabbitMQ would have dropped messages{whose} without a trace:\n{broker.journal.explain(losses)}"
            if mode == "fail" and not has_failed:
                failures.append(text)
            else:
                self._config.stash.setdefault(LOSSES, []).append((item.nodeid, text))
        if failures:
            pytest.fail("\n".join([*failures, _EXPECT]), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Describe the test's broker where the test has failed."""
        report = yield
        broker = self._brokers.get(item)
        if broker is not None and call.excinfo is not None:
            self._failed.add(item)
            if report.failed:
                try:
                    report.sections.append((_SECTION, describe(broker)))
                except Exception as error:  # noqa: BLE001 -- out of this hook it would end the whole run
                    report.sections.append((_SECTION, f"cannot be described: {type(error).__name__}: {error}"))
        return report

    def pytest_sessionfinish(self) -> None:
        """Hand losses to the controller, in a worker of xdist."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[WORKER_OUTPUT] = self._config.stash.get(LOSSES, [])


def describe(broker: FakeBroker) -> str:
    """Return what a broker holds, what is due, and what happened last, for people."""
    losses = broker.journal.unexpected_losses(of_others=True)
    events = broker.journal.last_events()[-_LAST_EVENTS:]
    return "\n".join(
        [
            f"{broker!r}",
            _whose_time(broker),
            "held and due:",
            broker.explain(),
            "last events:",
            *(f"  {event}" for event in events or ["nothing was published"]),
            *(["lost:"] if losses else []),
            *(f"  {loss}" for loss in losses[:_LAST_EVENTS]),
            *([f"  ... and {len(losses) - _LAST_EVENTS} more"] if len(losses) > _LAST_EVENTS else []),
        ]
    )


def _whose_time(broker: FakeBroker) -> str:
    library = broker.manual_clock.library
    whose = f"what {library} shows" if library else "moved by queuey_clock and by waiting for the broker"
    return f"time: virtual, {whose}; the machine's is {datetime.fromtimestamp(real_time.now_ms() // 1000, UTC)}"


def summarise(terminal: Any, losses: list[tuple[str, str]]) -> None:
    """Write the losses of a run to its terminal."""
    if losses:
        terminal.section("queuey: lost messages", sep="-")
        for test, text in losses:
            terminal.write_line(f"{test}: {text}")
        terminal.write_line(_EXPECT)
