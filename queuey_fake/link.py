"""The in-process link: the port of `queuey_rabbitmq.amqp` over the broker model, without a socket.

A thin translator: commands become calls of the model, what the model says becomes events. Holds no rule of RabbitMQ
(the model does) and none of queuey (the session does).
"""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import compress, repeat
from operator import is_not
from threading import Thread, current_thread
from typing import Any, TypeVar

from msgspec.structs import astuple

from queuey_fake.clock import MS_PER_SECOND
from queuey_fake.engine import BlockingInCallbackError, Engine, WaitGuardError, WaitsForever
from queuey_fake.in_hand import InHand, is_at_work
from queuey_fake.in_process_future import InProcessFuture
from queuey_fake.journal import Journal
from queuey_fake.model import events
from queuey_fake.model.channel import Channel
from queuey_fake.model.connection import Connection as ModelConnection
from queuey_fake.model.fields import string_to_python, table_from_python, table_to_python, text_of
from queuey_fake.model.properties import Properties
from queuey_fake.model.table_codec import HEADERS
from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import (
    BackendError,
    DeadlineExceededError,
    NothingPending,
    ShutDownError,
)

T = TypeVar("T")

HEARTBEAT_GRACE_S = 5
"""pika adds it to the heartbeat, and gives a silent connection up after two of those (measured with 1.4.4)."""


class _Farewell(Enum):
    """How a client leaves, behind everything that it has sent."""

    CLOSE = "connection.close"
    HANG_UP = "the end of its socket"


class InProcessLink:
    """A backend's way to the model of a FakeBroker."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        *,
        connection_name: str | None,
        connect_timeout_ms: int,
        heartbeat_s: int,
        explain_wait: Callable[[], str],
        on_close: Callable[[], None],
    ) -> None:
        self._engine = engine
        self.now_ms = engine.clock.now_ms
        self.monotonic_ms = engine.elapsed_ms
        self.resolve = engine.complete
        self._connection_name = connection_name
        self._connect_timeout_ms = connect_timeout_ms
        self._silence_ms = 2 * (heartbeat_s + HEARTBEAT_GRACE_S) * MS_PER_SECOND if heartbeat_s else None
        self._journal = journal
        self._explain_wait = explain_wait
        self._on_close = on_close
        self._connections: dict[InProcessConnection, None] = {}
        self.unfinished: dict[InProcessConnection, None] = {}
        """The connections that have something left for the end of the turn."""
        self._driven: amqp.Driven | None = None
        self._closed = False
        self._mailboxes: weakref.WeakSet[InProcessMailbox] = weakref.WeakSet()
        self.arriving: Arriving | None = None
        """The delivery that is being handed to the session."""

    def attach(self, driven: amqp.Driven) -> None:
        """Name the session that the turns drive."""
        self._driven = driven
        self._engine.add(self)

    def open(self, name: str, on_event: Callable[[amqp.Event], None]) -> amqp.Connection:
        """Connect to the model, with the name that the link over a socket would give."""
        connection = InProcessConnection(
            self._engine,
            self._journal,
            self,
            on_event,
            name=f"{self._connection_name} {name}" if self._connection_name else name,
            connect_by_ms=self.monotonic_ms() + self._connect_timeout_ms,
        )
        self._connections[connection] = None
        return connection

    def run(self, step: Callable[[], object]) -> None:
        """Run a step in a turn, at once."""
        if self._closed:
            raise ShutDownError("the backend is closed")
        self._engine.run(step)

    def fail(self, future: amqp.Pending[Any], error: BaseException) -> None:
        """Give a future its error when the turn is over."""
        self._engine.complete(future, error=error)

    def check_may_wait(self) -> None:
        """Raise BackendError in a callback of a future."""
        try:
            self._engine.check_may_wait()
        except BlockingInCallbackError:
            raise blocking_in_callback() from None

    def wait(self, future: amqp.Pending[T], deadline_ms: int) -> T:
        """Wait for a future; in virtual time, which moves to what is due until the future is done."""
        if not future.done() and not self.wait_until(future.done, max(0, deadline_ms - self.monotonic_ms())):
            raise DeadlineExceededError("the broker did not answer in time")
        return future.result()

    def future(self) -> InProcessFuture:
        """Return a new future, in virtual time where the clock is virtual."""
        return InProcessFuture(self.wait_until)

    def mailbox(self) -> InProcessMailbox:
        """Return a new mailbox."""
        mailbox = InProcessMailbox(self, self._engine)
        self._mailboxes.add(mailbox)
        return mailbox

    def close(self, timeout_ms: int) -> None:
        """End the link."""
        del timeout_ms
        if self._closed:
            return
        self._closed = True
        self._engine.run(self._drop_connections)
        self._engine.remove(self)
        self._on_close()

    def forget(self, connection: InProcessConnection) -> None:
        """Learn that a connection is gone."""
        self._connections.pop(connection, None)

    def _drop_connections(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def wait_until(
        self, ready: Callable[[], bool], timeout_ms: int | None, *, then: Callable[[], object] | None = None
    ) -> bool:
        """Wait as the engine waits; say in the terms of backends why that makes no sense."""
        try:
            return self._engine.wait(ready, timeout_ms, then=then)
        except WaitsForever:
            raise NothingPending(
                f"waiting without a timeout, and nothing can ever end it:\n{self._explain_wait()}"
            ) from None
        except WaitGuardError as error:
            raise DeadlineExceededError(f"{error}. What is held and what is due:\n{self._explain_wait()}") from None
        except BlockingInCallbackError:
            raise blocking_in_callback() from None

    # what the engine calls (FrontEnd)

    def take_in(self) -> None:
        """Do nothing: what a session sends takes effect at once."""

    def end_of_turn(self) -> None:
        """Let the connections do what is left, and the session send its acks."""
        while self.unfinished:
            connection = next(iter(self.unfinished))
            del self.unfinished[connection]
            connection.finish()
        if self._driven is not None:
            self._driven.end_of_turn()

    def next_deadline_ms(self) -> int | None:
        """Return when the session has something due, or a connection has waited for long enough."""
        soonest = None if self._driven is None else self._driven.next_deadline_ms()
        for connection in self._connections:
            gives_up_ms = self._gives_up_ms(connection)
            if gives_up_ms is not None and (soonest is None or gives_up_ms < soonest):
                soonest = gives_up_ms
        return soonest

    def on_time(self) -> None:
        """Give up connections that answer nothing, and let the session do what is due."""
        now_ms = self.monotonic_ms()
        for connection in list(self._connections):
            gives_up_ms = self._gives_up_ms(connection)
            if gives_up_ms is None or gives_up_ms > now_ms:
                continue
            if connection.connect_by_ms is None:
                connection.lose("open", 0, "no heartbeats come from the broker any more")
            else:
                timeout_s = self._connect_timeout_ms / MS_PER_SECOND
                connection.lose("waiting for an AMQP answer", 0, f"no AMQP answer within {timeout_s:g} s")
        if self._driven is not None:
            self._driven.on_time()

    def threads_with_deliveries(self) -> Iterator[Thread]:
        """Yield the threads that hold a delivery of this link."""
        for connection in self._connections:
            yield from connection.in_hand.threads()

    def mailboxes_to_empty(self) -> Iterator[InProcessMailbox]:
        """Yield those with deliveries for a thread that opened a consumer and has not come to take from it yet."""
        return (mailbox for mailbox in self._mailboxes if mailbox.is_to_be_emptied())

    def _gives_up_ms(self, connection: InProcessConnection) -> int | None:
        """Return when a connection is taken for dead: like a real one, at its connect timeout or for its silence."""
        if connection.connect_by_ms is not None:
            return connection.connect_by_ms
        hung_since_ms = self._engine.traffic.hung_since_ms
        return None if hung_since_ms is None or self._silence_ms is None else hung_since_ms + self._silence_ms


Arriving = tuple[InHand, int, int]
"""A delivery, by what settles it: who notes that, the channel, and the delivery tag."""


class InProcessMailbox:
    """Deliveries on their way from turns to the threads of an application."""

    def __init__(self, link: InProcessLink, engine: Engine) -> None:
        self._items: deque[tuple[Any, Arriving | None]] = deque()
        self._link = link
        self._engine = engine
        self._opened_by = None if engine.is_driving_thread() else current_thread()
        self.is_heeded = True
        """Whether time waits for the thread that opened it to take what is there."""

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append((item, self._link.arriving))

    def get(self, timeout_ms: int | None) -> Any | None:
        """Take the oldest item; wait for one as the engine waits."""
        if self._items:
            with self._engine.lock:
                if self._items:
                    return self._take()
        taken: list[Any] = []
        self._link.wait_until(self._has_items, timeout_ms, then=lambda: taken.append(self._take()))
        return taken[0] if taken else None

    def _take(self) -> Any:
        item, arrived = self._items.popleft()
        if arrived is not None:
            self._engine.deliveries_taken += 1
            if not self._engine.is_driving_thread():
                in_hand, channel, delivery_tag = arrived
                in_hand.take(channel, delivery_tag)
        self.is_heeded = True
        return item

    def is_to_be_emptied(self) -> bool:
        """Tell whether a delivery lies here for another thread, which is at work and may take it any moment."""
        if self._opened_by is None or not self.is_heeded or not self._items or self._items[0][1] is None:
            return False
        return is_at_work(self._opened_by)

    def _has_items(self) -> bool:
        return bool(self._items)


class InProcessConnection:
    """One connection of a session to the model: what either side says may be on its way for a while."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        link: InProcessLink,
        on_event: Callable[[amqp.Event], None],
        *,
        name: str,
        connect_by_ms: int,
    ) -> None:
        self._engine = engine
        self._traffic = engine.traffic
        self._name = name
        self._journal = journal
        self._link = link
        self.on_event = on_event
        self._channels: dict[int, Channel] = {}
        self._confirming: set[int] = set()
        self._is_gone = False
        self._reports: deque[amqp.Event] = deque()
        """What does not come from the model's outbox."""
        self._refused: deque[amqp.Event] = deque()
        """What a client cannot write; told before anything that was written behind it is answered."""
        self.model: ModelConnection | None = None
        self.connect_by_ms: int | None = connect_by_ms
        """When it must be open; None once it is."""
        self._unread: deque[amqp.Command | _Farewell] = deque()
        """What has arrived at a broker that does not read."""
        self.in_hand = InHand(self._channels)
        """What other threads than the driving one have taken and not settled."""
        self._to_broker = engine.traffic.lane()
        self._to_client = engine.traffic.lane()
        self._to_broker.put(self._arrive)

    # what the session does

    def send(self, commands: Sequence[amqp.Command]) -> None:
        """Have the commands done on the model, in order."""
        if self._is_gone:
            return
        if self.in_hand.by_channel:
            self._note_settled(commands)
        if self._traffic.is_calm:
            self._unread.extend(commands)
            self._read()
        else:
            self._to_broker.put(partial(self._take, list(commands)))

    def _note_settled(self, commands: Sequence[amqp.Command]) -> None:
        for command in commands:
            if isinstance(command, amqp.Ack):
                self.in_hand.settle(command.channel, command.delivery_tag, multiple=command.multiple)
            elif isinstance(command, amqp.Nack | amqp.Reject):
                self.in_hand.settle(command.channel, command.delivery_tag, multiple=False)
            elif isinstance(command, amqp.CloseChannel):
                self.in_hand.forget(command.channel)

    def close(self) -> None:
        """Close the connection in the model."""
        if not self._is_gone:
            self._to_broker.put(partial(self._take, [_Farewell.CLOSE]))

    def abort(self) -> None:
        """Be gone at once; the model learns of it when everything that was said before has come."""
        self.lose("closing", 200, "Normal shutdown")

    # what happens on the way

    def lose(self, stage: str, code: int, text: str) -> None:
        """End the client's side; the broker's ends when it has read what was sent."""
        if not self._is_gone:
            self._end(stage, code, text)
            self._to_broker.put(partial(self._take, [_Farewell.HANG_UP]))

    # what the engine calls (Owner)

    def take_output(self, connection: ModelConnection) -> None:
        """Tell the session what the model has written."""
        outbox = connection.outbox
        if self._traffic.is_calm:
            while outbox and not self._is_gone:
                if self._refused:
                    self._tell(self._refused)
                event = outbox.popleft()
                _TELL[type(event)](self, event)
        else:
            for event in outbox:
                self._to_client.put(partial(self._hear, event))
            outbox.clear()
        if self._unread:  # the broker may read again
            self._link.unfinished[self] = None

    def drop(self, connection: ModelConnection) -> None:
        """Hear that the connection is lost: what was on its way is, too."""
        del connection
        self._to_broker.clear()
        self._to_client.clear()
        if not self._is_gone:
            self._end("open", 0, "the connection was cut: ConnectionResetError")

    def finish(self) -> None:
        """Tell the session what does not come from the model's outbox, and have read what was not."""
        self._tell(self._refused)
        self._tell(self._reports)
        if self._is_gone:
            self._link.forget(self)
        elif self._unread:
            self._read()

    def _tell(self, events_: deque[amqp.Event]) -> None:
        while events_:
            self.on_event(events_.popleft())

    def _hear(self, event: events.Event) -> None:
        if not self._is_gone:
            self._tell(self._refused)
            _TELL[type(event)](self, event)

    def _report(self, event: amqp.Event) -> None:
        self._reports.append(event)
        self._link.unfinished[self] = None

    def _end(self, stage: str, code: int, text: str) -> None:
        self._is_gone = True
        if self.model is not None:
            self._engine.disown(self.model)
        self._report(amqp.ConnectionLost(stage, code, text, None))

    def _opened(self) -> None:
        self.connect_by_ms = None
        release = self._engine.model.version.release
        self._report(amqp.ConnectionOpened({"product": "RabbitMQ", "version": release}))

    # what the broker does

    def _arrive(self) -> None:
        if self._engine.traffic.refuses_connections:
            self._to_client.put(partial(self.lose, "connecting", 0, "Connection refused"))
            return
        self.model = self._engine.model.connect(name=self._name)
        if not self._is_gone:
            self._engine.own(self.model, self)
        self._to_client.put(self._opened)

    def _take(self, commands: Sequence[amqp.Command | _Farewell]) -> None:
        self._unread.extend(commands)
        self._read()

    def _read(self) -> None:
        """Do what has arrived, as far as the broker reads; a connection that it has ended is not read any more."""
        model, unread = self.model, self._unread
        if model is None or not model.is_open:
            unread.clear()
            return
        while unread and not model.is_blocked:
            command: Any = unread[0]
            kind = type(command)
            if kind is amqp.Publish and model.blocks_publish():
                return
            unread.popleft()
            do = _DO.get(kind)
            if do is None:
                self._begin_or_end(command, model)
            # or it is gone, and the session has been told, or is being told
            elif (channel := self._channels.get(command.channel)) is not None:
                do(self, channel, command)

    def _begin_or_end(self, command: amqp.OpenChannel | _Farewell, model: ModelConnection) -> None:
        if command is _Farewell.CLOSE:
            model.close()
        elif command is _Farewell.HANG_UP:
            model.lose()
        else:
            self._open_channel(command, model)

    def _open_channel(self, command: amqp.OpenChannel, model: ModelConnection) -> None:
        channel = self._channels[command.channel] = model.open_channel(command.channel)
        if command.confirms:
            self._confirming.add(command.channel)
            channel.confirm_select()

    def publish(self, channel: Channel, command: amqp.Publish) -> None:
        """Publish on the model, mandatory, through the default exchange."""
        try:
            properties = to_model(command.properties)
        except (TypeError, ValueError) as error:
            self._refused.append(amqp.CommandRefused(command.channel, command, error))
            self._link.unfinished[self] = None
            return
        self._journal.is_ours = True
        channel.basic_publish("", command.routing_key, properties, command.body, mandatory=True)
        self._journal.is_ours = False

    def tell_delivery(self, event: events.Deliver) -> None:
        """Tell the session of a delivery, and who puts it into a mailbox what settles it."""
        channel, tag, properties = event.channel, event.delivery_tag, event.properties
        self._link.arriving = self.in_hand, channel, tag
        self.on_event(
            amqp.Delivered(
                channel,
                event.consumer_tag,
                tag,
                event.redelivered,
                event.exchange,
                event.routing_key,
                amqp.LateProperties(properties, to_python, has_headers=bool(properties.flags & HEADERS)),
                event.body,
            )
        )
        self._link.arriving = None

    def tell_opened(self, event: events.ChannelOpenOk) -> None:
        """Tell the session of an open channel, once it is in confirm mode where that was asked."""
        if event.channel not in self._confirming:
            self.on_event(amqp.ChannelOpened(event.channel))

    def tell_closed_by_broker(self, event: events.ChannelClose) -> None:
        """Confirm a close, and tell the session of it."""
        self._to_broker.put(self._channels.pop(event.channel).close_ok)
        self.on_event(amqp.ChannelClosed(event.channel, event.code, event.text))

    def tell_closed(self, event: events.ChannelCloseOk) -> None:
        """Tell the session of a close that it has asked for."""
        self._channels.pop(event.channel)
        self.on_event(amqp.ChannelClosed(event.channel, 200, "closed as asked"))

    def tell_end(self, event: events.ConnectionClose | events.ConnectionCloseOk) -> None:
        """Tell the session that the connection has ended."""
        if isinstance(event, events.ConnectionClose):
            self._end("open", event.code, event.text)
        else:
            self._end("closing", 200, "Normal shutdown")


def _declare(_connection: InProcessConnection, channel: Channel, command: amqp.DeclareQueue) -> None:
    channel.queue_declare(
        command.queue,
        passive=command.passive,
        durable=command.durable,
        arguments=table_from_python(command.arguments),
    )


def _consume(_connection: InProcessConnection, channel: Channel, command: amqp.Consume) -> None:
    channel.basic_qos(prefetch_count=command.prefetch)
    channel.basic_consume(command.queue, consumer_tag=command.consumer_tag)


_DO: dict[type, Callable[[InProcessConnection, Channel, Any], None]] = {
    amqp.Publish: InProcessConnection.publish,
    amqp.Ack: lambda _, channel, c: channel.basic_ack(c.delivery_tag, multiple=c.multiple),
    amqp.Nack: lambda _, channel, c: channel.basic_nack(c.delivery_tag, multiple=c.multiple, requeue=c.requeue),
    amqp.Reject: lambda _, channel, c: channel.basic_reject(c.delivery_tag, requeue=c.requeue),
    amqp.DeclareQueue: _declare,
    amqp.Consume: _consume,
    amqp.Cancel: lambda _, channel, c: channel.basic_cancel(c.consumer_tag),
    amqp.CloseChannel: lambda _, channel, _command: channel.close(),
}


def _nothing(_connection: InProcessConnection, _event: Any) -> None:
    """Tell the session nothing: it has not asked for that, or does not know the difference."""


_TELL: defaultdict[type, Callable[[InProcessConnection, Any], None]] = defaultdict(
    lambda: _nothing,
    {
        events.Deliver: InProcessConnection.tell_delivery,
        events.Ack: lambda c, e: c.on_event(amqp.Confirmed(e.channel, e.delivery_tag, e.multiple)),
        events.Nack: lambda c, e: c.on_event(amqp.Nacked(e.channel, e.delivery_tag, e.multiple)),
        events.Return: lambda c, e: c.on_event(
            amqp.Returned(e.channel, e.code, e.text, e.exchange, e.routing_key, e.properties.message_id)
        ),
        events.QueueDeclareOk: lambda c, e: c.on_event(
            amqp.QueueDeclared(e.channel, e.queue, e.message_count, e.consumer_count)
        ),
        events.ChannelOpenOk: InProcessConnection.tell_opened,
        events.ConfirmSelectOk: lambda c, e: c.on_event(amqp.ChannelOpened(e.channel)),
        events.ConsumeOk: lambda c, e: c.on_event(amqp.ConsumeStarted(e.channel, e.consumer_tag)),
        events.CancelOk: lambda c, e: c.on_event(amqp.ConsumerCancelled(e.channel, e.consumer_tag, by_broker=False)),
        events.Cancel: lambda c, e: c.on_event(amqp.ConsumerCancelled(e.channel, e.consumer_tag, by_broker=True)),
        events.ChannelClose: InProcessConnection.tell_closed_by_broker,
        events.ChannelCloseOk: InProcessConnection.tell_closed,
        events.ConnectionClose: InProcessConnection.tell_end,
        events.ConnectionCloseOk: InProcessConnection.tell_end,
        events.ConnectionBlocked: lambda c, e: c.on_event(amqp.ConnectionBlocked(e.reason)),
        events.ConnectionUnblocked: lambda c, _e: c.on_event(amqp.ConnectionUnblocked()),
    },
)


def blocking_in_callback() -> BackendError:
    """Say why a call that waits is refused in a callback."""
    return BackendError(
        "a blocking call in a future's callback: it would wait for the very thread that it blocks; use "
        "publish_nowait, or hand over to another thread"
    )


def to_model(properties: amqp.Properties) -> Properties:
    """Return properties as the model keeps them, header values typed as pika would send them."""
    given = astuple(properties)
    are_given = map(is_not, given, repeat(None))  # fourteen for each publish, and most are not
    values = dict(compress(zip(properties.__struct_fields__, given, strict=True), are_given))
    if any(map(isinstance, given, repeat(bytes))):
        values = {name: text_of(value) if isinstance(value, bytes) else value for name, value in values.items()}
    if properties.headers is not None:
        values["headers"] = table_from_python(properties.headers)
    return Properties.of(values)


def to_python(properties: Properties) -> Mapping[str, Any]:
    """Return properties by name as pika would decode them."""
    values = {
        name: string_to_python(value) if isinstance(value, str) else value
        for name, value in properties.values().items()
    }
    return values | {"headers": table_to_python(values["headers"])} if "headers" in values else values
