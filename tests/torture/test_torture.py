"""Torture: eight threads at work on a broker that is cut off, hung, alarmed and killed, and nothing may be lost.

    tox -e torture                                                                  ten minutes
    QUEUEY_TORTURE_SECONDS=60 QUEUEY_TORTURE_SEED=7 tox -e torture

The seed is printed; it decides what is published, what becomes of each job, and which faults come when. A minute where
nothing is said. What queuey logs meanwhile is in a file, which is named where the test fails, QUEUEY_TORTURE_LOG or one
of pytest's own.

What RabbitMQ itself loses as it is killed or shut down is counted apart; `record` says what that is. Everything else
that was reported as published has to be found.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_queuey.options import read_settings
from pytest_queuey.sources.local import find_server
from pytest_queuey.sources.server import SourceError
from tests.torture.fates import faults_of
from tests.torture.load import CLOSE_TIMEOUT_S, OPERATION_TIMEOUT_S, Load, Torture
from tests.torture.record import Record
from tests.torture.trouble import Tormentor, TorturedBroker

SECONDS = float(os.environ.get("QUEUEY_TORTURE_SECONDS", "60"))
SEED = int(os.environ.get("QUEUEY_TORTURE_SEED") or random.SystemRandom().randrange(1_000_000))
LOG = Path(os.environ["QUEUEY_TORTURE_LOG"]) if "QUEUEY_TORTURE_LOG" in os.environ else None
WARM_AFTER = 0.4
"""The part of the run after which memory is first measured."""
GROWS_BY_MB = 24
"""What the process may have grown by since: buffers of what waits, and arenas that malloc does not give back."""
FAULT_ENDS_S = 60
DRAINED_S = 60
SLACK_S = 10
"""How late a call may be on a machine whose cores are busy."""


def resident_mb() -> float:
    """Return the memory of this process that is in use."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_files() -> list[str]:
    """Return what this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # the listing itself
    return found


def comes_true(condition: Callable[[], bool], within: float) -> bool:
    """Wait for a condition; tell whether it came true in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Send to a file what is logged: pytest keeps in memory whatever reaches the loggers that a test begins with."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(threadName)s %(name)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger("queuey_rabbitmq"), logging.getLogger("pika")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO if logger.name != "pika" else logging.ERROR)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    handler.close()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[TorturedBroker]:
    """A broker of this test's own: it is killed."""
    try:
        executable = find_server(read_settings(request.config).rabbitmq_server)
    except SourceError as error:
        pytest.skip(f"only a server that this test starts can be killed: {error}")
    with TorturedBroker(executable) as broker:
        yield broker


@pytest.mark.rabbitmq
def test_nothing_is_lost_early_stuck_or_left_over(
    broker: TorturedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_file = LOG or tmp_path / "queuey.log"
    with logged_to(log_file):
        torture(broker, log_file, capsys)


def torture(broker: TorturedBroker, log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Do it, and check what must hold."""
    record = Record(SEED)
    threads_before = set(threading.enumerate())
    files_before = open_files()
    load = Load(broker.url, SEED, record)
    tormentor = Tormentor(broker, faults_of(SEED), [Torture.worked.name, Torture.taken.name])
    began = time.monotonic()
    grown_mb, is_idle, dead = 0.0, False, set[int]()
    try:
        time.sleep(SECONDS * WARM_AFTER)
        warm_mb = resident_mb()
        time.sleep(SECONDS * (1 - WARM_AFTER))
        grown_mb = resident_mb() - warm_mb
        tormentor.end(FAULT_ENDS_S)
        load.stop_publishing(OPERATION_TIMEOUT_S + SLACK_S)
        is_idle = comes_true(lambda: _only_declared_and_empty(broker), DRAINED_S)
        dead = load.dead()
    finally:
        load.close(CLOSE_TIMEOUT_S + SLACK_S)
        gone = [*record.unfinished(), *record.missing(dead)]
        unwritten = [
            number for number in gone if record.came_back_before(number, broker.killed_at, absences=broker.absences)
        ]
        stopped = [number for number in set(gone) - set(unwritten) if record.came_back_in(number, broker.stops)]
        with capsys.disabled():
            print(  # noqa: T201  for whoever runs it
                f"\ntorture of RabbitMQ {broker.version}: seed {SEED}, {time.monotonic() - began:.0f} s, {record}, "
                f"{load.worker.settle_failures} settle failures, {len(unwritten)} lost by RabbitMQ as it was killed "
                f"and {len(stopped)} as it was shut down, "
                f"memory {grown_mb:+.1f} MB, {tormentor.played.total()} faults: {dict(tormentor.played)}"
            )
    lost = sorted(set(gone) - set(unwritten) - set(stopped))
    assert record.unexpected == []
    assert record.jobs() > 0
    assert lost == [], f"lost or stuck: {[record.story(number) for number in lost[:20]]}; see {log_file}"
    assert record.early == []
    assert is_idle, f"left over: {broker.node.queues('/')}"
    assert record.longest_call < OPERATION_TIMEOUT_S + SLACK_S
    assert grown_mb < GROWS_BY_MB
    assert comes_true(lambda: broker.connections() == 0, SLACK_S)
    assert comes_true(lambda: set(threading.enumerate()) <= threads_before, SLACK_S), threading.enumerate()
    assert sorted(open_files()) == sorted(files_before)


def _only_declared_and_empty(broker: TorturedBroker) -> bool:
    """Tell whether every hold queue has gone, and nothing is in a work queue."""
    queues = {queue.name: queue for queue in broker.node.queues("/")}
    declared = {name + suffix for name in (Torture.worked.name, Torture.taken.name) for suffix in ("", ".dead")}
    waiting = sum(queues[name].ready + queues[name].unacked for name in queues if not name.endswith(".dead"))
    return set(queues) == declared and waiting == 0
