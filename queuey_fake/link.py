"""The in-process link: the port of `queuey_rabbitmq.amqp` over the broker model, without a socket.

A thin translator: commands become calls of the model, what the model says becomes events. Holds no rule of RabbitMQ
(the model does) and none of queuey (the session does).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from queuey_fake.engine import BlockingInCallbackError, Engine, WaitGuardError, WaitsForever
from queuey_fake.journal import Journal
from queuey_fake.model import events
from queuey_fake.model.channel import Channel
from queuey_fake.model.connection import Connection as ModelConnection
from queuey_fake.model.fields import table_from_python, table_to_python
from queuey_fake.model.properties import Properties
from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import (
    BackendError,
    DeadlineExceededError,
    NothingPending,
    ShutDownError,
)

T = TypeVar("T")


class InProcessLink:
    """A backend's way to the model of a FakeBroker."""

    def __init__(
        self, engine: Engine, journal: Journal, *, explain_wait: Callable[[], str], on_close: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._explain_wait = explain_wait
        self._on_close = on_close
        self._connections: list[InProcessConnection] = []
        self._driven: amqp.Driven | None = None
        self._closed = False

    def attach(self, driven: amqp.Driven) -> None:
        """Name the session that the turns drive."""
        self._driven = driven
        self._engine.add(self)

    def now_ms(self) -> int:
        """Return the broker's clock."""
        return self._engine.clock.now_ms()

    def monotonic_ms(self) -> int:
        """Return how far the broker's time has moved."""
        return self._engine.elapsed_ms()

    def open(self, name: str, on_event: Callable[[amqp.Event], None]) -> amqp.Connection:
        """Connect to the model, which knows no names of connections."""
        del name
        connection = InProcessConnection(self._engine, self._journal, self, on_event)
        self._connections.append(connection)
        return connection

    def run(self, step: Callable[[], object]) -> None:
        """Run a step in a turn, at once."""
        if self._closed:
            raise ShutDownError("the backend is closed")
        self._engine.run(step)

    def resolve(self, future: Future[T], result: T) -> None:
        """Give a future its result when the turn is over."""
        self._engine.complete(future, result)

    def fail(self, future: Future[Any], error: BaseException) -> None:
        """Give a future its error when the turn is over."""
        self._engine.complete(future, error=error)

    def wait(self, future: Future[T], deadline_ms: int) -> T:
        """Wait for a future; in virtual time, which moves to what is due until the future is done."""
        timeout_ms = max(0, deadline_ms - self.monotonic_ms())
        if not self._wait(future.done, timeout_ms):
            raise DeadlineExceededError("the broker did not answer in time")
        return future.result()

    def mailbox(self) -> InProcessMailbox:
        """Return a new mailbox."""
        return InProcessMailbox(self._wait)

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
        self._connections.remove(connection)

    def _drop_connections(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _wait(self, ready: Callable[[], bool], timeout_ms: int | None) -> bool:
        try:
            return self._engine.wait(ready, timeout_ms)
        except WaitsForever:
            raise NothingPending(
                f"waiting without a timeout, and nothing can ever end it: {self._explain_wait()}"
            ) from None
        except WaitGuardError:
            raise DeadlineExceededError(
                f"waited {self._engine.wait_guard_s:g} real seconds while virtual time stood still: nobody moved it. "
                f"{self._explain_wait()}"
            ) from None
        except BlockingInCallbackError:
            raise BackendError(
                "a blocking call in a future's callback: it would wait for the very thread that it blocks; use "
                "publish_nowait, or hand over to another thread"
            ) from None

    # what the engine calls (FrontEnd)

    def take_in(self) -> None:
        """Do nothing: what a session sends takes effect at once."""

    def take_output(self, connection: ModelConnection) -> None:
        """Hand what the model says on a connection to the session."""
        for mine in self._connections:
            if mine.model is connection:
                mine.take_output()
                return
        connection.outbox.clear()

    def end_of_turn(self) -> None:
        """Let the connections report what is left, and the session send its acks."""
        for connection in list(self._connections):
            connection.report()
        if self._driven is not None:
            self._driven.end_of_turn()

    def next_deadline_ms(self) -> int | None:
        """Return when the session has something due."""
        return None if self._driven is None else self._driven.next_deadline_ms()

    def on_time(self) -> None:
        """Let the session do what is due."""
        if self._driven is not None:
            self._driven.on_time()


class InProcessMailbox:
    """Deliveries on their way from turns to the threads of an application."""

    def __init__(self, wait: Callable[[Callable[[], bool], int | None], bool]) -> None:
        self._items: deque[Any] = deque()
        self._wait = wait

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)

    def get(self, timeout_ms: int | None) -> Any | None:
        """Take the oldest item; wait for one as the engine waits."""
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                if not self._wait(self._has_items, timeout_ms):
                    return None

    def _has_items(self) -> bool:
        return bool(self._items)


class InProcessConnection:
    """One connection of a session to the model."""

    def __init__(
        self, engine: Engine, journal: Journal, link: InProcessLink, on_event: Callable[[amqp.Event], None]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._link = link
        self._on_event = on_event
        self._channels: dict[int, Channel] = {}
        self._confirming: set[int] = set()
        self._is_gone = False
        self._reports: deque[amqp.Event] = deque()
        """What does not come from the model's outbox."""
        self.model = engine.model.connect()
        engine.own(self.model, link)
        self._reports.append(amqp.ConnectionOpened({"product": "RabbitMQ", "version": engine.model.version.release}))

    def send(self, commands: Sequence[amqp.Command]) -> None:
        """Do the commands on the model, in order."""
        for command in commands:
            if not self._is_gone:
                self._perform(command)

    def close(self) -> None:
        """Close the connection in the model."""
        self.abort()

    def abort(self) -> None:
        """Close the connection in the model."""
        if not self._is_gone:
            self.model.close()
            self._lose("closing", 200, "Normal shutdown")

    def report(self) -> None:
        """Tell the session what does not come from the model's outbox."""
        while self._reports:
            self._on_event(self._reports.popleft())
        if self._is_gone:
            self._link.forget(self)

    def take_output(self) -> None:
        """Tell the session what the model has written."""
        outbox = self.model.outbox
        while outbox and not self._is_gone:
            self._translate(outbox.popleft())

    def _lose(self, stage: str, code: int, text: str) -> None:
        self._is_gone = True
        self._engine.disown(self.model)
        self._reports.append(amqp.ConnectionLost(stage, code, text, None))

    def _perform(self, command: amqp.Command) -> None:  # noqa: C901 -- one case per command
        number = command.channel
        if isinstance(command, amqp.OpenChannel):
            channel = self._channels[number] = self.model.open_channel(number)
            if command.confirms:
                self._confirming.add(number)
                channel.confirm_select()
            return
        known = self._channels.get(number)
        if known is None:
            return  # it is gone, and the session has been told, or is being told
        match command:
            case amqp.Publish():
                self._journal.is_ours = True
                known.basic_publish("", command.routing_key, to_model(command.properties), command.body, mandatory=True)
                self._journal.is_ours = False
            case amqp.Ack():
                known.basic_ack(command.delivery_tag, multiple=command.multiple)
            case amqp.Nack():
                known.basic_nack(command.delivery_tag, requeue=command.requeue)
            case amqp.Reject():
                known.basic_reject(command.delivery_tag, requeue=command.requeue)
            case amqp.DeclareQueue():
                known.queue_declare(
                    command.queue,
                    passive=command.passive,
                    durable=command.durable,
                    arguments=table_from_python(command.arguments),
                )
            case amqp.Consume():
                known.basic_qos(prefetch_count=command.prefetch)
                known.basic_consume(command.queue, consumer_tag=command.consumer_tag)
            case amqp.Cancel():
                known.basic_cancel(command.consumer_tag)
            case amqp.CloseChannel():
                known.close()

    def _translate(self, event: Any) -> None:  # noqa: C901, PLR0912 -- one case per event
        match event:
            case events.Deliver(channel, tag, delivery_tag, redelivered, exchange, routing_key, properties, body):
                readable = to_python(properties)
                self._on_event(
                    amqp.Delivered(channel, tag, delivery_tag, redelivered, exchange, routing_key, readable, body)
                )
            case events.Ack(channel, delivery_tag, multiple):
                self._on_event(amqp.Confirmed(channel, delivery_tag, multiple))
            case events.Nack(channel, delivery_tag, multiple):
                self._on_event(amqp.Nacked(channel, delivery_tag, multiple))
            case events.Return(channel, code, text, exchange, routing_key, properties):
                self._on_event(amqp.Returned(channel, code, text, exchange, routing_key, properties.message_id))
            case events.QueueDeclareOk(channel, queue, message_count, consumer_count):
                self._on_event(amqp.QueueDeclared(channel, queue, message_count, consumer_count))
            case events.ChannelOpenOk(channel):
                if channel not in self._confirming:
                    self._on_event(amqp.ChannelOpened(channel))
            case events.ConfirmSelectOk(channel):
                self._on_event(amqp.ChannelOpened(channel))
            case events.ConsumeOk(channel, tag):
                self._on_event(amqp.ConsumeStarted(channel, tag))
            case events.CancelOk(channel, tag):
                self._on_event(amqp.ConsumerCancelled(channel, tag, by_broker=False))
            case events.Cancel(channel, tag):
                self._on_event(amqp.ConsumerCancelled(channel, tag, by_broker=True))
            case events.ChannelClose(channel, code, text):
                self._channels.pop(channel).close_ok()
                self._on_event(amqp.ChannelClosed(channel, code, text))
            case events.ChannelCloseOk(channel):
                self._channels.pop(channel)
                self._on_event(amqp.ChannelClosed(channel, 200, "closed as asked"))
            case events.ConnectionClose(code, text):
                self._lose("open", code, text)


def to_model(properties: amqp.Properties) -> Properties:
    """Return properties as the model keeps them, header values typed as pika would send them."""
    values: dict[str, Any] = {name: getattr(properties, name) for name in properties.__struct_fields__}
    if properties.headers is not None:
        values["headers"] = table_from_python(properties.headers)
    return Properties(**values)


def to_python(properties: Properties) -> amqp.Properties:
    """Return properties as pika would decode them."""
    values = dict(properties.values())
    if "headers" in values:
        values["headers"] = table_to_python(values["headers"])
    return amqp.Properties(**values)
