"""The broker that is tortured: a private server behind a proxy, and one thread that plays the faults of a seed."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_queuey.broker_node import BrokerNode
from pytest_queuey.faults.real_faults import RealFaults
from pytest_queuey.sources.local import LocalProgress, LocalServer
from pytest_queuey.sources.server import wait_until_ready
from tests.torture.fates import Fault

log = logging.getLogger("queuey_rabbitmq.torture")

SILENT_S = 4.0
"""A hang, or a stopped broker, that lasts longer than two heartbeats."""

ABSENT = ("stop", "kill", "restart")
"""Faults during which the broker does nothing."""


class TorturedBroker:
    """A private broker, and everything that is done to it."""

    def __init__(self, executable: Path) -> None:
        self._server = LocalServer.start(executable)
        self.version = self._ready()
        control = self._server.server.control()
        assert control is not None, "a private server has a way in"
        self.node = BrokerNode(control)
        self._evaluate = control.evaluate
        self.faults = RealFaults(self._server.server.url, self._stop_and_start)
        self.url = self.faults.url
        self.killed_at: list[float] = []
        """Instants of the wall clock right after it was killed."""
        self.stops: list[tuple[float, float]] = []
        """From when to when, by the wall clock, it was being shut down in good order."""
        self.absences: list[tuple[float, float]] = []
        """From when to when, by the wall clock, it was down or stood still."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.faults.close()
        self._server.close()

    def play(self, fault: Fault, queues: list[str]) -> None:
        """Do what a fault is; when it returns, the broker is as good as before."""
        seconds = fault.seconds
        faults = self.faults
        deeds: dict[str, Callable[[], object]] = {
            "cut": faults.drop_connections,
            "cut before a confirm": lambda: faults.drop_connections(after_publishes=1 + int(10 * seconds)),
            "cut after a confirm": lambda: faults.drop_connections(
                after_publishes=1 + int(10 * seconds), before_confirm=False
            ),
            "refuse": lambda: (faults.refuse_connections(for_=seconds), faults.drop_connections()),
            "hang": lambda: self._hang(seconds * SILENT_S),
            "late": lambda: self._late(seconds),
            "nack": lambda: faults.nack_next(1 + int(3 * seconds)),
            "return": faults.return_next,
            "cancel consumers": lambda: [self._cancel_consumers(queue) for queue in queues],
            "alarm": lambda: self._alarm(seconds),
            "stop": lambda: self._stop(seconds * SILENT_S),
            "kill": self._kill,
            "restart": self._restart,
        }
        began = time.time()
        deeds[fault.kind]()
        if fault.kind in ABSENT:
            self.absences.append((began, time.time()))

    def connections(self) -> int:
        """Return how many connections the broker has."""
        return int(self._evaluate("integer_to_list(length(rabbit_networking:connections()))"))

    def _ready(self) -> str:
        assert self._server.server.folder is not None
        return wait_until_ready(self._server.server, LocalProgress(Path(self._server.server.folder)))

    def _hang(self, seconds: float) -> None:
        with self.faults.hang():
            time.sleep(seconds)

    def _late(self, seconds: float) -> None:
        self.faults.delay(seconds / 5)
        time.sleep(seconds)
        self.faults.delay(0)

    def _cancel_consumers(self, queue: str) -> None:
        with contextlib.suppress(TimeoutError):  # their connection was cut meanwhile
            self.faults.cancel_consumers(queue)

    def _alarm(self, seconds: float) -> None:
        self._evaluate("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []}), <<>>")
        time.sleep(seconds)
        self._evaluate("rabbit_alarm:clear_alarm({resource_limit, memory, node()}), <<>>")

    def _stop(self, seconds: float) -> None:
        self._server.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._server.send_signal(signal.SIGCONT)

    def _kill(self) -> None:
        self._server.kill()
        self.killed_at.append(time.time())
        self._server.start_again()
        self._ready()

    def _stop_and_start(self) -> None:
        began = time.time()
        self._evaluate('rabbit:stop(), <<"stopped">>')
        self.stops.append((began, time.time()))
        self._evaluate('ok = rabbit:start(), <<"started">>')

    def _restart(self) -> None:
        self.faults.restart()
        self._ready()


class Tormentor:
    """The thread that plays faults, until it is told to end; then the broker is whole again."""

    def __init__(self, broker: TorturedBroker, faults: Iterator[Fault], queues: list[str]) -> None:
        self._broker = broker
        self._faults = faults
        self._queues = queues
        self._ends = threading.Event()
        self.played: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tormentor", daemon=True)
        self._thread.start()

    def end(self, within: float) -> None:
        """End it, and every fault."""
        self._ends.set()
        self._thread.join(within)
        assert not self._thread.is_alive(), "a fault does not end"
        self._broker.faults.clear()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for fault in self._faults:
                if self._ends.wait(fault.pause):
                    return
                log.info("fault begins: %s, %.2f s", fault.kind, fault.seconds)
                self._broker.play(fault, self._queues)
                log.info("fault is over: %s", fault.kind)
                self.played[fault.kind] += 1
        except BaseException as error:  # noqa: BLE001 -- `end` raises it
            self.error = error
