"""What drives a fake broker: one lock around the model, turns, time, and threads that wait.

Every use of the model is a turn: the model is caught up with the clock, something is done, and what the model has to
say is handed to the front ends (in-process connections, sockets) until nothing more follows. Futures are completed
after the turn, without the lock, so no code of a user runs under it, but a ReconnectPolicy's and a log handler's.

Who waits. The driving thread, the one that made the broker, moves virtual time while it waits, from one due instant
to the next. Any other thread blocks until something happens; a guard of real seconds turns a wait that was forgotten
into an error. Before the driving thread moves time it lets others finish at the instant that it is: those that have
something to take, and those that have taken a delivery and not settled it, under the same guard. On a clock that moves
by itself every wait is a real one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Protocol, TypeVar

from queuey_fake import real_time
from queuey_fake.clock import MS_PER_SECOND, Clock, ManualClock
from queuey_fake.in_hand import is_at_work
from queuey_fake.model.broker import Broker
from queuey_fake.model.connection import Connection
from queuey_fake.traffic import Traffic

T = TypeVar("T")

WAIT_GUARD_S = 10.0
"""Real seconds after which a thread that waits in virtual time gives up."""


TAKES_WITHIN_S = 0.5
"""Real seconds that a thread has to take from a consumer that it opened, before it is no longer waited for."""

LOOK_EVERY_S = 0.02
"""How often a thread that waits in virtual time looks whether time was moved without anybody being told."""


class Owner(Protocol):
    """The other end of a connection to the model. Under the lock."""

    def take_output(self, connection: Connection) -> None:
        """Take what the model has to say on a connection."""

    def drop(self, connection: Connection) -> None:
        """End a connection without a word: it is lost."""


class FrontEnd(Protocol):
    """Someone with connections to the model: a session's link, or the server of the AMQP port."""

    def take_in(self) -> None:
        """Let what clients have sent already take effect, waiting for nobody. Without the lock."""

    def end_of_turn(self) -> None:
        """Do what is left at the end of a turn; may use the model once more. Under the lock."""

    def next_deadline_ms(self) -> int | None:
        """Return when, in ms of `Engine.elapsed_ms`, the front end itself has something due. Under the lock."""

    def on_time(self) -> None:
        """Do what is due. Under the lock."""

    def threads_with_deliveries(self) -> Iterator[threading.Thread]:
        """Yield the threads, but for the driving one, that hold a delivery they have not settled. Under the lock."""

    def mailboxes_to_empty(self) -> Iterator[Mailbox]:
        """Yield those with deliveries that another thread is about to take. Under the lock."""


class Pending(Protocol):
    """What ends when a turn is over: a `concurrent.futures.Future`, or something lighter."""

    def set_running_or_notify_cancel(self) -> bool:
        """Let it be cancelled no more; tell whether it has not been."""

    def set_result(self, result: Any, /) -> None:
        """End it."""

    def set_exception(self, exception: BaseException, /) -> None:
        """End it with an error."""


class Mailbox(Protocol):
    """Where deliveries wait for a thread to take them."""

    is_heeded: bool
    """Whether time waits for its thread."""


class WaitsForever(Exception):  # noqa: N818 -- says what it is
    """A wait without a deadline for which nothing is ready and nothing is due."""


class WaitGuardError(Exception):
    """A thread waited for longer than the guard, in real seconds; the message says for whom."""


class BlockingInCallbackError(Exception):
    """A blocking call was made from a future's callback."""


class Engine:
    """Runs turns on a model, and moves it through time."""

    def __init__(self, model: Broker, clock: Clock, *, wait_guard_s: float = WAIT_GUARD_S) -> None:
        self.model = model
        self.clock = clock
        self.wait_guard_s = wait_guard_s
        self.driving_thread = get_ident()
        self.lock = threading.Lock()
        """Held in each turn."""
        self._happened = threading.Condition(self.lock)
        self._waiting = 0
        self._has_company = False
        """Whether another thread than the driving one has ever had to do with this broker."""
        self.deliveries_taken = 0
        """How many deliveries applications have taken."""
        self._blocked: dict[threading.Thread, _Wait] = {}
        """Threads that wait, and for what."""
        self._owners: dict[Connection, Owner] = {}
        self._front_ends: list[FrontEnd] = []
        self._completions: deque[tuple[Pending, Any, BaseException | None]] = deque()
        self._completing_elsewhere = 0
        self._own = threading.local()
        self._elapsed_ms = 0
        self.traffic = Traffic(self.elapsed_ms)
        self._last_ms = clock.now_ms()
        self._leave_clock = clock.join(self)

    # ------------------------------------------------------------------------------------------- turns

    def run(self, step: Callable[[], object]) -> None:
        """Run a step in a turn, and complete the futures that it ended."""
        if get_ident() != self.driving_thread:
            self._has_company = True
        with self.lock:
            self._catch_up()
            step()
            self._settle_down()
            completions = self._take_completions() if self._completions else None
        if completions is not None:
            self._complete(completions)

    def look(self, read: Callable[[], T]) -> T:
        """Read something of the model, caught up with the clock; nothing may be changed."""
        answer: list[T] = []
        self.run(lambda: answer.append(read()))
        return answer[0]

    def add(self, front_end: FrontEnd) -> None:
        """Let a front end take part in turns and time."""
        self._front_ends.append(front_end)

    def remove(self, front_end: FrontEnd) -> None:
        """Let a front end take part no more."""
        if front_end in self._front_ends:
            self._front_ends.remove(front_end)

    def own(self, connection: Connection, owner: Owner) -> None:
        """Name the other end of a connection. In a turn."""
        self._owners[connection] = owner

    def disown(self, connection: Connection) -> None:
        """Forget a connection; what the model still says on it is dropped. In a turn."""
        self._owners.pop(connection, None)

    def complete(self, future: Pending, result: Any = None, error: BaseException | None = None) -> None:
        """End a future when the turn is over. In a turn."""
        self._completions.append((future, result, error))

    def close(self) -> None:
        """Take no part in the clock any more, and wake whoever waits."""
        self._leave_clock()
        with self.lock:
            self._happened.notify_all()

    def _settle_down(self) -> None:
        """Hand on what the model says until nothing more follows."""
        with_output, owners = self.model.connections_with_output, self._owners
        while True:
            while with_output:
                talking = list(with_output)
                with_output.clear()
                for connection in talking:
                    owner = owners.get(connection)
                    if owner is None:
                        connection.outbox.clear()
                        continue
                    owner.take_output(connection)
                    if connection.is_lost:
                        owner.drop(connection)
            for front_end in self._front_ends:
                front_end.end_of_turn()
            if not with_output and (self.traffic.is_calm or not self.traffic.let_arrive()):
                break
        if self._waiting:
            self._happened.notify_all()

    def _take_completions(self) -> deque[tuple[Pending, Any, BaseException | None]]:
        taken, self._completions = self._completions, deque()
        self._completing_elsewhere += 1
        return taken

    def _complete(self, completions: deque[tuple[Pending, Any, BaseException | None]]) -> None:
        """End futures in order. A turn that a callback starts leaves its own to the loop that is running already."""
        mine: deque[Any] | None = getattr(self._own, "completions", None)
        try:
            if mine is None:
                self._own.completions = completions
                _end_all(completions)
            else:
                mine.extend(completions)
                completions.clear()
        finally:
            if mine is None:
                self._own.completions = None
            with self.lock:
                # Where a callback has raised what a Future lets out (pytest.fail), the next turn ends the others.
                if completions:
                    self._completions.extendleft(reversed(completions))
                self._completing_elsewhere -= 1
                if self._waiting:
                    self._happened.notify_all()

    # -------------------------------------------------------------------------------------------- time

    def elapsed_ms(self) -> int:
        """Return how far time has moved forwards since the engine was made; going back does not count."""
        if not self.clock.is_virtual:
            return int(real_time.monotonic_s() * MS_PER_SECOND)
        return self._elapsed_ms

    def next_due_ms(self) -> int | None:
        """Return the next instant, in ms since the epoch, at which the model or a front end has something due."""
        with self.lock:
            return self._next_due_ms()

    def take_in(self) -> None:
        """Let what clients have sent already take effect."""
        for front_end in list(self._front_ends):
            front_end.take_in()

    def before_move(self) -> None:
        """Let what clients have sent already take effect, and other threads finish; raises WaitGuardError."""
        self.take_in()
        self.let_others_work()

    def clock_moved(self) -> None:
        """Let everything that is due happen."""
        with self.lock:
            if not self._catch_up():
                self._look_at_deadlines()  # those too that came to be due at this very instant
            self._settle_down()
            completions = self._take_completions()
        self._complete(completions)

    def _next_due_ms(self) -> int | None:
        due_ms = self.model.timers.next_due_ms
        for front_end in self._front_ends:
            if (deadline_ms := front_end.next_deadline_ms()) is not None:
                due_ms = _earlier(due_ms, self._last_ms + max(0, deadline_ms - self.elapsed_ms()))
        if not self.traffic.is_calm and (arrives_in_ms := self.traffic.next_due_in_ms()) is not None:
            due_ms = _earlier(due_ms, self._last_ms + arrives_in_ms)
        return due_ms

    def _catch_up(self) -> bool:
        """Let what is due happen; tell whether time had moved, or anything was due."""
        now_ms = self.clock.now_ms()
        if now_ms == self._last_ms and ((due_ms := self.model.timers.next_due_ms) is None or due_ms > now_ms):
            return False
        if self.clock.is_virtual:
            self._pass_what_is_due_before(now_ms)
        self._be_at(now_ms)
        return True

    def _pass_what_is_due_before(self, now_ms: int) -> None:
        """Give each thing its own instant, where a library that shows time has moved it past them in one jump."""
        while self._last_ms < now_ms and (due_ms := self._next_due_ms()) is not None and due_ms < now_ms:
            self._be_at(max(due_ms, self._last_ms))
            self._settle_down()

    def _be_at(self, now_ms: int) -> None:
        """Let what is due at an instant happen, where nothing is due before."""
        elapsed_ms = self._elapsed_ms + max(0, now_ms - self._last_ms)
        if self._blocked:
            self._end_waits(elapsed_ms)
        self._elapsed_ms, self._last_ms = elapsed_ms, now_ms
        while self.model.run_next(now_ms):
            if self.model.connections_with_output or not self.traffic.is_calm:
                self._settle_down()
        self.model.run_due(now_ms)
        self._look_at_deadlines()

    def _end_waits(self, elapsed_ms: int) -> None:
        """End the waits whose deadlines are passed over: what comes only then comes too late for them."""
        if self._completions or self._completing_elsewhere:
            return  # what they wait for may be among those
        for wait in self._blocked.values():
            if wait.deadline_ms is not None and wait.deadline_ms < elapsed_ms and not wait.ready():
                wait.is_over = True

    def _look_at_deadlines(self) -> None:
        for front_end in list(self._front_ends):
            front_end.on_time()

    # ------------------------------------------------------------------------------------------- waits

    def check_may_wait(self) -> None:
        """Raise BlockingInCallbackError in a callback of a future."""
        if getattr(self._own, "completions", None) is not None:
            raise BlockingInCallbackError

    def wait(
        self, ready: Callable[[], bool], timeout_ms: int | None, *, then: Callable[[], object] | None = None
    ) -> bool:
        """Wait until `ready`, in virtual time where the clock is virtual; tell whether it is.

        `then` is called at that moment, under the lock, before any other thread finds it ready. Raises WaitsForever,
        WaitGuardError or BlockingInCallbackError where waiting makes no sense.
        """
        if self._is_ready(ready, then):
            return True
        self.check_may_wait()
        if not self.clock.is_virtual:
            return self._wait_really(ready, timeout_ms, then)
        deadline_ms = None if timeout_ms is None else self.elapsed_ms() + timeout_ms
        if self.is_driving_thread():
            return self._drive(ready, deadline_ms, then)
        return self._block(ready, deadline_ms, then)

    def is_driving_thread(self) -> bool:
        """Tell whether the calling thread is the one that moves time."""
        if get_ident() == self.driving_thread:
            return True
        self._has_company = True
        return False

    def let_others_work(self) -> bool:
        """Wait, as the driving thread, for others that are at work at this instant; tell whether there were any.

        Raises WaitGuardError when one of them takes longer than the guard.
        """
        if not self.is_driving_thread() or getattr(self._own, "completions", None) is not None:
            return False
        return self.wait_for_others()

    def wait_for_others(self) -> bool:
        """Wait for other threads that are at work at this instant; see `let_others_work`."""
        began_s: float | None = None
        while True:
            with self.lock:
                busy, full = self._who_is_at_work(), self._full_mailboxes()
                if busy is None and not full:
                    return began_s is not None
                now_s = real_time.monotonic_s()
                if began_s is None:
                    began_s = now_s
                elif busy is not None and now_s - began_s >= self.wait_guard_s:
                    raise WaitGuardError(
                        f"time does not move on while {busy}: waited {self.wait_guard_s:g} real seconds for that"
                    )
                elif busy is None and now_s - began_s >= TAKES_WITHIN_S:
                    for mailbox in full:
                        mailbox.is_heeded = False
                self._sleep(LOOK_EVERY_S)

    def is_anybody_at_work(self) -> bool:
        """Tell whether the driving thread would have to wait for others before it moves time."""
        with self.lock:
            return self._who_is_at_work() is not None or bool(self._full_mailboxes())

    def waiting_threads(self) -> set[threading.Thread]:
        """Return the threads that wait for something to come, or for time to move."""
        with self.lock:
            return set(self._blocked)

    def _who_is_at_work(self) -> str | None:
        if not self._has_company:
            return None
        if self._completing_elsewhere:
            return "another thread ends futures"
        for thread, wait in self._blocked.items():
            if wait.has_ended(self._elapsed_ms):
                return f"thread '{thread.name}' takes what it has waited for"
        for front_end in self._front_ends:
            for thread in front_end.threads_with_deliveries():
                # Who waits for something that has not come can settle nothing before time moves on.
                if thread not in self._blocked and is_at_work(thread):
                    return f"thread '{thread.name}' holds a delivery that it has not settled"
        return None

    def _full_mailboxes(self) -> list[Mailbox]:
        if not self._has_company:
            return []
        return [mailbox for front_end in self._front_ends for mailbox in front_end.mailboxes_to_empty()]

    def _is_ready(self, ready: Callable[[], bool], then: Callable[[], object] | None) -> bool:
        if not ready():
            return False
        if then is not None:
            with self.lock:
                if not ready():
                    return False
                then()
        return True

    def _drive(self, ready: Callable[[], bool], deadline_ms: int | None, then: Callable[[], object] | None) -> bool:
        clock = self.clock
        assert isinstance(clock, ManualClock), "only a manual clock is virtual"
        while not self._is_ready(ready, then):
            clock.before_move()
            if self._is_ready(ready, then):
                return True
            due_ms = clock.next_due_ms()
            target_ms = None if deadline_ms is None else self._last_ms + deadline_ms - self._elapsed_ms
            if due_ms is None and target_ms is None:
                raise WaitsForever
            if target_ms is None or (due_ms is not None and due_ms <= target_ms):
                assert due_ms is not None, "either something is due or there is a deadline"
                clock.stop_at(max(due_ms, clock.now_ms()))
            else:
                clock.stop_at(max(target_ms, clock.now_ms()))
                return self._is_ready(ready, then)
        return True

    def _block(self, ready: Callable[[], bool], deadline_ms: int | None, then: Callable[[], object] | None) -> bool:
        guard_s = real_time.monotonic_s() + self.wait_guard_s
        me, wait = threading.current_thread(), _Wait(ready, deadline_ms)
        with self.lock:
            self._blocked[me] = wait
        try:
            while True:
                with self.lock:
                    if wait.has_ended(self._elapsed_ms):
                        if wait.is_over or not ready():
                            return False
                        if then is not None:
                            then()
                        return True
                    if real_time.monotonic_s() >= guard_s:
                        raise WaitGuardError(
                            f"waited {self.wait_guard_s:g} real seconds while virtual time stood still: nobody moved it"
                        )
                    self._sleep(LOOK_EVERY_S)
                if self.clock.now_ms() != self._last_ms:
                    self.clock_moved()
        finally:
            with self.lock:
                del self._blocked[me]

    def _wait_really(
        self, ready: Callable[[], bool], timeout_ms: int | None, then: Callable[[], object] | None
    ) -> bool:
        end = None if timeout_ms is None else real_time.monotonic_s() + timeout_ms / MS_PER_SECOND
        while not self._is_ready(ready, then):
            due_ms = self.next_due_ms()
            naps = [] if due_ms is None else [(due_ms - self.clock.now_ms()) / MS_PER_SECOND]
            if end is not None:
                naps.append(end - real_time.monotonic_s())
                if naps[-1] <= 0:
                    # A turn that was going on may have brought it: clients of the port are answered amid their turn.
                    return self._is_ready(ready, then)
            with self.lock:
                if not ready():
                    self._sleep(max(0.0, min(naps, default=self.wait_guard_s)))
            self.clock_moved()
        return True

    def _sleep(self, seconds: float) -> None:
        self._waiting += 1
        try:
            self._happened.wait(seconds)
        finally:
            self._waiting -= 1


class _Wait:
    """What a thread waits for."""

    __slots__ = ("deadline_ms", "is_over", "ready")

    def __init__(self, ready: Callable[[], bool], deadline_ms: int | None) -> None:
        self.ready = ready
        self.deadline_ms = deadline_ms
        self.is_over = False
        """Whether its deadline was passed over before it was ready."""

    def has_ended(self, elapsed_ms: int) -> bool:
        """Tell whether the thread need not wait any longer."""
        return self.is_over or self.ready() or (self.deadline_ms is not None and elapsed_ms >= self.deadline_ms)


def _end_all(completions: deque[tuple[Pending, Any, BaseException | None]]) -> None:
    while completions:
        future, result, error = completions.popleft()
        if future.set_running_or_notify_cancel():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _earlier(due_ms: int | None, other_ms: int) -> int:
    return other_ms if due_ms is None else min(due_ms, other_ms)
