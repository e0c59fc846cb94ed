"""Owns what a backend may be without, and how a test of the contract says that it needs it.

A backend declares what it can do; what needs more is skipped and named in the report. Refuses to guess: a backend
that declares nothing is held to everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

CAPABILITIES: Final[Mapping[str, str]] = {
    "priorities": "urgent jobs go first",
    "holds": "jobs can wait: delayed publishes, retries and deferrals",
    "expiry": "a job that waits longer than its queue's message_ttl is dropped",
    "dead_letters": "jobs that failed for good are kept with their reason, and `dead_letters` takes them out",
    "raw_bodies": "`put_raw` puts on a queue what no backend would",
    "headers": "`Envelope.headers` travel with a job",
    "faults": "`refusing_publishes` makes publishes fail on demand",
    "reconnection": "`drop_connections` cuts its connections, and it comes back",
}
"""Everything that a backend may be without, and what it means to have it."""

EVERYTHING: Final = frozenset(CAPABILITIES)
MARK: Final = "queuey_needs"


def needs(*capabilities: str) -> Callable[[T], T]:
    """Decorate a test, or a chapter for all tests of its own, with the capabilities that it needs."""
    check_known(capabilities, "needs()")
    mark = pytest.mark.queuey_needs(*capabilities)

    def decorate(what: T) -> T:
        if not isinstance(what, type):
            mark(what)
            return what
        # A mark on the class would be one on every test of whichever contract has this chapter among its parents.
        for name, member in vars(what).items():
            if name.startswith("test_"):
                mark(member)
        return what

    return decorate


def missing_for(item: pytest.Item, declared: Collection[str]) -> list[str]:
    """Return the capabilities that a test needs and a backend has not declared, in the order of the table."""
    needed = {capability for mark in item.iter_markers(MARK) for capability in mark.args}
    return [capability for capability in CAPABILITIES if capability in needed and capability not in declared]


def check_known(capabilities: Collection[str], where: str) -> None:
    """Raise ValueError that names the capabilities which there are, where others are named."""
    if not isinstance(capabilities, Collection):
        raise ValueError(f"{where}: expected names of capabilities, got {capabilities!r}")  # noqa: TRY004 -- as below
    unknown = sorted({capabilities} if isinstance(capabilities, str) else set(capabilities) - EVERYTHING)
    if unknown:
        raise ValueError(f"{where}: there is no capability {', '.join(unknown)}; there are {', '.join(CAPABILITIES)}")
