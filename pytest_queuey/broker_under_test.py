"""Owns what a test holds as `queuey_broker`: one face for the broker in memory and for a real RabbitMQ.

What a real broker cannot tell or do without being disturbed is an error that says so, never a guess. Refuses to know
where a real broker comes from (`real_broker`).
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pytest_queuey.pace import FakePace, Pace, RealPace, in_seconds
from queuey_fake import frozen_time
from queuey_fake.fake_broker import checked_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_queuey.faults import Faults
    from pytest_queuey.faults.real_faults import RealFaults
    from pytest_queuey.options import Settings
    from pytest_queuey.own_vhost import OwnVhost
    from pytest_queuey.real_broker import ReadyBroker
    from pytest_queuey.shared_vhost import SharedVhost
    from queuey_fake import FakeBroker
    from queuey_fake.journal import Journal
    from queuey_rabbitmq import RabbitMqBackend, RabbitMqOptions


class QueueLook(Protocol):
    """One queue as it is at this moment; looking at it renews no lease."""

    @property
    def name(self) -> str:
        """The queue's name."""

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""

    @property
    def unacked(self) -> int:
        """Messages that are with a consumer, unsettled."""

    @property
    def consumers(self) -> int:
        """Consumers of the queue."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it was declared with."""


class NotOnThisBrokerError(Exception):
    """A real broker cannot do or tell this, or not in the way it was obtained; the message says what would help."""


class BrokerUnderTest(Protocol):
    """An empty broker for one test."""

    @property
    def kind(self) -> str:
        """The kind of broker: fake or rabbitmq."""

    @property
    def version(self) -> str:
        """The version of RabbitMQ that it is, or imitates."""

    @property
    def url(self) -> str:
        """The AMQP URL on which any client reaches it."""

    @property
    def fake(self) -> FakeBroker | None:
        """The FakeBroker itself, for what only it can do; None on a real RabbitMQ."""

    @property
    def pace(self) -> Pace:
        """How time passes on it."""

    @property
    def journal(self) -> Journal | NoJournal:
        """What became of each message; a real broker keeps none, and takes note of expected losses only."""

    def backend(self, options: RabbitMqOptions | None = None) -> RabbitMqBackend:
        """Return a new backend on it; closed when the test ends, if not before."""

    def name(self, name: str) -> str:
        """Return a name for a queue that no other test meets: the same where the broker is this test's alone."""

    def now_ms(self) -> int:
        """Return its clock, in ms since the epoch."""

    def advance(self, duration: timedelta | float) -> None:
        """Let a duration (seconds or timedelta) pass; everything due in it has happened when this returns."""

    def queue(self, name: str) -> QueueLook | None:
        """Return one queue as it is now, or None where there is none; renews no lease."""

    def queues(self) -> Sequence[QueueLook]:
        """Return every queue as it is now; renews no lease."""

    def pending(self) -> Sequence[Any]:
        """Return what is due and when."""

    @property
    def faults(self) -> Faults:
        """What can be made to fail; on a real broker for tests that ask for the fixture queuey_faults."""

    def close(self) -> None:
        """Close every backend that was handed out, and let the broker go. Idempotent."""


class NoJournal:
    """What stands for the journal on a real broker, where nobody keeps one."""

    def expect_loss(self, *, reason: str | None = None, queue: str | None = None) -> None:
        """Do nothing: nobody looks for losses here, so a test that expects some runs on both kinds of broker."""

    def __getattr__(self, name: str) -> Any:
        """Say that there is no journal."""
        raise NotOnThisBrokerError(f"journal.{name}: RabbitMQ keeps no journal of messages; only the fake can say")


class FakeUnderTest:
    """The broker in memory, made for one test."""

    kind = "fake"

    def __init__(self, broker: FakeBroker) -> None:
        self.fake = broker

    @cached_property
    def pace(self) -> Pace:
        """How it gets through time; raises ValueError where its clock moves by itself."""
        return FakePace(self.fake)

    @property
    def version(self) -> str:
        """Return the version of RabbitMQ that it imitates."""
        return self.fake.version

    @property
    def url(self) -> str:
        """Return the AMQP URL of the broker in memory; the port opens when it is first asked for."""
        return self.fake.url

    @property
    def journal(self) -> Journal:
        """Return its journal."""
        return self.fake.journal

    def backend(self, options: RabbitMqOptions | None = None) -> RabbitMqBackend:
        """Return a new backend on it, over the link in memory; closed when the test ends."""
        return self.fake.backend(options)

    def name(self, name: str) -> str:
        """Return the name itself: the broker is this test's alone."""
        return checked_name(name)

    def now_ms(self) -> int:
        """Return its clock, in ms since the epoch."""
        return self.fake.now_ms()

    def advance(self, duration: timedelta | float) -> None:
        """Move its clock on; everything due happens, each thing at its own instant."""
        self.fake.advance(duration)

    def queue(self, name: str) -> QueueLook | None:
        """Return one queue as it is now, or None where there is none."""
        return self.fake.queue(name)

    def queues(self) -> Sequence[QueueLook]:
        """Return every queue as it is now."""
        return self.fake.queues()

    def pending(self) -> Sequence[Any]:
        """Return what is due and when."""
        return self.fake.pending()

    @property
    def faults(self) -> Faults:
        """Return what can be made to fail."""
        return self.fake.faults

    def close(self) -> None:
        """Close every backend, then the broker."""
        self.fake.close()


class RabbitMqUnderTest:
    """A real RabbitMQ: a virtual host of this test alone, or where none can be made, names of this test alone."""

    kind = "rabbitmq"
    fake = None
    journal = NoJournal()

    def __init__(self, broker: ReadyBroker, settings: Settings, *, with_faults: bool = False) -> None:
        """Take a virtual host; `with_faults` puts a proxy before it, which everything of the test leads through."""
        _let_connections_live()
        self.version = broker.version
        self.pace = RealPace(settings.max_real_wait)
        self._closing = contextlib.ExitStack()
        self._vhost: OwnVhost | SharedVhost
        if broker.vhosts is not None:
            self._vhost = broker.vhosts.take()
        else:
            from pytest_queuey.shared_vhost import SharedVhost

            self._vhost = SharedVhost(broker.server.url)
        self._closing.callback(self._vhost.close)
        self.url = self._vhost.url
        self._faults: RealFaults | None = None
        if with_faults:
            from pytest_queuey.faults.real_faults import RealFaults

            self._faults = RealFaults(self._vhost.url, broker.restart or _restart_nothing)
            self._closing.callback(self._faults.close)
            self.url = self._faults.url

    @property
    def faults(self) -> Faults:
        """Return what can be made to fail; raises NotOnThisBrokerError where the test has not asked for it before."""
        if self._faults is None:
            raise NotOnThisBrokerError(
                "on a real broker, faults are made by a proxy that all connections lead through from the start: let "
                "the test ask for the fixture queuey_faults"
            )
        return self._faults

    def backend(self, options: RabbitMqOptions | None = None) -> RabbitMqBackend:
        """Return a new backend on it, over AMQP; closed when the test ends."""
        from queuey_rabbitmq import RabbitMqOptions

        backend = self._vhost.backend(RabbitMqOptions() if options is None else options, self.url)
        self._closing.callback(backend.close)
        return backend

    def name(self, name: str) -> str:
        """Return a name for a queue that no other test meets."""
        return self._vhost.name(checked_name(name))

    def now_ms(self) -> int:
        """Return the clock of this machine, in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def advance(self, duration: timedelta | float) -> None:
        """Wait, really, and tick frozen time along; fails the test where that is longer than queuey_max_real_wait."""
        seconds = in_seconds(duration)
        if seconds < 0:
            raise ValueError(f"time advances forwards, not by {duration!r}")
        self.pace.check(seconds)
        if seconds > 0:
            self.pace.wait(seconds, lag=True)

    def queue(self, name: str) -> QueueLook | None:
        """Return one queue as it is now, or None where there is none."""
        return self._vhost.queue(checked_name(name))

    def queues(self) -> Sequence[QueueLook]:
        """Return every queue as it is now; raises NotOnThisBrokerError in a shared virtual host."""
        return self._vhost.queues()

    def pending(self) -> Sequence[Any]:
        """Raise NotOnThisBrokerError: RabbitMQ tells nobody when its messages are due."""
        raise NotOnThisBrokerError("RabbitMQ does not tell when its messages are due; only the fake can say")

    def close(self) -> None:
        """Close every backend, then let the virtual host or the queues go."""
        if self._faults is not None:
            self._faults.clear()
        self._closing.close()


def _restart_nothing() -> None:
    raise NotOnThisBrokerError(
        "this broker is not this test process's alone, so it is not restarted: that is done with the private server "
        "(--queuey-rabbitmq-source=local) of a run without xdist"
    )


def _let_connections_live() -> None:
    """Bridge freezegun before it is used: a connection dies of a freeze that was not told of pika."""
    with contextlib.suppress(ImportError):
        import freezegun.api  # noqa: F401 -- loading it is the point: who imports it later finds it bridged

    frozen_time.bridge()
