"""FakeBroker: what a test holds. A RabbitMQ in memory with a clock that can be moved.

Puts together the model, the engine that drives it, and the doors to it; has no rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from queuey_fake.clock import Clock, ManualClock, duration_ms
from queuey_fake.engine import WAIT_GUARD_S, Engine
from queuey_fake.faults import Faults
from queuey_fake.journal import Journal
from queuey_fake.model.broker import Broker
from queuey_fake.model.snapshots import ConnectionSnapshot, Pending
from queuey_fake.wording import explain
from queuey_rabbitmq import topology

if TYPE_CHECKING:
    from queuey_fake.inspection import BindingView, ExchangeView, QueueView
    from queuey_fake.wire.server import Server
    from queuey_rabbitmq import RabbitMqBackend, RabbitMqOptions


class FakeBroker:
    """A RabbitMQ in memory: of the given version, permitting the given deprecated features, living by the clock.

    `version` is "3.10", "4.0" or "4.3"; `permit` names deprecated features as rabbitmq.conf does
    ("transient_nonexcl_queues"). Without a clock it has a ManualClock that starts at the present. The thread that
    makes it is the one whose waits move virtual time.
    """

    def __init__(
        self,
        version: str = "4.3",
        *,
        permit: Iterable[str] = (),
        clock: Clock | None = None,
        wait_guard: float = WAIT_GUARD_S,
    ) -> None:
        if clock is not None and not callable(getattr(clock, "now_ms", None)):
            raise TypeError(f"FakeBroker: expected a clock, such as ManualClock() or SystemClock(), got {clock!r}")
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.version = version
        self.journal = Journal(marks=frozenset({topology.HEADER_ATTEMPT, topology.HEADER_DEFERRALS}))
        """What became of each message."""
        model = Broker(version=version, permit=permit, now_ms=self.clock.now_ms())
        model.observe(self.journal)
        self._engine = Engine(model, self.clock, wait_guard_s=wait_guard)
        self.faults = Faults(self._engine)
        """What can be made to fail."""
        self._backends: list[RabbitMqBackend] = []
        self._server: Server | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        now = datetime.fromtimestamp(self.now_ms() / 1000, UTC).isoformat()
        return f"<FakeBroker of RabbitMQ {self.version} at {now}>"

    def now_ms(self) -> int:
        """Return the broker's time, in ms since the epoch."""
        return self.clock.now_ms()

    def backend(self, options: RabbitMqOptions | None = None) -> RabbitMqBackend:
        """Connect a backend: the one that runs in production, over the in-process link.

        It is closed with the broker at the latest. Raises RuntimeError where that is closed already.
        """
        if self._is_closed:
            raise RuntimeError("this broker is closed: no backend connects to it any more")
        from queuey_fake.link import InProcessLink
        from queuey_rabbitmq.backend import RabbitMqBackend
        from queuey_rabbitmq.options import RabbitMqOptions
        from queuey_rabbitmq.placement import check_kind

        options = RabbitMqOptions() if options is None else options
        check_kind(options, RabbitMqOptions, "connecting a backend")
        made: list[RabbitMqBackend] = []
        link = InProcessLink(
            self._engine,
            self.journal,
            connection_name=options.connection_name,
            connect_timeout_ms=options.connect_timeout_ms,
            heartbeat_s=options.heartbeat,
            explain_wait=self.explain,
            on_close=lambda: self._backends.remove(made[0]) if made else None,
        )
        backend = RabbitMqBackend(link, options)
        made.append(backend)
        self._backends.append(backend)
        return backend

    @property
    def url(self) -> str:
        """Return the AMQP URL of this broker on 127.0.0.1; the port opens when it is first asked for.

        Raises RuntimeError where a closed broker is asked for it first.
        """
        if self._server is None:
            if self._is_closed:
                raise RuntimeError("this broker is closed: it opens no port any more")
            from queuey_fake.wire.server import Server

            self._server = Server(self._engine)
        return self._server.url

    def advance(self, duration: timedelta | float) -> None:
        """Move time on (timedelta or seconds); everything due happens, each thing at its own instant.

        Raises ValueError on a clock that moves by itself, and for a negative duration.
        """
        clock = self.manual_clock
        ms = duration_ms(duration)
        if ms < 0:
            raise ValueError(f"time advances forwards, not by {duration!r}")
        clock.move_to_ms(clock.now_ms() + ms)

    @property
    def manual_clock(self) -> ManualClock:
        """Return the clock, which can be moved; raises ValueError where it moves by itself."""
        if not isinstance(self.clock, ManualClock):
            raise ValueError("this broker lives by a clock that moves by itself: it cannot be advanced")  # noqa: TRY004 -- the value of the clock is wrong for this, not the type of an argument
        return self.clock

    def is_another_thread_at_work(self) -> bool:
        """Tell whether another thread takes what has come, or holds a delivery that it has not settled."""
        return self._engine.is_anybody_at_work()

    def deliveries_taken(self) -> int:
        """Return how many deliveries applications have taken from this broker's backends so far."""
        return self._engine.deliveries_taken

    def waiting_threads(self) -> set[Thread]:
        """Return the threads that wait for something to come from this broker, or for its time to move."""
        return self._engine.waiting_threads()

    def wait_for_other_threads(self) -> None:
        """Wait until none is, in any thread; raises WaitGuardError when that takes longer than the guard."""
        self._engine.wait_for_others()

    def queue(self, name: str) -> QueueView | None:
        """Return what a queue is like now, or None where there is none; renews no lease."""
        from queuey_fake.inspection import queue_view

        checked_name(name)
        snapshot = self._engine.look(lambda: self._engine.model.queue_snapshot(name))
        return None if snapshot is None else queue_view(snapshot)

    def queues(self) -> list[QueueView]:
        """Return what every queue is like now, by name; renews no lease."""
        from queuey_fake.inspection import queue_view

        return [queue_view(snapshot) for snapshot in self._engine.look(self._engine.model.queue_snapshots)]

    def exchanges(self) -> list[ExchangeView]:
        """Return what every exchange is like now, by name, those that RabbitMQ declares itself included."""
        from queuey_fake.inspection import exchange_view

        return [exchange_view(snapshot) for snapshot in self._engine.look(self._engine.model.exchange_snapshots)]

    def bindings(self) -> list[BindingView]:
        """Return all bindings; those that the default exchange has to every queue are left out."""
        from queuey_fake.inspection import binding_view

        return [binding_view(snapshot) for snapshot in self._engine.look(self._engine.model.binding_snapshots)]

    def connections(self) -> list[ConnectionSnapshot]:
        """Return every open connection, through whichever door, in the order in which they were opened."""
        connections: list[ConnectionSnapshot] = self._engine.look(self._engine.model.connection_snapshots)
        return connections

    def pending(self) -> list[Pending]:
        """Return what is due and when, soonest first: messages that expire, queues that expire."""
        pending: list[Pending] = self._engine.look(self._engine.model.pending)
        return pending

    def explain(self) -> str:
        """Return in lines of text which queues hold messages, what is due and when, and why something is not.

        Where time has gone back since, as when a freeze has ended, it is told as of the last thing that happened.
        """
        model = self._engine.model
        queues, pending = self._engine.look(lambda: (model.queue_snapshots(), model.pending()))
        return explain(queues, pending, max(self.now_ms(), self.journal.last_at_ms or 0))

    def close(self) -> None:
        """Close every backend of this broker, and its port; what it held can still be looked at. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self.faults.clear()
        for backend in list(self._backends):
            backend.close()
        if self._server is not None:
            self._server.close()
        self._engine.close()


def checked_name(name: str) -> str:
    """Return a queue's name; raises TypeError for anything else, which no queue would be found by."""
    if not isinstance(name, str):
        raise TypeError(f"a queue's name is text, got {name!r}")
    return name
