"""Owns when pages are written: one for each test as it ends, in its own process, and the index at the end of the run.

It is a plugin of the run where `--queuey-trace` asks for pages. Each page's line of the index travels in its test's
report, so that tests that ran in workers of xdist are listed too, also where a worker is lost later.

A page that cannot be written or drawn is said at the end of the run, and changes nothing about its test.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_queuey.trace.folder import INDEX, opened, page_name, write
from pytest_queuey.trace.result import BAD, Result

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_queuey.trace.recording import Recording
    from queuey_fake import FakeBroker

_PROPERTY: Final = "queuey_trace"
_MISSING: Final = "queuey_trace_missing"
_SHOWN: Final = 3
"""How many of those that could not be written are named: mostly all fail for the same reason."""


def start(config: pytest.Config, folder: str) -> Traces:
    """Begin to write pages; raises UsageError where they cannot be written.

    A relative folder is one of where pytest was started, for workers of xdist too.
    """
    told = getattr(config, "workerinput", {}).get(_PROPERTY)
    path = Path(told) if told is not None else config.invocation_params.dir / folder
    try:
        opened(path)
    except OSError as error:
        raise pytest.UsageError(
            f"--queuey-trace (ini queuey_trace): no pages can be written to {path}: {error}"
        ) from error
    traces = Traces(config, path)
    config.pluginmanager.register(traces, "queuey-traces")
    return traces


class Traces:
    """The pages of one run, or of one worker's part of it."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._results: dict[pytest.Item, Result] = {}
        self._recordings: dict[pytest.Item, Recording | str] = {}
        """What is to be drawn, or why it cannot be."""
        self._entries: list[list[Any]] = []
        self._missing: list[str] = []
        """What could not be written, each with its reason."""

    def watch(self, item: pytest.Item) -> None:
        """Take note of what becomes of a test."""
        self._results[item] = Result(item.nodeid, "passed")

    def keep(self, item: pytest.Item, broker: FakeBroker) -> None:
        """Keep what happened on the test's broker, which is about to be closed; raises nothing."""
        from pytest_queuey.trace.recording import Recording

        try:
            self._recordings[item] = Recording.of(broker)
        except Exception as error:  # noqa: BLE001 -- the broker's losses are to be judged all the same
            self._recordings[item] = _reason(error)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write the page of a test that has ended."""
        report = yield
        if item in self._results:
            self._results[item] = self._with(self._results[item], report)
            if report.when == "teardown":
                recording, result = self._recordings.pop(item, None), self._results.pop(item)
                if recording is not None:
                    report.user_properties.append(self._write(result, recording))
        return report

    def _with(self, result: Result, report: pytest.TestReport) -> Result:
        """Return the result with what another phase of the test has come to."""
        status = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        outcome = status[0] if status is not None else report.outcome  # without pytest's terminal nobody says more
        if not outcome or result.outcome in BAD:
            return result
        return Result(result.test, outcome, report.longreprtext if outcome in BAD else "")

    def _write(self, result: Result, recording: Recording | str) -> tuple[str, Any]:
        """Write a page, and return what its test's report is to carry."""
        from pytest_queuey.trace.index import Entry
        from pytest_queuey.trace.page import page

        missing = f"the page of {result.test}"
        if isinstance(recording, str):
            return _MISSING, f"{missing}: {recording}"
        name = page_name(result.test)
        try:
            write(self._folder / name, page(result, recording))
            return _PROPERTY, list(Entry.of(result, recording, name))
        except Exception as error:  # noqa: BLE001 -- out of this hook it would end the whole run
            return _MISSING, f"{missing}: {_reason(error)}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist where pages go."""
        node.workerinput[_PROPERTY] = str(self._folder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of a page that was written, here or by a worker."""
        found: list[Any] = [value for name, value in report.user_properties if name == _PROPERTY]
        self._entries += found
        self._missing += [str(value) for name, value in report.user_properties if name == _MISSING]

    def pytest_sessionfinish(self) -> None:
        """Write the index, but for a worker of xdist, and for a run that runs no test."""
        if not hasattr(self._config, "workerinput") and not self._config.option.collectonly:
            from pytest_queuey.trace.index import Entry, index

            entries = [Entry(*entry) for entry in self._entries]
            try:
                write(self._folder / INDEX, index(entries))
            except OSError as error:
                self._missing.append(f"the index: {_reason(error)}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the pages are."""
        if self._config.option.collectonly:
            return
        pages = f"{len(self._entries):,} page{'' if len(self._entries) == 1 else 's'}"
        terminalreporter.write_sep("-", f"queuey: traces, {pages}: {self._folder / INDEX}")
        for what in self._missing[:_SHOWN]:
            terminalreporter.write_line(f"NOT WRITTEN: {what}", red=True)
        if len(self._missing) > _SHOWN:
            terminalreporter.write_line(f"NOT WRITTEN: {len(self._missing) - _SHOWN:,} more", red=True)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
