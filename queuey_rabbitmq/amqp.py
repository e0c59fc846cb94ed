"""THE PORT: what a session says to a broker and hears from it, at the level of AMQP channels, as frozen values.

Two links implement `Link`: `queuey_rabbitmq.pika_link` over a socket, `queuey_fake.link` over the broker model in
memory. A link holds no rule: it writes commands, reports events, keeps turns apart and lets threads wait. Everything
that decides anything lives above the port (`queuey_rabbitmq.session`), so that both links run the same decisions.

Turns. All session code of one link runs in turns, one at a time: on the I/O thread of the pika link, under the lock
of the in-process link. A turn starts with a step handed to `Link.run`, with an event, or with a deadline; when its
work is done the link calls `Driven.end_of_turn` once, and only after that resolves the futures handed to `resolve`.
So nothing in a turn may block, and no code of a user runs inside one, but a ReconnectPolicy's and a log handler's.

Channels are named by numbers that the session picks and never uses twice on a connection, so an event of a channel
that is gone can never be taken for one of its successor.

Durations and deadlines are milliseconds on the link's own timeline (`Link.monotonic_ms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class ReadableProperties(Protocol):
    """The fourteen basic properties as a delivery carries them; `pika.BasicProperties` is one."""

    @property
    def content_type(self) -> str | None: ...
    @property
    def content_encoding(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, Any] | None: ...
    @property
    def delivery_mode(self) -> int | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def correlation_id(self) -> str | None: ...
    @property
    def reply_to(self) -> str | None: ...
    @property
    def expiration(self) -> str | None: ...
    @property
    def message_id(self) -> str | None: ...
    @property
    def timestamp(self) -> Any: ...
    @property
    def type(self) -> str | None: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def app_id(self) -> str | None: ...
    @property
    def cluster_id(self) -> str | None: ...


class Properties(msgspec.Struct, frozen=True, kw_only=True):
    """The fourteen basic properties of a message to publish; header values are what pika can encode."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Any = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


class LateProperties:
    """The properties of a delivery, decoded when the first of them is looked at: of few deliveries any is.

    `decode` returns them by name; those without a value may be left out. What it raises is raised to who looks.
    """

    __slots__ = ("_decode", "_decoded", "_encoded", "_has_headers")

    def __init__(self, encoded: T, decode: Callable[[T], Mapping[str, Any]], *, has_headers: bool) -> None:
        self._encoded: Any = encoded
        self._decode: Callable[[Any], Mapping[str, Any]] = decode
        self._has_headers = has_headers
        self._decoded: Mapping[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return a property, None where it has no value."""
        if name not in _PROPERTY_NAMES:
            raise AttributeError(name)
        if name == "headers":
            return LateHeaders(self) if self._has_headers else None
        return self.values().get(name)

    def values(self) -> Mapping[str, Any]:
        """Return all that have a value."""
        if self._decoded is None:
            self._decoded = self._decode(self._encoded)
        return self._decoded


class LateHeaders(Mapping[str, Any]):
    """The headers of a delivery, decoded with its other properties."""

    __slots__ = ("_properties",)

    def __init__(self, properties: LateProperties) -> None:
        self._properties = properties

    def __getitem__(self, name: str) -> Any:
        return self._properties.values()["headers"][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties.values()["headers"])

    def __len__(self) -> int:
        return len(self._properties.values()["headers"])

    def __repr__(self) -> str:
        return repr(dict(self))


_PROPERTY_NAMES = frozenset(Properties.__struct_fields__)


# ---------------------------------------------------------------------------------------------------- commands


class OpenChannel(msgspec.Struct, frozen=True):
    """Open a channel, and select confirm mode on it when asked; `ChannelOpened` follows when both are done."""

    channel: int
    confirms: bool = False


class CloseChannel(msgspec.Struct, frozen=True):
    """Close a channel; `ChannelClosed` with code 200 follows."""

    channel: int


class DeclareQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Declare a queue; `QueueDeclared` follows, or `ChannelClosed` where the broker refuses."""

    channel: int
    queue: str
    durable: bool = True
    passive: bool = False
    arguments: Mapping[str, Any]


class Publish(msgspec.Struct, frozen=True):
    """Publish a message through the default exchange, always mandatory."""

    channel: int
    routing_key: str
    properties: Properties
    body: bytes


class Consume(msgspec.Struct, frozen=True, kw_only=True):
    """Set the channel's prefetch and start a consumer on it; `ConsumeStarted` follows."""

    channel: int
    queue: str
    consumer_tag: str
    prefetch: int


class Cancel(msgspec.Struct, frozen=True):
    """Cancel a consumer; `ConsumerCancelled` with by_broker False follows its last delivery."""

    channel: int
    consumer_tag: str


class Ack(msgspec.Struct, frozen=True):
    """Acknowledge one delivery, or with `multiple` it and all unsettled ones before it."""

    channel: int
    delivery_tag: int
    multiple: bool = False


class Nack(msgspec.Struct, frozen=True):
    """Give one delivery back (`requeue`) or refuse it; with `multiple`, all unsettled before it too."""

    channel: int
    delivery_tag: int
    requeue: bool
    multiple: bool = False


class Reject(msgspec.Struct, frozen=True):
    """Reject one delivery; without `requeue` the queue's dead-letter exchange gets it, if it has one."""

    channel: int
    delivery_tag: int
    requeue: bool


Command = OpenChannel | CloseChannel | DeclareQueue | Publish | Consume | Cancel | Ack | Nack | Reject


# ------------------------------------------------------------------------------------------------------ events


class ConnectionOpened(msgspec.Struct, frozen=True):
    """The connection is open and takes commands; `server_properties` are the broker's."""

    server_properties: Mapping[str, Any]


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection could not be opened, or is gone; nothing more comes from it.

    `stage` is what was going on ("resolving the host name", "connecting", "negotiating TLS", "waiting for an AMQP
    answer", "logging in", "opening the virtual host", "open", "closing"); code and text are the broker's where it
    gave any (code 0 otherwise); `cause` is the link's own exception.
    """

    stage: str
    code: int
    text: str
    cause: BaseException | None


class CommandRefused(msgspec.Struct, frozen=True):
    """The link cannot write a command, and sent nothing of it; the channel stays as it was.

    A name is over 255 bytes, say, AMQP has no type for a header's value, or no number is free for a channel. It comes
    in the turn of the `send` where that can be, after the code that sent, and before any confirm of what was sent with
    it. A `Publish` that is refused has no number: confirms count as if it had never been there. Behind a refused
    `DeclareQueue`, the rest of the same `send` on that channel is refused too, so that no publish goes without its
    declaration.
    """

    channel: int
    command: Command
    error: Exception


class ConnectionBlocked(msgspec.Struct, frozen=True):
    """A resource alarm of the broker: it reads nothing more from this connection until `ConnectionUnblocked`."""

    reason: str


class ConnectionUnblocked(msgspec.Struct, frozen=True):
    """The broker reads from this connection again."""


class ChannelOpened(msgspec.Struct, frozen=True):
    """A channel is open, in confirm mode where that was asked."""

    channel: int


class ChannelClosed(msgspec.Struct, frozen=True):
    """A channel is gone: closed by the broker (its code and text), or as asked (code 200)."""

    channel: int
    code: int
    text: str


class QueueDeclared(msgspec.Struct, frozen=True):
    """A queue exists with what was asked for."""

    channel: int
    queue: str
    message_count: int
    consumer_count: int


class Confirmed(msgspec.Struct, frozen=True):
    """The broker has taken publish number `delivery_tag` of the channel; with `multiple`, all before it too."""

    channel: int
    delivery_tag: int
    multiple: bool


class Nacked(msgspec.Struct, frozen=True):
    """The broker has refused publish number `delivery_tag` of the channel; with `multiple`, all before it too."""

    channel: int
    delivery_tag: int
    multiple: bool


class Returned(msgspec.Struct, frozen=True):
    """A mandatory message found no queue; it precedes the confirm of its publish."""

    channel: int
    code: int
    text: str
    exchange: str
    routing_key: str
    message_id: str | None


class ConsumeStarted(msgspec.Struct, frozen=True):
    """The broker knows the consumer; deliveries follow."""

    channel: int
    consumer_tag: str


class ConsumerCancelled(msgspec.Struct, frozen=True):
    """A consumer is gone, as asked or because the broker cancelled it."""

    channel: int
    consumer_tag: str
    by_broker: bool


class Delivered(msgspec.Struct, frozen=True):
    """A message for a consumer."""

    channel: int
    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: ReadableProperties
    body: bytes


Event = (
    ConnectionOpened
    | ConnectionLost
    | CommandRefused
    | ConnectionBlocked
    | ConnectionUnblocked
    | ChannelOpened
    | ChannelClosed
    | QueueDeclared
    | Confirmed
    | Nacked
    | Returned
    | ConsumeStarted
    | ConsumerCancelled
    | Delivered
)


# ------------------------------------------------------------------------------------------------------- links


class Driven(Protocol):
    """What a link drives: a session. Every method is called inside a turn."""

    def end_of_turn(self) -> None:
        """Send what the turn has gathered (acks); called once, when the turn has no more work."""

    def next_deadline_ms(self) -> int | None:
        """Return the earliest instant at which `on_time` has something to do, or None."""

    def on_time(self) -> None:
        """Do what is due by `Link.monotonic_ms`."""

    def abandon(self, error: BaseException) -> None:
        """Fail everything that is open: the link has died and no turn follows this one."""


class Connection(Protocol):
    """One AMQP connection of a link."""

    def send(self, commands: Sequence[Command]) -> None:
        """Write the commands in order, as one: nothing else of this connection comes between them.

        Only inside a turn. Commands for a channel or connection that is already gone are dropped: the event that
        says so has come, or is coming.
        """

    def close(self) -> None:
        """Start to close; `ConnectionLost` with stage "closing" follows when the broker has answered."""

    def abort(self) -> None:
        """Drop the connection without a word; `ConnectionLost` with stage "closing" follows."""


class Mailbox(Protocol[T]):
    """A queue from turns to the threads of an application."""

    def put(self, item: T) -> None:
        """Add an item; wakes one waiter."""

    def get(self, timeout_ms: int | None) -> T | None:
        """Take the oldest item; wait up to `timeout_ms` for one, for ever with None; return None when there is none.

        On the in-process link waiting moves virtual time, and a wait that nothing can end raises `NothingPending`.
        """


class Pending(Protocol[T]):
    """What somebody waits for and a turn ends: `concurrent.futures.Future` is one, and so is anything lighter."""

    def done(self) -> bool:
        """Tell whether it has ended."""

    def set_result(self, result: T, /) -> None:
        """End it."""

    def set_exception(self, exception: BaseException, /) -> None:
        """End it with an error."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for its end, for `timeout` seconds at most; return its error. Raises TimeoutError."""

    def result(self) -> T:
        """Wait for its end; return its result, or raise its error."""

    def cancelled(self) -> bool:
        """Tell whether whoever waited does so no more."""

    def set_running_or_notify_cancel(self) -> bool:
        """Let it be cancelled no more; tell whether it has not been."""


class Link(Protocol):
    """A way to one broker: connections, turns, and time."""

    def attach(self, driven: Driven) -> None:
        """Name the session that the turns drive; called once, before `run` or `open`."""

    def now_ms(self) -> int:
        """Return the wall clock in ms since the epoch: what a job's `enqueued_at_ms` is stamped with."""

    def monotonic_ms(self) -> int:
        """Return the timeline of deadlines, in ms from an arbitrary start; never goes back."""

    def open(self, name: str, on_event: Callable[[Event], None]) -> Connection:
        """Start to connect; the first event is `ConnectionOpened` or `ConnectionLost`. Only inside a turn.

        `name` is what the operator sees, with what the options say about the connection's name.
        """

    def run(self, step: Callable[[], object]) -> None:
        """Run a step in a turn, soon, in the order of the calls; never blocks. Any thread.

        Raises ShutDownError when the link is closed, BackendError when it has died or the process has forked:
        a step is run, or refused here, never forgotten.
        """

    def resolve(self, future: Pending[T], result: T) -> None:
        """Give a future its result when the turn is over. Only inside a turn."""

    def fail(self, future: Pending[Any], error: BaseException) -> None:
        """Give a future its error when the turn is over. Only inside a turn."""

    def check_may_wait(self) -> None:
        """Raise BackendError where `wait` would block the turns: in a callback of a future."""

    def wait(self, future: Pending[T], deadline_ms: int) -> T:
        """Wait for a future that a turn resolves, and return its result or raise its error.

        The session fails futures at their own deadlines; this one is the bound for a link that does not get that
        far. Raises DeadlineExceededError then, and BackendError at once where waiting would block the turns.
        """

    def future(self) -> Future[Any]:
        """Return a new future for a caller to wait for, and for `resolve` and `fail` to end."""

    def mailbox(self) -> Mailbox[Any]:
        """Return a new mailbox."""

    def close(self, timeout_ms: int) -> None:
        """End the link: no turn after this. Joins its thread unless called on it. Idempotent."""
