"""A connection: its channels, its exclusive queues, and the outbox of what the broker says to its client.

Owns no rule beyond what opening and closing brings with it. Knows no socket.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from queuey_fake.model import errors, events
from queuey_fake.model.channel import Channel
from queuey_fake.model.door import ChannelState, Door
from queuey_fake.model.queue import CONNECTION_ENDED

if TYPE_CHECKING:
    from queuey_fake.model.broker import Broker
    from queuey_fake.model.errors import AmqpException, ConnectionException
    from queuey_fake.model.vhost import VHost

CLIENT_CAPABILITIES = frozenset(
    {
        "authentication_failure_close",
        "basic.nack",
        "connection.blocked",
        "consumer_cancel_notify",
        "exchange_exchange_bindings",
        "publisher_confirms",
    }
)


class Connection:
    """One client's connection. A front end takes its events from `outbox`, oldest first."""

    def __init__(
        self, broker: Broker, vhost: VHost, *, number: int, user: str, name: str | None, capabilities: frozenset[str]
    ) -> None:
        self.broker = broker
        self.vhost = vhost
        self.number = number
        self.user = user
        self.name = name
        self.capabilities = capabilities
        self.channels: dict[int, Channel] = {}
        self.outbox: deque[Any] = deque()  # of events, and of what the front end itself says between them
        self.is_open = True
        self.is_refused = False
        """Whether it ends for what its client did on a channel: the others settle nothing any more."""
        self.is_lost = False
        """Whether it ended without a word: its front end is to end it in the same way."""
        self.is_blocked = False
        """Whether nothing more is to be read from it while the broker's alarm lasts."""
        self._with_output = broker.connections_with_output

    def send(self, event: events.Event) -> None:
        """Put an event into the outbox."""
        self.outbox.append(event)
        self._with_output[self] = None

    def open_channel(self, number: int) -> Channel:
        """channel.open, with the number that the client picked; to open one twice closes the connection."""
        existing = self.channels.get(number)
        if existing is not None:
            self.refuse(errors.channel_opened_twice(), 20, 10)  # also while the broker waits for its close-ok
            self.broker.deliver_mail()
            return existing
        channel = Channel(self, number)
        if self.is_open:
            self.channels[number] = channel
            self.send(events.ChannelOpenOk(number))
        else:
            channel.state = ChannelState.CLOSED
        return channel

    def refuse_unopened(self, number: int, refusal: AmqpException, class_id: int, method_id: int) -> Channel:
        """Close a channel that was never opened; its number is taken until the client's close-ok."""
        channel = self.channels[number] = Channel(self, number)
        channel.refuse(refusal, class_id, method_id)
        return channel

    def forget(self, channel: Door) -> None:
        """Let go of a channel that is closed; its number may be opened again."""
        del self.channels[channel.number]

    def refuse(
        self, refusal: ConnectionException, class_id: int, method_id: int, *, channel: Door | None = None
    ) -> None:
        """Close the connection for what its client did, on a channel or beside them.

        The channel gives back what it holds before the connection hears of it (rabbit_channel:handle_exception): the
        others, whichever was opened first, may still be handed that, which is its end where a classic queue hands it
        to a consumer without acknowledgements (scenarios connection_refused_auto_ack_beside, also of a quorum queue).
        """
        if channel is not None:
            self.is_refused = True
            self._release(channel)
        self._end()
        self.send(events.ConnectionClose(refusal.code, refusal.text, class_id, method_id))

    def close(self) -> None:
        """connection.close: what is not settled goes back, exclusive queues go, the reply follows."""
        if self.is_open:
            self._end()
            self.send(events.ConnectionCloseOk())
            self.broker.deliver_mail()

    def lose(self) -> None:
        """End the connection without a word, as when its socket is gone."""
        if self.is_open:
            self.is_lost = True
            self._with_output[self] = None
            self._end()
            self.broker.deliver_mail()

    def blocks_publish(self) -> bool:
        """Block it at a publish while there is an alarm; tell whether nothing more is to be read from it.

        RabbitMQ does so behind any frame of a content, whether the connection has published before or not, and says
        connection.blocked then; it still writes (rabbit_reader:publish_received; measured on 3.10.8, 4.0.5 and 4.3.6).
        """
        alarm = self.broker.alarm
        if alarm is not None and not self.is_blocked and self.is_open:
            self.is_blocked = True
            if "connection.blocked" in self.capabilities:
                self.send(events.ConnectionBlocked(alarm))
        return self.is_blocked

    def unblock(self) -> None:
        """Let it be read again."""
        if self.is_blocked:
            self.is_blocked = False
            self._with_output[self] = None  # the front end reads again, told or not
            if "connection.blocked" in self.capabilities:
                self.send(events.ConnectionUnblocked())

    def _end(self) -> None:
        self.is_open = False
        channels = list(self.channels.values())
        for channel in channels:
            self._release(channel)
        self.channels = {}
        for queue in [queue for queue in self.vhost.queues.values() if queue.owner is self]:
            queue.stop(CONNECTION_ENDED)
        self.broker.forget(self)

    @staticmethod
    def _release(channel: Door) -> None:
        if channel.state is ChannelState.OPEN:
            channel.release()
        channel.state = ChannelState.CLOSED
