"""The broker: its virtual hosts, its connections, and its time.

Owns the way in (`connect`), the firing of timers, and the mail that queues and channels post to each other, which is
delivered in a loop after each operation and never by recursion. Everything happens in the caller's thread and at an
instant that the caller gives: the broker reads no clock and opens no socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from queuey_fake.model import errors, snapshots
from queuey_fake.model.connection import CLIENT_CAPABILITIES, Connection
from queuey_fake.model.names import Names
from queuey_fake.model.observer import Observer
from queuey_fake.model.publish_faults import PublishFaults
from queuey_fake.model.snapshots import BindingSnapshot, ConnectionSnapshot, ExchangeSnapshot, Pending, QueueSnapshot
from queuey_fake.model.timers import Timers
from queuey_fake.model.versions import version_named
from queuey_fake.model.vhost import VHost


class Broker:
    """One RabbitMQ in memory. `connections_with_output` is for a front end to look at and to clear in place."""

    def __init__(self, *, version: str = "4.3", permit: Iterable[str] = (), now_ms: int = 0) -> None:
        self.version = version_named(version, permit)
        self.names = Names()
        self.mail: deque[tuple[Callable[[Any], object], Any]] = deque()
        self.connections: dict[Connection, None] = {}
        self.connections_with_output: dict[Connection, None] = {}
        self.vhosts: dict[str, VHost] = {}
        self.alarm: str | None = None
        """The resource alarm that keeps publishes out, in the words of connection.blocked."""
        self.cuts = 0
        """How often all connections were lost at once; a front end ends those with it that are not open yet."""
        self.publish_faults: PublishFaults | None = None
        self.timers = Timers(now_ms)
        self.message_numbers = count(1)
        self._connection_number = 0
        self.add_vhost("/")

    # ------------------------------------------------------------------------------------------------ clients

    def add_vhost(self, name: str) -> VHost:
        """Make a virtual host with the exchanges that every one has."""
        vhost = VHost(name, timers=self.timers, version=self.version, names=self.names, post=self.post)
        self.vhosts[name] = vhost
        return vhost

    def connect(
        self,
        *,
        user: str = "guest",
        vhost: str = "/",
        name: str | None = None,
        capabilities: frozenset[str] = CLIENT_CAPABILITIES,
    ) -> Connection:
        """Open a connection, under the name that its client gives it.

        Raises ConnectionException for a virtual host that there is not.
        """
        if vhost not in self.vhosts:
            raise errors.vhost_not_found(vhost)
        self._connection_number += 1
        connection = Connection(
            self, self.vhosts[vhost], number=self._connection_number, user=user, name=name, capabilities=capabilities
        )
        self.connections[connection] = None
        return connection

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that has ended; its outbox stays with whoever holds it."""
        self.connections.pop(connection, None)

    def lose_connections(self) -> None:
        """End every connection without a word, as when the network is gone."""
        self.cuts += 1
        for connection in list(self.connections):
            connection.lose()

    def set_alarm(self, reason: str | None) -> None:
        """Raise a resource alarm, or end it with None."""
        self.alarm = reason
        if reason is None:
            for connection in self.connections:
                connection.unblock()

    def observe(self, observer: Observer | None) -> None:
        """Report what happens to messages from now on, in all virtual hosts; None ends that."""
        for vhost in self.vhosts.values():
            vhost.observer = observer

    # ------------------------------------------------------------------------------------------------ mail

    def post(self, receive: Callable[[Any], object], letter: Any) -> None:
        """Have the call made after the operation at work is done."""
        self.mail.append((receive, letter))

    def deliver_mail(self) -> None:
        """Make the posted calls in order, those they post in turn included."""
        mail = self.mail
        while mail:
            receive, letter = mail.popleft()
            receive(letter)

    # ------------------------------------------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        """The current instant."""
        return self.timers.now_ms

    def next_due_ms(self) -> int | None:
        """Return the instant at which the next timer is due, None where none is set."""
        return self.timers.next_due_ms

    def run_next(self, until_ms: int) -> bool:
        """Fire the timers of the next due instant, if it is not after `until_ms`; return whether there was one."""
        timer = self.timers.take_due(until_ms)
        if timer is None:
            return False
        instant_ms = self.timers.now_ms
        while timer is not None:
            timer.action()
            self.deliver_mail()
            timer = self.timers.take_due(instant_ms)
        return True

    def run_due(self, until_ms: int) -> None:
        """Fire all timers due by then, each at its own instant, and be at `until_ms`, which may be earlier.

        Going back undoes nothing: what is due stays due when it is, and what is set from then on counts from there,
        as where the clock of a broker's machine is set back (rabbit_amqqueue_process:calculate_msg_expiry).
        """
        while (timer := self.timers.take_due(until_ms)) is not None:
            timer.action()
            self.deliver_mail()
        self.timers.now_ms = until_ms

    # ------------------------------------------------------------------------------------------------ inspection

    def queue_snapshot(self, name: str, *, vhost: str = "/") -> QueueSnapshot | None:
        """Return what a queue is like now, None where there is none."""
        queue = self.vhosts[vhost].queues.get(name)
        return None if queue is None else snapshots.queue_snapshot(queue, vhost)

    def queue_snapshots(self) -> list[QueueSnapshot]:
        """Return what every queue is like now, by virtual host and name."""
        return [
            snapshots.queue_snapshot(queue, vhost.name)
            for vhost in self.vhosts.values()
            for _, queue in sorted(vhost.queues.items())
        ]

    def exchange_snapshots(self) -> list[ExchangeSnapshot]:
        """Return what every exchange is like now, by virtual host and name."""
        return [
            snapshots.exchange_snapshot(exchange, vhost.name)
            for vhost in self.vhosts.values()
            for _, exchange in sorted(vhost.exchanges.items())
        ]

    def binding_snapshots(self) -> list[BindingSnapshot]:
        """Return all bindings, by virtual host and source."""
        return [binding for vhost in self.vhosts.values() for binding in snapshots.binding_snapshots(vhost)]

    def connection_snapshots(self) -> list[ConnectionSnapshot]:
        """Return what every open connection is like now."""
        return [snapshots.connection_snapshot(connection) for connection in self.connections]

    def pending(self) -> list[Pending]:
        """Return what is due and when, soonest first; what waits for ever comes last."""
        found = [
            pending
            for vhost in self.vhosts.values()
            for queue in vhost.queues.values()
            for pending in snapshots.pending_in(queue, vhost.name)
        ]
        return sorted(found, key=lambda each: (each.due_at_ms is None, each.due_at_ms or 0))
