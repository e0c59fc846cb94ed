"""The link: one I/O thread, the loop it runs, and the doors through which other threads reach it.

Owns the thread, pika's loop, the order of steps, wake-ups, the timer of the next deadline and the end of all of
them. Every round of the loop is at most one turn: the steps that wait, the events of one poll, what is due.
"""

from __future__ import annotations

import atexit
import enum
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from pika.adapters.select_connection import IOLoop

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core import real_time
from queuey_rabbitmq.core.errors import BackendError, DeadlineExceededError, ShutDownError
from queuey_rabbitmq.pika_link.connection import PikaConnection
from queuey_rabbitmq.pika_link.mailbox import PikaMailbox
from queuey_rabbitmq.pika_link.parameters import BrokerParameters, LinkSettings
from queuey_rabbitmq.pika_link.turns import Turns

T = TypeVar("T")

log = logging.getLogger("queuey_rabbitmq")

EXIT_TIMEOUT_MS = 2_000
"""How long the end of the interpreter waits for a link that was not closed."""
JOIN_GRACE_MS = 1_000
"""How much longer than its timeout `close` waits for the thread, which drops by then what still hangs."""
DROP_MS = 500
"""How long dropped connections may take to go; it is two rounds of the loop."""


class _State(enum.Enum):
    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"
    FORKED = "forked"


class PikaLink:
    """The port's Link over pika. Raises InvalidConfigError for settings that can never work."""

    def __init__(self, settings: LinkSettings) -> None:
        self._broker = BrokerParameters(settings)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = _State.NEW
        self._steps: list[Callable[[], object]] = []
        self._asleep = False
        self._loop: IOLoop = None
        self._turns: Turns
        self._driven: amqp.Driven
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._connections: list[PikaConnection] = []
        self._next_node: dict[str, int] = {}
        """Where a connection of that name begins to try: at the node behind the one that it was lost from."""
        self._timer: object | None = None
        self._timer_ms: int | None = None
        self._close_by_ms = 0
        self._lingers = False
        """Whether what is open may end before the link does: nobody has closed the session above it."""
        self._death: BaseException | None = None
        self._mailboxes: WeakSet[PikaMailbox[Any]] = WeakSet()

    # ------------------------------------------------------------------------------------------- any thread

    def attach(self, driven: amqp.Driven) -> None:
        """Name the session, and start the I/O thread."""
        self._refuse_fork()
        assert self._state is _State.NEW, "a link drives one session"
        self._driven = driven
        self._turns = Turns(driven)
        self._loop = IOLoop()
        # A daemon, so that a program which ends without closing ends; what it has said by then is sent at exit.
        thread = threading.Thread(target=self._work, name=f"queuey link {self._broker.address}", daemon=True)
        self._state = _State.RUNNING
        _open_links.add(self)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._state = _State.CLOSED
            _open_links.discard(self)
            self._loop.close()
            raise BackendError(f"the link to {self._broker.address} cannot start its I/O thread: {error}") from error
        self._thread = thread

    def now_ms(self) -> int:
        """Return the wall clock in ms since the epoch, as the application sees it."""
        return round(time.time() * 1000)

    def monotonic_ms(self) -> int:
        """Return the machine's monotonic clock in ms, frozen clocks or not."""
        return real_time.monotonic_ns() // 1_000_000

    def run(self, step: Callable[[], object]) -> None:
        """Run a step in a turn, soon; see the port."""
        with self._lock:
            if self._state is not _State.RUNNING:
                self._refuse()
            self._steps.append(step)
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._loop.add_callback_threadsafe(_nothing)

    def wait(self, future: amqp.Pending[T], deadline_ms: int) -> T:
        """Wait for a future; see the port."""
        self.check_may_wait()
        timeout_s = min(max(0, deadline_ms - self.monotonic_ms()) / 1000, threading.TIMEOUT_MAX)
        try:
            future.exception(timeout_s)
        except TimeoutError:
            raise DeadlineExceededError(
                f"the link to {self._broker.address} did not answer by the deadline: its I/O thread is held up"
            ) from None
        return future.result()

    def future(self) -> Future[Any]:
        """Return a new future."""
        return Future()

    def mailbox(self) -> PikaMailbox[Any]:
        """Return a new mailbox."""
        self._refuse_fork()
        mailbox: PikaMailbox[Any] = PikaMailbox(self.check_may_wait)
        self._mailboxes.add(mailbox)
        return mailbox

    def close(self, timeout_ms: int) -> None:
        """End the link: what is open is closed within the timeout, then dropped; see the port.

        Does nothing in a forked process: what is open belongs to the parent.
        """
        self.start_to_close(timeout_ms)
        if self._state is _State.FORKED or self._thread is None or threading.get_ident() == self._thread_id:
            return
        self._thread.join((max(0, timeout_ms) + JOIN_GRACE_MS) / 1000)
        if self._thread.is_alive():
            log.error("%s did not end in time: something blocks it; it is left behind", self._thread.name)

    def start_to_close(self, timeout_ms: int, *, lingers: bool = False) -> None:
        """Have the thread end the link as `close` does, without waiting for it.

        Where it `lingers`, what is open ends first, while there is time: what was handed over is sent and confirmed.
        """
        with self._lock:
            if self._state is _State.NEW:
                self._state = _State.CLOSED
            if self._state is _State.RUNNING:
                self._state = _State.CLOSING
                self._lingers = lingers
                self._close_by_ms = self.monotonic_ms() + timeout_ms
                self._loop.add_callback_threadsafe(_nothing)

    @property
    def is_running(self) -> bool:
        """Whether it was neither closed nor has died."""
        return self._state is _State.RUNNING

    def enter_fork(self) -> None:
        """Become the copy of a forked process, which has neither the thread nor a right to the sockets.

        The locks are new ones: whoever held one at the fork is not here to release it. Nothing of pika runs: its
        selector is shared with the parent, which would hear no more of a socket that is taken out of it here.
        """
        self._lock = threading.Lock()
        self._state = _State.FORKED
        for mailbox in self._mailboxes:
            mailbox.refuse(self._refuse_fork)

    def _refuse(self) -> None:
        self._refuse_fork()
        if self._state is _State.DEAD:
            raise BackendError(
                f"the link to {self._broker.address} has died ({self._death!r}); nothing was sent. "
                "Make a new backend; the log has the traceback"
            ) from self._death
        raise ShutDownError(f"the link to {self._broker.address} is {self._state.value}; nothing was sent")

    def _refuse_fork(self) -> None:
        if self._state is _State.FORKED:
            raise BackendError(
                f"the link to {self._broker.address} belongs to process {self._pid}, and this is its fork "
                f"{os.getpid()}: the thread and the sockets stayed with the parent. Make a backend in each process, "
                "after the fork"
            )

    def check_may_wait(self) -> None:
        """Raise BackendError on the I/O thread; see the port."""
        self._refuse_fork()
        if threading.get_ident() == self._thread_id:
            raise BackendError(
                "a call that waits for the broker was made on the link's I/O thread, probably in a callback of a "
                "future, where it would wait for itself. Use publish_nowait there, or hand the work to a thread"
            )

    # ---------------------------------------------------------------------------------------------- in turns

    def open(self, name: str, on_event: Callable[[amqp.Event], None]) -> PikaConnection:
        """Start to connect; see the port."""
        self._refuse_fork()
        connection = PikaConnection(
            self._loop,
            self._broker,
            name=name,
            first=self._next_node.get(name, 0),
            turns=self._turns,
            on_event=on_event,
            on_lost=self._forget,
        )
        self._connections.append(connection)
        return connection

    def resolve(self, future: amqp.Pending[T], result: T) -> None:
        """Give a future its result when the turn is over."""
        self._turns.settle(future, result, None)

    def fail(self, future: amqp.Pending[Any], error: BaseException) -> None:
        """Give a future its error when the turn is over."""
        self._turns.settle(future, None, error)

    def _forget(self, connection: PikaConnection) -> None:
        if connection.is_open:
            self._next_node[connection.name] = (connection.place + 1) % len(self._broker.nodes)
        if connection in self._connections:
            self._connections.remove(connection)

    # --------------------------------------------------------------------------------------- the I/O thread

    def _work(self) -> None:
        self._thread_id = threading.get_ident()
        death: BaseException | None = None
        try:
            self._loop.activate_poller()
            while self._state is _State.RUNNING and self._turns.failure is None:
                self._round()
            death = self._turns.failure
        except BaseException as error:
            log.critical("the link to %s dies of an error in its loop", self._broker.address, exc_info=error)
            death = error
        try:
            self._finish(death)
        finally:
            _open_links.discard(self)
            self._loop.close()

    def _round(self) -> None:
        """Wait for something to happen, and handle all that has, as one turn."""
        with self._lock:
            self._asleep = not self._steps and not self._turns.owes_a_turn
        if not self._asleep:
            self._loop.call_later(0, _nothing)
        try:
            self._loop.poll()
            self._loop.process_timeouts()
        except Exception as error:  # noqa: BLE001 -- looked into there, and raised again where it is not understood
            self._give_up_attempts(error)
        self._asleep = False
        if self._steps:
            self._run_steps()
        if self._timer_ms is not None and self.monotonic_ms() >= self._timer_ms:
            self._stop_timer()
            self._turns.step(self._on_timer)
        self._end_turn()

    def _give_up_attempts(self, error: Exception) -> None:
        """End the attempts to connect that an error in pika's loop may belong to; raise it where there are none.

        pika 1.4.4 lets a ValueError out of its loop when a peer resets a connection right after accepting it: between
        two of its steps the socket has lost its peer's name (`_AsyncStreamConnector.__init__`).
        """
        attempts = [connection for connection in self._connections if connection.is_connecting]
        if not attempts:
            raise error
        log.warning("connecting to %s: pika failed: %s", self._broker.address, error)
        for connection in attempts:
            connection.give_up(error)

    def _run_steps(self) -> None:
        with self._lock:
            steps, self._steps = self._steps, []
        for place, step in enumerate(steps):
            if self._turns.failure is not None:
                with self._lock:
                    self._steps[:0] = steps[place:]
                return
            self._turns.step(step)

    def _on_timer(self) -> None:
        due_ms = self._driven.next_deadline_ms()
        if due_ms is not None and due_ms <= self.monotonic_ms():
            self._driven.on_time()

    def _end_turn(self) -> None:
        turns = self._turns
        turns.end()
        for connection in self._connections:
            connection.flush()
        turns.complete_futures()
        if turns.failure is None:
            due_ms = self._driven.next_deadline_ms()
            if due_ms is not None and (self._timer_ms is None or due_ms < self._timer_ms):
                self._set_timer(due_ms)

    def _set_timer(self, due_ms: int) -> None:
        """Make the loop wake by the deadline; whether it is due is asked of our own clock, after every poll."""
        self._stop_timer()
        self._timer_ms = due_ms
        self._timer = self._loop.call_later(max(1, due_ms - self.monotonic_ms()) / 1000, _nothing)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._loop.remove_timeout(self._timer)
        self._timer = self._timer_ms = None

    def _finish(self, death: BaseException | None) -> None:
        """Run what was accepted, or abandon it; then end every connection, politely if there is time."""
        if death is None:
            self._run_steps()
            self._end_turn()
            if self._lingers:
                self._linger()
            death = self._turns.failure
        with self._lock:
            self._state = _State.CLOSED if death is None else _State.DEAD
            self._death = death
            accepted, self._steps = self._steps, []
        self._turns.abandon(death or ShutDownError(f"the link to {self._broker.address} is closed"), accepted)
        self._turns.complete_futures()
        if death is None:
            for connection in list(self._connections):
                connection.close()
            self._pump(self._close_by_ms)
        for connection in list(self._connections):
            connection.abort()
        self._pump(self.monotonic_ms() + DROP_MS)

    def _linger(self) -> None:
        """Go on until the session waits for nothing more, or there is just time left to leave."""
        until_ms = self._close_by_ms - DROP_MS
        self._loop.call_later(max(0, until_ms - self.monotonic_ms()) / 1000, _nothing)
        while self._turns.failure is None and self._driven.next_deadline_ms() is not None:
            if self.monotonic_ms() >= until_ms:
                return
            self._round()

    def _pump(self, until_ms: int) -> None:
        """Let the loop do its work until no connection is left, or time is up: soon, once pika has failed."""
        error: Exception | None = None
        while self._connections:
            left_ms = until_ms - self.monotonic_ms()
            if left_ms <= 0:
                return
            for connection in self._connections:
                connection.flush()
            self._loop.call_later(left_ms / 1000, _nothing)
            try:
                self._loop.poll()
                self._loop.process_timeouts()
            except Exception as failure:  # noqa: BLE001 -- whatever it is, what is left is to go all the same
                if error is None:
                    log.warning("closing the link to %s: pika failed: %r", self._broker.address, failure)
                    until_ms = min(until_ms, self.monotonic_ms() + DROP_MS)
                error = failure


def _nothing() -> None:
    """End a poll: that is all a wake-up does."""


_open_links: set[PikaLink] = set()


def _close_at_exit() -> None:
    """Send what the program has said before it ends without closing, acks above all."""
    links = _open_links.copy()
    give_up_ms = real_time.monotonic_ns() // 1_000_000 + EXIT_TIMEOUT_MS
    for link in links:
        link.start_to_close(EXIT_TIMEOUT_MS, lingers=True)
    for link in links:
        link.close(max(0, give_up_ms - link.monotonic_ms()))


atexit.register(_close_at_exit)


def _enter_fork() -> None:
    for link in _open_links:
        link.enter_fork()
    _open_links.clear()


if hasattr(os, "register_at_fork"):  # systems that do not fork do not have it
    os.register_at_fork(after_in_child=_enter_fork)
