"""What a test sees of a broker: frozen values in plain Python, taken without disturbing anything.

The model's own snapshots, with the types of AMQP's field tables taken off as pika takes them off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuey_fake.link import to_python
from queuey_fake.model import snapshots
from queuey_fake.model.fields import table_to_python
from queuey_rabbitmq.amqp import Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One message in a queue."""

    body: bytes
    properties: Properties
    exchange: str
    routing_key: str
    redelivered: bool
    expires_at_ms: int | None
    """Its own deadline; it may outlive it behind another message, as only the head of a queue expires."""
    is_unacked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue."""

    name: str
    type: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]
    ready: int
    unacked: int
    consumers: int
    expires_at_ms: int | None
    """When its lease (x-expires) ends if nobody uses it."""
    messages: tuple[MessageView, ...]
    """The ready ones in the order in which they go, then the unacknowledged ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """One exchange."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingView:
    """One binding of a queue or an exchange to an exchange, the source."""

    source: str
    destination_type: str
    """Either "queue" or "exchange"."""
    destination: str
    routing_key: str
    arguments: dict[str, Any]


def queue_view(snapshot: snapshots.QueueSnapshot) -> QueueView:
    """Return the model's snapshot of a queue in plain values."""
    return QueueView(
        name=snapshot.name,
        type=snapshot.type,
        durable=snapshot.durable,
        exclusive=snapshot.exclusive,
        auto_delete=snapshot.auto_delete,
        arguments=table_to_python(snapshot.arguments),
        ready=snapshot.ready,
        unacked=snapshot.unacked,
        consumers=snapshot.consumers,
        expires_at_ms=snapshot.expires_at_ms,
        messages=tuple(_message_view(message) for message in snapshot.messages),
    )


def _message_view(snapshot: snapshots.MessageSnapshot) -> MessageView:
    return MessageView(
        body=snapshot.body,
        properties=Properties(**to_python(snapshot.properties)),
        exchange=snapshot.exchange,
        routing_key=snapshot.routing_key,
        redelivered=snapshot.redelivered,
        expires_at_ms=snapshot.expires_at_ms,
        is_unacked=snapshot.is_unacked,
    )


def exchange_view(snapshot: snapshots.ExchangeSnapshot) -> ExchangeView:
    """Return the model's snapshot of an exchange in plain values."""
    return ExchangeView(
        name=snapshot.name,
        type=snapshot.type,
        durable=snapshot.durable,
        auto_delete=snapshot.auto_delete,
        internal=snapshot.internal,
        arguments=table_to_python(snapshot.arguments),
    )


def binding_view(snapshot: snapshots.BindingSnapshot) -> BindingView:
    """Return the model's snapshot of a binding in plain values."""
    return BindingView(
        source=snapshot.source,
        destination_type=snapshot.destination_type,
        destination=snapshot.destination,
        routing_key=snapshot.routing_key,
        arguments=table_to_python(snapshot.arguments),
    )
