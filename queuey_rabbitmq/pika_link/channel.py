"""One channel of a connection: the port's commands to pika's calls, pika's callbacks to the port's events.

Owns the order of commands on the channel, and the choice between pika's way and the short one for what comes by the
thousand. pika keeps an AMQP method that has an answer back while an earlier one is
unanswered, and lets everything else pass: a declaration could end up behind its publish. So commands wait here
instead, in order. Knows nothing of what a command is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pika
import pika.channel
import pika.exceptions
import pika.frame
import pika.spec

from queuey_rabbitmq import amqp
from queuey_rabbitmq.pika_link import frames
from queuey_rabbitmq.pika_link.stream import FastConnection

REPLY_SUCCESS = 200


class Owner(Protocol):
    """What a channel needs of its connection."""

    def event(self, event: amqp.Event) -> None:
        """Tell the session."""

    def refused(self, command: amqp.Command, error: Exception) -> None:
        """Tell the session, when it has returned, that a command cannot be written."""

    def forget(self, number: int) -> None:
        """Drop the channel: it is gone."""


class PikaChannel:
    """A channel under the number that the session gave it."""

    __slots__ = (
        "_asked_to_close",
        "_channel",
        "_confirms",
        "_consumers",
        "_emit",
        "_fast",
        "_held",
        "_max_body",
        "_opening",
        "_owner",
        "_refused_declaration",
        "_waiting",
        "consuming",
        "number",
    )

    def __init__(self, owner: Owner, command: amqp.OpenChannel) -> None:
        self.number = command.channel
        self._owner = owner
        self._emit = owner.event
        self._confirms = command.confirms
        self._channel: pika.channel.Channel = None
        self._opening = True
        self._waiting = True
        """Whether a method is unanswered."""
        self._held: deque[tuple[int, amqp.Command]] = deque()
        self._refused_declaration = 0
        """The send in which a declaration was refused: what stands behind it there must not go without it."""
        self._consumers: set[str] = set()
        self._fast: FastConnection | None = None
        """The connection, once the channel is open, where it knows the short way."""
        self._max_body = 0
        self.consuming: set[str] = set()
        self._asked_to_close = False

    def open(self, connection: pika.SelectConnection) -> None:
        """Start to open. Raises what pika raises where it cannot."""
        self._channel = connection.channel(on_open_callback=self._on_open)
        self._channel.add_on_close_callback(self._on_closed)

    def take(self, command: amqp.Command, send: int) -> None:
        """Write a command now, or as soon as those before it are written; `send` numbers the calls of `send`."""
        if self._held or (self._waiting and (self._opening or type(command) in _ANSWERED)):
            self._held.append((send, command))
        else:
            self._perform(command, send)

    def _perform(self, command: amqp.Command, send: int) -> None:
        if self._refused_declaration == send:
            self._owner.refused(command, ValueError("the declaration before it, in the same send, was refused"))
            return
        try:
            _WRITE[type(command)](self, command)
        except (pika.exceptions.ChannelWrongStateError, pika.exceptions.ConnectionWrongStateError):
            return  # gone: the event that says so has come, or is coming
        except Exception as error:  # noqa: BLE001 -- pika's encoders raise a dozen different things
            header = frames.unwritable_header(command.properties.headers) if type(command) is amqp.Publish else None
            self._owner.refused(command, error if header is None else ValueError(header))
            if type(command) is amqp.DeclareQueue:
                self._refused_declaration = send

    def _answered(self) -> None:
        """Go on with what was held back while a method was unanswered."""
        self._waiting = False
        while self._held and not (self._waiting and type(self._held[0][1]) in _ANSWERED):
            send, command = self._held.popleft()
            self._perform(command, send)

    # ------------------------------------------------------------------------------------------------ commands

    def publish(self, command: amqp.Publish) -> None:
        """Write a publish, mandatory, through the default exchange."""
        if self._fast is not None and len(command.body) <= self._max_body and self._channel.is_open:
            try:
                written = frames.encode_publish(
                    self._channel.channel_number, command.routing_key, command.properties, command.body
                )
            except Exception:  # noqa: BLE001, S110 -- not in the plain form: pika takes it, or says what is wrong
                pass
            else:
                self._fast.emit(written)
                return
        p = command.properties
        self._channel.basic_publish(
            "",
            command.routing_key,
            command.body,
            pika.BasicProperties(
                p.content_type,
                p.content_encoding,
                p.headers,
                p.delivery_mode,
                p.priority,
                p.correlation_id,
                p.reply_to,
                p.expiration,
                p.message_id,
                p.timestamp,
                p.type,
                p.user_id,
                p.app_id,
                p.cluster_id,
            ),
            True,
        )

    def declare(self, command: amqp.DeclareQueue) -> None:
        """Write a declaration."""
        self._channel.queue_declare(
            command.queue,
            passive=command.passive,
            durable=command.durable,
            arguments=dict(command.arguments),
            callback=self._on_declared,
        )
        self._waiting = True

    def consume(self, command: amqp.Consume) -> None:
        """Set the prefetch; the consumer follows when the broker has it."""
        self._channel.basic_qos(prefetch_count=command.prefetch, callback=partial(self._on_qos, command))
        self._waiting = True

    def cancel(self, command: amqp.Cancel) -> None:
        """Write a cancel, unless the consumer is gone already."""
        if command.consumer_tag in self._consumers:
            self.consuming.discard(command.consumer_tag)  # pika gives back what is still to come
            self._channel.basic_cancel(command.consumer_tag, callback=self._on_cancelled)
            self._waiting = True

    def ack(self, command: amqp.Ack) -> None:
        """Write an ack."""
        self._channel.basic_ack(command.delivery_tag, command.multiple)

    def nack(self, command: amqp.Nack) -> None:
        """Write a nack."""
        self._channel.basic_nack(command.delivery_tag, multiple=command.multiple, requeue=command.requeue)

    def reject(self, command: amqp.Reject) -> None:
        """Write a reject."""
        self._channel.basic_reject(command.delivery_tag, command.requeue)

    def close(self, _command: amqp.CloseChannel) -> None:
        """Start to close."""
        self.consuming.clear()
        self._channel.close(REPLY_SUCCESS)
        self._asked_to_close = True
        self._waiting = True

    # ------------------------------------------------------------------------------------------ pika's callbacks

    def _on_open(self, channel: pika.channel.Channel) -> None:
        channel.add_on_return_callback(self._on_returned)
        channel.add_on_cancel_callback(self._on_cancelled_by_broker)
        if self._confirms:
            channel.confirm_delivery(self._on_ack_or_nack, callback=self._on_opened)
        else:
            self._on_opened(None)

    def _on_opened(self, _frame: pika.frame.Method | None) -> None:
        connection = self._channel.connection
        if isinstance(connection, FastConnection):
            self._fast = connection
            self._max_body = connection.params.frame_max - frames.OVERHEAD
            connection.sinks[self._channel.channel_number] = self
        self._opening = False
        self._answered()
        self._emit(amqp.ChannelOpened(self.number))

    def _on_ack_or_nack(self, frame: pika.frame.Method) -> None:
        method = frame.method
        self.on_confirm(method.delivery_tag, multiple=method.multiple, is_ack=isinstance(method, pika.spec.Basic.Ack))

    def on_confirm(self, delivery_tag: int, *, multiple: bool, is_ack: bool) -> None:
        """Take an ack or nack of the broker, on either way."""
        self._emit((amqp.Confirmed if is_ack else amqp.Nacked)(self.number, delivery_tag, multiple))

    def _on_returned(
        self,
        _channel: pika.channel.Channel,
        method: pika.spec.Basic.Return,
        properties: pika.BasicProperties,
        _body: bytes,
    ) -> None:
        self._emit(
            amqp.Returned(
                self.number,
                method.reply_code,
                method.reply_text,
                method.exchange,
                method.routing_key,
                properties.message_id,
            )
        )

    def _on_declared(self, frame: pika.frame.Method) -> None:
        method = frame.method
        self._answered()
        self._emit(amqp.QueueDeclared(self.number, method.queue, method.message_count, method.consumer_count))

    def _on_qos(self, command: amqp.Consume, _frame: pika.frame.Method) -> None:
        self._consumers.add(command.consumer_tag)
        self.consuming.add(command.consumer_tag)
        try:
            self._channel.basic_consume(
                command.queue,
                self._on_delivered,
                consumer_tag=command.consumer_tag,
                callback=partial(self._on_consume_started, command.consumer_tag),
            )
        except Exception as error:  # noqa: BLE001 -- pika's encoders raise a dozen different things
            self._consumers.discard(command.consumer_tag)
            self.consuming.discard(command.consumer_tag)
            self._owner.refused(command, error)
            self._answered()

    def _on_consume_started(self, consumer_tag: str, _frame: pika.frame.Method) -> None:
        self._answered()
        self._emit(amqp.ConsumeStarted(self.number, consumer_tag))

    def on_delivery(self, delivery: amqp.Delivered) -> None:
        """Take a delivery on the short way."""
        self._emit(delivery)

    def _on_delivered(
        self,
        _channel: pika.channel.Channel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        self._emit(
            amqp.Delivered(
                self.number,
                method.consumer_tag,
                method.delivery_tag,
                method.redelivered,
                method.exchange,
                method.routing_key,
                properties,
                body,
            )
        )

    def _on_cancelled(self, frame: pika.frame.Method) -> None:
        self._answered()
        self._consumer_gone(frame.method.consumer_tag, by_broker=False)

    def _on_cancelled_by_broker(self, frame: pika.frame.Method) -> None:
        self._consumer_gone(frame.method.consumer_tag, by_broker=True)

    def _consumer_gone(self, consumer_tag: str, *, by_broker: bool) -> None:
        if consumer_tag in self._consumers:  # once, though the broker's cancel and the answer to ours may cross
            self._consumers.discard(consumer_tag)
            self.consuming.discard(consumer_tag)
            self._emit(amqp.ConsumerCancelled(self.number, consumer_tag, by_broker))

    def _on_closed(self, _channel: pika.channel.Channel, reason: Exception) -> None:
        self._held.clear()
        if self._fast is not None:
            self._fast.sinks.pop(self._channel.channel_number, None)
        self._owner.forget(self.number)
        if isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self._emit(amqp.ChannelClosed(self.number, reason.reply_code, reason.reply_text))
        elif isinstance(reason, pika.exceptions.ChannelClosedByClient) and self._asked_to_close:
            self._emit(amqp.ChannelClosed(self.number, REPLY_SUCCESS, "closed as asked"))
        # Otherwise it ends with its connection, whose end says it all.


_ANSWERED = frozenset({amqp.DeclareQueue, amqp.Consume, amqp.Cancel, amqp.CloseChannel})

_WRITE: dict[type[amqp.Command], Callable[[PikaChannel, Any], None]] = {
    amqp.Publish: PikaChannel.publish,
    amqp.DeclareQueue: PikaChannel.declare,
    amqp.Consume: PikaChannel.consume,
    amqp.Cancel: PikaChannel.cancel,
    amqp.Ack: PikaChannel.ack,
    amqp.Nack: PikaChannel.nack,
    amqp.Reject: PikaChannel.reject,
    amqp.CloseChannel: PikaChannel.close,
}
