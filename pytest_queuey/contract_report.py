"""Owns what the end of a run says of the contract: which promises were kept, which were not, which were not looked at.

Each test of the contract carries its chapter in its report, so that what ran in workers of xdist is there too.
Refuses to know what is promised: the chapters say that themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_queuey.asked import AskedBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HAS_RUN: Final = pytest.StashKey[bool]()
"""Whether any test of the contract has run, in this process or in a worker of xdist."""
_PROPERTY: Final = "queuey_contract"
_WIDTH: Final = 24


def note_test(item: pytest.Item, missing: Sequence[str]) -> None:
    """Note that a test of the contract runs, or which capabilities it waits for in vain."""
    assert isinstance(item, pytest.Function), "the contract's tests are functions"
    item.config.stash[HAS_RUN] = True
    if hasattr(item.config, "workeroutput"):
        item.config.workeroutput[_PROPERTY] = True
    cls, name = item.cls, item.originalname
    chapter = next((parent for parent in cls.__mro__ if name in vars(parent)), cls)
    promise = (chapter.__doc__ or "").partition("\n")[0]
    item.user_properties.append((_PROPERTY, [_contract_of(item), chapter.__name__, promise, list(missing)]))


def _contract_of(item: pytest.Function) -> str:
    """Return the name of the contract and what it runs on."""
    backend = _named_backend(item.config) if item.cls.__name__ == "TestBackend" else None
    broker = item.callspec.params.get("_queuey_asked_broker") if hasattr(item, "callspec") else None
    where = broker.id if isinstance(broker, AskedBroker) else None
    return " ".join([item.cls.__name__, *(f"[{what}]" for what in (backend, where) if what)])


def _named_backend(config: pytest.Config) -> str | None:
    return config.getoption("queuey_backend") or config.getini("queuey_backend") or None


@dataclass(slots=True)
class _Chapter:
    """What became of one chapter."""

    promise: str
    kept: int = 0
    broken: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """What is broken and was expected to be."""
    not_looked_at: Counter[str] = field(default_factory=Counter)


def summarise_contract(terminal: Any, config: pytest.Config) -> None:
    """Write what became of the contract to a run's terminal; nothing where no test of it ran."""
    if not config.stash.get(HAS_RUN, False):
        return
    contracts: dict[str, dict[str, _Chapter]] = {}
    seen: set[tuple[str, str]] = set()
    for outcome in ("failed", "error", "skipped", "xfailed", "xpassed", "passed"):
        for report in terminal.stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                # A test has two reports where it passes and what its fixtures do afterwards fails: it is broken once.
                if name == _PROPERTY and (key := (value[0], report.nodeid)) not in seen:
                    seen.add(key)
                    _add(contracts, value, report, outcome)
    for contract, chapters in sorted(contracts.items()):
        _write(terminal, contract, chapters)


def _add(contracts: dict[str, dict[str, _Chapter]], value: Sequence[Any], report: Any, outcome: str) -> None:
    contract, name, promise, missing = value
    chapter = contracts.setdefault(contract, {}).setdefault(name, _Chapter(promise))
    if outcome in ("failed", "error", "xfailed"):
        sentence = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        (chapter.known if outcome == "xfailed" else chapter.broken).append(sentence)
    elif outcome == "skipped":
        chapter.not_looked_at["not declared: " + ", ".join(missing) if missing else "skipped"] += 1
    else:
        chapter.kept += 1


def _write(terminal: Any, contract: str, chapters: dict[str, _Chapter]) -> None:
    terminal.section(f"queuey: the contract, {contract}", sep="-")
    for name, chapter in sorted(chapters.items()):
        terminal.write_line(f"{name:{_WIDTH}} {_counts([chapter])}")
        for sentence in chapter.broken:
            terminal.write_line(f"{'':{_WIDTH}} BROKEN: {sentence}", red=True)
        for sentence in chapter.known:
            terminal.write_line(f"{'':{_WIDTH}} broken, as expected: {sentence}", yellow=True)
        if chapter.broken or chapter.known:
            terminal.write_line(f"{'':{_WIDTH}} the promise: {chapter.promise}")
    terminal.write_line(f"{'all chapters':{_WIDTH}} {_counts(chapters.values())}")


def _counts(chapters: Iterable[_Chapter]) -> str:
    chapters = list(chapters)
    passed_over = sum((chapter.not_looked_at for chapter in chapters), Counter[str]())
    broken = sum(len(chapter.broken) for chapter in chapters)
    known = sum(len(chapter.known) for chapter in chapters)
    return ", ".join(
        [
            f"{sum(chapter.kept for chapter in chapters)} kept",
            *([f"{broken} broken"] if broken else []),
            *([f"{known} broken as expected"] if known else []),
            *(f"{count} left out ({why})" for why, count in passed_over.items()),
        ]
    )


def leave_to_its_backend(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the classes in `pytest_queuey.test_contract` keep the one for a named backend, or the one for RabbitMQ."""
    unwanted = "TestRabbitMqBackend" if _named_backend(config) else "TestBackend"
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.cls is not None
        and item.cls.__name__ == unwanted
        and item.cls.__module__.endswith("test_contract")
        and item.path.parent.name == "pytest_queuey"
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
