"""What the broker says to one connection: replies and asynchronous methods, in the order in which it writes them.

Owns these values and nothing else. Each carries the number of its channel, so that a front end only translates.
`Deliver`, `GetOk` and `Ack` are made for every message and are not frozen only because the constructor of a frozen
dataclass costs three times as much; nobody changes them either.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuey_fake.model.properties import Properties


@dataclass(frozen=True, slots=True)
class ChannelOpenOk:
    """channel.open-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class ChannelClose:
    """channel.close: the broker closes the channel and drops what comes on it until the client's close-ok."""

    channel: int
    code: int
    text: str
    class_id: int
    method_id: int


@dataclass(frozen=True, slots=True)
class ChannelCloseOk:
    """channel.close-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class FlowOk:
    """channel.flow-ok."""

    channel: int
    active: bool


@dataclass(frozen=True, slots=True)
class ConnectionClose:
    """connection.close: the broker closes the connection with all its channels."""

    code: int
    text: str
    class_id: int
    method_id: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionCloseOk:
    """connection.close-ok."""

    channel: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionBlocked:
    """connection.blocked: nothing more is read from this connection while the broker's alarm lasts."""

    reason: str
    channel: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionUnblocked:
    """connection.unblocked."""

    channel: int = 0


@dataclass(frozen=True, slots=True)
class ExchangeDeclareOk:
    """exchange.declare-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class ExchangeDeleteOk:
    """exchange.delete-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class ExchangeBindOk:
    """exchange.bind-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class ExchangeUnbindOk:
    """exchange.unbind-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class QueueDeclareOk:
    """queue.declare-ok; `message_count` counts ready messages."""

    channel: int
    queue: str
    message_count: int
    consumer_count: int


@dataclass(frozen=True, slots=True)
class QueueBindOk:
    """queue.bind-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class QueueUnbindOk:
    """queue.unbind-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class QueuePurgeOk:
    """queue.purge-ok."""

    channel: int
    message_count: int


@dataclass(frozen=True, slots=True)
class QueueDeleteOk:
    """queue.delete-ok."""

    channel: int
    message_count: int


@dataclass(frozen=True, slots=True)
class QosOk:
    """basic.qos-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class ConsumeOk:
    """basic.consume-ok."""

    channel: int
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class CancelOk:
    """basic.cancel-ok."""

    channel: int
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """basic.cancel: the broker ends a consumer whose queue is gone."""

    channel: int
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class RecoverOk:
    """basic.recover-ok."""

    channel: int


@dataclass(slots=True)
class Deliver:
    """basic.deliver with its content."""

    channel: int
    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: Properties
    body: bytes


@dataclass(slots=True)
class GetOk:
    """basic.get-ok with its content; `message_count` is what stays ready."""

    channel: int
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int
    properties: Properties
    body: bytes


@dataclass(frozen=True, slots=True)
class GetEmpty:
    """basic.get-empty."""

    channel: int


@dataclass(frozen=True, slots=True)
class Return:
    """basic.return with its content; it comes before the confirm of the same publish."""

    channel: int
    code: int
    text: str
    exchange: str
    routing_key: str
    properties: Properties
    body: bytes


@dataclass(slots=True)
class Ack:
    """basic.ack: the broker confirms a publish."""

    channel: int
    delivery_tag: int
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class Nack:
    """basic.nack: the broker refuses a publish."""

    channel: int
    delivery_tag: int
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmSelectOk:
    """confirm.select-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class TxSelectOk:
    """tx.select-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class TxCommitOk:
    """tx.commit-ok."""

    channel: int


@dataclass(frozen=True, slots=True)
class TxRollbackOk:
    """tx.rollback-ok."""

    channel: int


Event = (
    ChannelOpenOk
    | ChannelClose
    | ChannelCloseOk
    | FlowOk
    | ConnectionClose
    | ConnectionCloseOk
    | ConnectionBlocked
    | ConnectionUnblocked
    | ExchangeDeclareOk
    | ExchangeDeleteOk
    | ExchangeBindOk
    | ExchangeUnbindOk
    | QueueDeclareOk
    | QueueBindOk
    | QueueUnbindOk
    | QueuePurgeOk
    | QueueDeleteOk
    | QosOk
    | ConsumeOk
    | CancelOk
    | Cancel
    | RecoverOk
    | Deliver
    | GetOk
    | GetEmpty
    | Return
    | Ack
    | Nack
    | ConfirmSelectOk
    | TxSelectOk
    | TxCommitOk
    | TxRollbackOk
)
