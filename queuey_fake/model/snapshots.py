"""What the broker holds, for people and tests to look at: frozen values that disturb nothing.

Owns these values and how they are taken. Taking one renews no lease, moves no time and changes no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuey_fake.model.dead_letter import delivered_properties
from queuey_fake.model.fields import Table
from queuey_fake.model.properties import Properties

if TYPE_CHECKING:
    from queuey_fake.model.connection import Connection
    from queuey_fake.model.exchanges import Exchange
    from queuey_fake.model.message import QueuedMessage
    from queuey_fake.model.queue import Queue
    from queuey_fake.model.vhost import VHost

MESSAGE_EXPIRES = "message expires"
QUEUE_EXPIRES = "queue expires"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSnapshot:
    """One message in a queue. `expires_at_ms` is its own deadline, which it may outlive behind another."""

    body: bytes
    properties: Properties
    exchange: str
    routing_key: str
    redelivered: bool
    expires_at_ms: int | None
    is_unacked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """One queue. `messages` are the ready ones in the order in which they go, then the unacknowledged ones."""

    name: str
    vhost: str
    type: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table
    ready: int
    unacked: int
    consumers: int
    expires_at_ms: int | None
    messages: tuple[MessageSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSnapshot:
    """One exchange."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSnapshot:
    """One binding; those that the default exchange has to every queue are left out."""

    vhost: str
    source: str
    destination_type: str  # "queue" or "exchange"
    destination: str
    routing_key: str
    arguments: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """One open connection, and the consumers on its channels as (channel, consumer tag, queue).

    `number` counts connections; `name` is what the client calls it (connection_name), None where it does not.
    """

    number: int
    name: str | None
    user: str
    vhost: str
    channels: tuple[int, ...]
    unacked: int
    consumers: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Something that is due in a queue.

    `what` is "message expires" or "queue expires". `count` is how many messages are concerned: those that expire
    together, or those that are lost with the queue. `held_back` is how many messages wait behind the head past the
    deadline of their own, for only the head of a queue expires. `due_at_ms` is None where the head never expires by
    itself; `count` is then all messages with a deadline, which wait for somebody to take the head.
    """

    vhost: str
    queue: str
    due_at_ms: int | None
    count: int
    what: str
    held_back: int = 0

    def __str__(self) -> str:
        """Say it in one line."""
        when = "never by itself" if self.due_at_ms is None else f"at {self.due_at_ms} ms"
        line = f"{self.queue!r}: {self.what} {when} ({self.count} messages)"
        if self.held_back:
            line += f"; {self.held_back} of its messages have a sooner deadline and wait behind the head"
        return line


def queue_snapshot(queue: Queue, vhost: str) -> QueueSnapshot:
    """Take what the queue is like now."""
    properties = queue.identity.properties
    unacked = queue.unacked()
    ready = [_message(queued, is_unacked=False) for queued in queue.ready]
    return QueueSnapshot(
        name=queue.name,
        vhost=vhost,
        type=queue.settings.queue_type,
        durable=properties.durable,
        exclusive=properties.exclusive,
        auto_delete=properties.auto_delete,
        arguments=properties.arguments,
        ready=len(ready),
        unacked=len(unacked),
        consumers=queue.consumers.count,
        expires_at_ms=_lease_end_ms(queue),
        messages=(*ready, *(_message(queued, is_unacked=True) for queued in unacked)),
    )


def _message(queued: QueuedMessage, *, is_unacked: bool) -> MessageSnapshot:
    message = queued.message
    return MessageSnapshot(
        body=message.body,
        properties=delivered_properties(message),
        exchange=message.exchange,
        routing_key=message.routing_key,
        redelivered=queued.redelivered,
        expires_at_ms=queued.deadline_ms,
        is_unacked=is_unacked,
    )


def _lease_end_ms(queue: Queue) -> int | None:
    if queue.lease_timer is None or queue.consumers.count:
        return None
    return queue.lease_timer.due_ms


def exchange_snapshot(exchange: Exchange, vhost: str) -> ExchangeSnapshot:
    """Take what the exchange is like now."""
    return ExchangeSnapshot(
        name=exchange.name,
        vhost=vhost,
        type=exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )


def binding_snapshots(vhost: VHost) -> list[BindingSnapshot]:
    """Take all bindings of the virtual host, by source."""
    return [
        BindingSnapshot(
            vhost=vhost.name,
            source=binding.source,
            destination_type=binding.destination.kind,
            destination=binding.destination.name,
            routing_key=binding.routing_key,
            arguments=binding.arguments,
        )
        for exchange in vhost.exchanges
        for binding in vhost.bindings.of_source(exchange)
    ]


def connection_snapshot(connection: Connection) -> ConnectionSnapshot:
    """Take what the connection is like now."""
    channels = connection.channels
    return ConnectionSnapshot(
        number=connection.number,
        name=connection.name,
        user=connection.user,
        vhost=connection.vhost.name,
        channels=tuple(channels),
        unacked=sum(len(channel.unacked) for channel in channels.values()),
        consumers=tuple(
            (number, tag, queue.name)
            for number, channel in channels.items()
            for tag, (_, queue) in channel.consumers.items()
        ),
    )


def pending_in(queue: Queue, vhost: str) -> Iterator[Pending]:
    """Say what is due in the queue."""
    lease_end_ms = _lease_end_ms(queue)
    if lease_end_ms is not None:
        count = queue.ready.count + len(queue.unacked())
        yield Pending(vhost=vhost, queue=queue.name, due_at_ms=lease_end_ms, count=count, what=QUEUE_EXPIRES)
    deadlines = [queued.deadline_ms for queued in queue.ready]
    if all(deadline is None for deadline in deadlines):
        return
    head = deadlines[0]
    timer = queue.ttl_timer
    # A head without a timer expires only when something else makes the queue look at it (scenario prio_ttl_zero).
    due_at_ms = None if head is None or timer is None else max(head, timer.due_ms)
    together = 0
    for deadline in deadlines:
        if due_at_ms is None or deadline is None or deadline > due_at_ms:
            break
        together += 1
    held_back = sum(deadline is not None and (due_at_ms is None or deadline < due_at_ms) for deadline in deadlines[1:])
    yield Pending(
        vhost=vhost,
        queue=queue.name,
        due_at_ms=due_at_ms,
        count=together if due_at_ms is not None else sum(deadline is not None for deadline in deadlines),
        what=MESSAGE_EXPIRES,
        held_back=held_back,
    )
