"""A SelectConnection of a link as the port's Connection.

Owns the stages of its life, the nodes that are tried and its bound for connecting, and says in one event how it ended.
Refuses to reconnect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pika
import pika.adapters.select_connection
import pika.exceptions
import pika.frame
import pika.spec

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core import real_time
from queuey_rabbitmq.pika_link import failures, stream
from queuey_rabbitmq.pika_link.channel import PikaChannel
from queuey_rabbitmq.pika_link.parameters import BrokerParameters
from queuey_rabbitmq.pika_link.turns import Turns

log = logging.getLogger("queuey_rabbitmq")


class PikaConnection:
    """A connection from its first attempt to its end; `on_lost` is called once, when nothing of it is left.

    The nodes of the broker are tried in turn, each for an equal share of what is left of connect_timeout, so that
    one which swallows packets leaves time for those behind it.
    """

    def __init__(
        self,
        loop: pika.adapters.select_connection.IOLoop,
        broker: BrokerParameters,
        *,
        name: str,
        first: int,
        turns: Turns,
        on_event: Callable[[amqp.Event], None],
        on_lost: Callable[[PikaConnection], None],
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._turns = turns
        self._on_event = on_event
        self._on_lost = on_lost
        self._channels: dict[int, PikaChannel] = {}
        self._sends = 0
        self.name = name
        self.first = first
        """Which node is tried first, then those behind it, and round."""
        self.is_open = False
        self.closing = False
        self.dropped = False
        self.lost = False
        self._attempts: list[failures.Attempt] = []
        self._connect_by_ms = real_time.monotonic_ns() // 1_000_000 + broker.connect_timeout_ms
        self._connect_timer: object | None = None
        self._try_next(broker.connect_timeout_ms)

    @property
    def place(self) -> int:
        """Return which node it is, or is being tried."""
        return (self.first + len(self._attempts)) % len(self._broker.nodes)

    def _try_next(self, left_ms: int) -> None:
        self._stage = failures.CONNECTING
        self._said_by_broker: tuple[int, str] | None = None
        self._timed_out = self.dropped = False
        self._given_up: Exception | None = None
        self._node = self._broker.nodes[self.place]
        self._within_ms = max(1, left_ms // (len(self._broker.nodes) - len(self._attempts)))
        self._pika = stream.CONNECTION_CLASS(
            self._broker.named(self.name, self._node, within_ms=self._within_ms),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
            custom_ioloop=self._loop,
        )
        self.flush = stream.flusher(self._pika)
        callbacks = self._pika.callbacks
        callbacks.add(0, pika.spec.Connection.Start, self._on_start)
        callbacks.add(0, pika.spec.Connection.Tune, self._on_tune)
        callbacks.add(0, pika.spec.Connection.Close, self._on_closed_by_broker)
        self._pika.add_on_connection_blocked_callback(self._on_blocked)
        self._pika.add_on_connection_unblocked_callback(self._on_unblocked)
        self._connect_timer = self._loop.call_later(self._within_ms / 1000, self._on_connect_timeout)

    # ------------------------------------------------------------------------------------------------ the port

    def send(self, commands: Sequence[amqp.Command]) -> None:
        """Write commands; see the port."""
        if self.lost or self.closing:
            return
        self._sends += 1
        for command in commands:
            channel = self._channels.get(command.channel)
            if channel is not None:
                channel.take(command, self._sends)
            elif type(command) is amqp.OpenChannel:
                self._open_channel(command)

    def close(self) -> None:
        """Start to close; see the port."""
        if self.lost or self.closing:
            return
        if not self._pika.is_open:
            self.abort()  # there is nobody to say goodbye to yet
            return
        self.closing = True
        for channel in self._channels.values():
            channel.consuming.clear()  # what is still to come could not be settled any more
        self._pika.close()

    def abort(self) -> None:
        """Drop the connection without a word; see the port."""
        if self.lost:
            return
        self.closing = True
        if not self.dropped:
            self._drop(f"the connection to {self._node} was dropped on purpose")

    @property
    def is_connecting(self) -> bool:
        """Whether there is no TCP connection yet that pika has taken over."""
        return not self.lost and self._stage == failures.CONNECTING

    def give_up(self, error: Exception) -> None:
        """Drop an attempt to connect that pika has left unfinished."""
        if not self.dropped:
            self._given_up = error
            self._drop(f"no connection with {self._node}: {error}")

    # --------------------------------------------------------------------------------------- what channels need

    def event(self, event: amqp.Event) -> None:
        """Tell the session."""
        self._turns.event(self._on_event, event)

    def refused(self, command: amqp.Command, error: Exception) -> None:
        """Tell the session, when it has returned, that a command cannot be written."""
        self._turns.late_event(self._on_event, amqp.CommandRefused(command.channel, command, error))

    def forget(self, number: int) -> None:
        """Drop a channel that is gone."""
        self._channels.pop(number, None)

    def _open_channel(self, command: amqp.OpenChannel) -> None:
        channel = PikaChannel(self, command)
        try:
            channel.open(self._pika)
        except pika.exceptions.NoFreeChannels:
            in_use = f"all {self._pika.params.channel_max} channels that channel_max allows are in use"
            self.refused(command, RuntimeError(in_use))
        except Exception as error:  # noqa: BLE001 -- not open yet, say: the session is told in any case
            self.refused(command, error)
        else:
            self._channels[command.channel] = channel

    def _drop(self, why: str) -> None:
        self.dropped = True
        stream.drop(self._pika, pika.exceptions.AMQPConnectionError(why))

    # ------------------------------------------------------------------------------------------ pika's callbacks

    def _on_start(self, _frame: pika.frame.Method) -> None:
        self._stage = failures.LOGGING_IN

    def _on_tune(self, _frame: pika.frame.Method) -> None:
        self._stage = failures.OPENING

    def _on_closed_by_broker(self, frame: pika.frame.Method) -> None:
        """Keep the broker's own words: while a connection opens, pika puts its guess in their place."""
        self._said_by_broker = (frame.method.reply_code, frame.method.reply_text)

    def _on_open(self, connection: pika.SelectConnection) -> None:
        self._stop_timer()
        self._stage = failures.OPEN
        self.is_open = True
        log.info("the %s connection is with %s", self.name, self._node)
        self.event(amqp.ConnectionOpened(connection.server_properties))

    def _on_blocked(self, _connection: pika.SelectConnection, frame: pika.frame.Method) -> None:
        self.event(amqp.ConnectionBlocked(frame.method.reason))

    def _on_unblocked(self, _connection: pika.SelectConnection, _frame: pika.frame.Method) -> None:
        self.event(amqp.ConnectionUnblocked())

    def _on_connect_timeout(self) -> None:
        self._connect_timer = None
        self._timed_out = True
        self._drop(f"not connected within {self._within_ms / 1000:g} s")

    def _on_open_error(self, _connection: pika.SelectConnection, error: BaseException) -> None:
        self._stop_timer()
        if self.closing:
            self._end(amqp.ConnectionLost(failures.CLOSING, 0, str(error), error))
            return
        stage = self._reached()
        if self._timed_out:
            attempt = failures.timed_out(self._node, stage, self._within_ms, error)
        elif self._said_by_broker is not None:
            attempt = failures.refused(self._node, stage, *self._said_by_broker, error)
        elif self._given_up is not None:
            attempt = failures.gone_wrong_here(self._node, stage, self._given_up)
        else:
            attempt = failures.failed(self._node, stage, error)
        self._attempts.append(attempt)
        if len(self._attempts) < len(self._broker.nodes):
            log.warning("connecting failed while %s: %s; trying the next node", attempt.stage, attempt.text)
            self._try_next(self._connect_by_ms - real_time.monotonic_ns() // 1_000_000)
        else:
            self._end(failures.lost(self._attempts))

    def _on_close(self, _connection: pika.SelectConnection, error: BaseException) -> None:
        stage = failures.CLOSING if self.closing else failures.OPEN
        code, text = failures.ended(error)
        if len(self._broker.nodes) > 1:
            text += f"; it was with {self._node}"
        self._end(amqp.ConnectionLost(stage, code, text, error))

    def _reached(self) -> str:
        """Return the stage, telling a TCP connection that is not there yet from one that answers nothing."""
        if self._stage == failures.CONNECTING and self._pika.bytes_sent:
            return failures.WAITING  # the AMQP header went out, and nothing came back
        return self._stage

    def _stop_timer(self) -> None:
        if self._connect_timer is not None:
            self._loop.remove_timeout(self._connect_timer)
            self._connect_timer = None

    def _end(self, event: amqp.ConnectionLost) -> None:
        self.lost = True
        self._channels.clear()
        self._on_lost(self)
        self.event(event)
