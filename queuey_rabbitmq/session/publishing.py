"""Publishing: the channel on which many messages are in flight, and the pool on which one operation has a channel.

The pool is for what must not share: a hold queue's declaration with the message written right behind it (a refused
declaration closes the channel, and exactly that operation fails), and large bodies (a message over the broker's
size limit closes the channel too, and with it goes the answer to everything else in flight on it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import BackendError, ChannelClosedError, DeclareRefusedError
from queuey_rabbitmq.session.confirms import ConfirmLedger
from queuey_rabbitmq.session.connection import ManagedChannel, SessionConnection
from queuey_rabbitmq.session.endings import Endings, remedy
from queuey_rabbitmq.session.operations import PublishOperation, QueueDeclaration

LARGE_BODY_BYTES = 1_000_000
"""From this size on a message has a channel to itself while it is in flight."""
UNANSWERED_MS = 1_000
"""From then on what waits for a channel of the pool goes out on another one than that which is not answered."""
RENEWED_EVERY_MS = 500
"""At most so often another channel is taken because of a nack: a quorum queue has a new leader in less than a second,
and what is published to a queue at its length limit is all nacked."""


class PublishChannel(ManagedChannel):
    """Messages in flight together; each is confirmed, nacked or returned by itself.

    A nack is followed by another channel. Up to 3.11, one that first publishes to a quorum queue when the node of its
    leader is gone and the new leader not known yet has everything nacked that it publishes there, for as long as that
    node is down (rabbit_fifo_client:enqueue, seen on 3.10); a new channel looks for the leader again.
    """

    confirms = True
    handlers: ClassVar = {
        amqp.Confirmed: "_confirmed",
        amqp.Nacked: "_nacked",
        amqp.Returned: "_returned",
    }

    def __init__(self, connection: SessionConnection, endings: Endings) -> None:
        super().__init__(connection)
        self._endings = endings
        self._ledger = ConfirmLedger()
        self._waiting: deque[PublishOperation] = deque()
        self._predecessor: RetiredChannel | None = None
        self._renewed_ms: int | None = None

    def publish(self, operation: PublishOperation) -> None:
        """Send a message now, or as soon as the channel is open and the broker reads."""
        if self.state == "open" and self.connection.blocked is None:
            self._send(operation)
        else:
            self._waiting.append(operation)
            self.open()

    def resume(self) -> None:
        """Send what waited, where that is possible now."""
        if self.state != "open":
            if self._waiting:
                self.open()
            return
        while self._waiting and self.connection.blocked is None:
            self._send(self._waiting.popleft())

    def forget_finished(self) -> None:
        """Drop what waited until its deadline."""
        self._waiting = self._endings.unfinished(self._waiting)
        if self._predecessor is not None:
            self._predecessor.end_if_done()

    def opened(self) -> None:
        """Send what waited for the channel."""
        self.resume()

    def not_opened(self, error: BackendError) -> None:
        """Fail what waited for the channel."""
        waiting, self._waiting = self._waiting, deque()
        for operation in waiting:
            self._endings.not_sent(operation, error)

    def refused(self, event: amqp.CommandRefused) -> None:
        """Fail the message that cannot be written."""
        assert isinstance(event.command, amqp.Publish), "this channel only publishes"
        operation = self._ledger.refused(event.command.properties)
        if operation is not None:
            self._endings.refused_here(operation, event.error)

    def closed(self, code: int, text: str) -> None:
        """End what was in flight as unknown; what waited goes out on the next channel."""
        why = ChannelClosedError(f"the broker closed the publishing channel: {code} {text}", code=code, text=text)
        for operation in self._ledger.take_all():
            self._endings.unknown(operation, why)
        self._ledger = ConfirmLedger()
        self.resume()

    def lost(self, error: BackendError, *, before: Sequence[PublishOperation] = ()) -> None:
        """Keep what was in flight to send it again, before what waited; or end it as unknown."""
        in_flight = [*before, *self._ledger.take_all()]
        self._ledger = ConfirmLedger()
        if self.connection.republishes:
            self._waiting = self._endings.unfinished([*in_flight, *self._waiting])
            return
        for operation in in_flight:
            self._endings.unknown(operation, error)

    def _send(self, operation: PublishOperation) -> None:
        if not self._endings.may_go(operation):
            return
        message = operation.message
        operation.sent, operation.returned = True, None
        self._ledger.published(operation)
        self.connection.send([amqp.Publish(self.number, message.queue, message.properties, message.body)])

    def _confirmed(self, event: amqp.Confirmed) -> None:
        settled = self._ledger.settle(event.delivery_tag, multiple=event.multiple)
        self._endings.release(*settled)
        for operation in settled:
            self._endings.confirmed(operation)

    def _nacked(self, event: amqp.Nacked) -> None:
        for operation in self._ledger.settle(event.delivery_tag, multiple=event.multiple):
            self._endings.nacked(operation)
        self._renew()

    def _returned(self, event: amqp.Returned) -> None:
        self._ledger.returned(event.routing_key, event.message_id, f"{event.code} {event.text}")

    def _renew(self) -> None:
        now_ms = self.connection.monotonic_ms()
        is_early = self._renewed_ms is not None and now_ms < self._renewed_ms + RENEWED_EVERY_MS
        if is_early or self._predecessor is not None:
            return
        self._renewed_ms = now_ms
        self._predecessor = RetiredChannel(self.connection, self._endings, self, self.number, self._ledger)
        self._ledger = ConfirmLedger()
        self.state = "closed"
        self._predecessor.end_if_done()

    def predecessor_ended(self) -> None:
        """Learn that everything on the channel before this one has been answered, or that it is gone."""
        self._predecessor = None


class RetiredChannel(PublishChannel):
    """A channel on which nothing more is published; closed when what was in flight is answered, or overdue."""

    def __init__(
        self,
        connection: SessionConnection,
        endings: Endings,
        successor: PublishChannel,
        number: int,
        ledger: ConfirmLedger,
    ) -> None:
        super().__init__(connection, endings)
        self._successor = successor
        self._ledger = ledger
        self.number = number
        self.state = "open"
        connection.hand_over_channel(number, self)

    def end_if_done(self) -> None:
        """Close the channel once nobody waits for an answer on it, and do not wait for the answer to that."""
        if self.state == "open" and not self._ledger.is_awaited:
            self.state = "closed"
            self.connection.forget_channel(self.number)
            self.connection.send([amqp.CloseChannel(self.number)])
            self.closed(200, "it was no longer used")

    def refused(self, event: amqp.CommandRefused) -> None:
        """Fail the message that cannot be written."""
        super().refused(event)
        self.end_if_done()

    def closed(self, code: int, text: str) -> None:
        """End what was in flight as unknown."""
        super().closed(code, text)
        self._successor.predecessor_ended()

    def lost(self, error: BackendError, *, before: Sequence[PublishOperation] = ()) -> None:
        """Leave what was in flight to the successor, as what was published before its own."""
        self._successor.predecessor_ended()
        self._successor.lost(error, before=[*before, *self._ledger.take_all()])

    def _confirmed(self, event: amqp.Confirmed) -> None:
        super()._confirmed(event)
        self.end_if_done()

    def _renew(self) -> None:
        self.end_if_done()


class SoloChannel(ManagedChannel):
    """One operation at a time, so that whatever comes is its answer."""

    confirms = True
    handlers: ClassVar = {
        amqp.Confirmed: "_confirmed",
        amqp.Nacked: "_nacked",
        amqp.Returned: "_returned",
        amqp.QueueDeclared: "_declared",
    }

    def __init__(self, connection: SessionConnection, endings: Endings, pool: SoloPool) -> None:
        super().__init__(connection)
        self._endings = endings
        self._pool = pool
        self._operation: PublishOperation | None = None
        self._is_declared = False
        self._sent_ms = 0

    def perform(self, operation: PublishOperation) -> None:
        """Send an operation, declaration and message as one write, when the channel is open."""
        self._operation = operation
        if self.state == "open":
            self._send()
        else:
            self.open()

    @property
    def declaration(self) -> QueueDeclaration | None:
        """Return what it has declared and the broker has not answered, if anything."""
        return None if self._operation is None or self._is_declared else self._operation.declaration

    def is_unanswered(self, now_ms: int) -> bool:
        """Tell whether its operation is at the broker for long."""
        return self.state == "open" and self._operation is not None and now_ms - self._sent_ms >= UNANSWERED_MS

    def give_up(self) -> bool:
        """Start to close the channel where its operation has ended at its deadline; tell whether it was so."""
        is_over = self.state == "open" and self._operation is not None and self._operation.finished
        if is_over:
            self.close()
        return is_over

    def close(self) -> None:
        """Start to close the channel, if it is open."""
        if self.state == "open":
            self.state = "closing"
            self.connection.send([amqp.CloseChannel(self.number)])

    def opened(self) -> None:
        """Send what waited for the channel."""
        if self._operation is not None:
            self._send()

    def not_opened(self, error: BackendError) -> None:
        """Leave the operation to the channels of the pool that are open."""
        operation, _ = self._take()
        assert operation is not None, "a solo channel is opened for an operation"
        self._pool.not_opened(self, operation, error)

    def refused(self, event: amqp.CommandRefused) -> None:
        """Fail the operation: a part of it cannot be written."""
        operation, _ = self._take()
        if operation is not None:
            self._endings.refused_here(operation, event.error)
            self._answered()

    def closed(self, code: int, text: str) -> None:
        """Fail the operation: the broker refused its declaration or its message."""
        operation, is_declared = self._take()
        if operation is not None:
            self._endings.release(operation)
            self._endings.fail(operation, refusal(operation, code, text, is_declared=is_declared))
        self._pool.next(self)

    def lost(self, error: BackendError) -> None:
        """End the operation as unknown if it was sent; else it waits with the pool for the session to decide."""
        operation, _ = self._take()
        if operation is None:
            return
        if operation.sent and not self.connection.republishes:
            self._endings.unknown(operation, error)
        else:
            self._pool.wait_again(operation)

    def _send(self) -> None:
        operation = self._operation
        assert operation is not None, "a solo channel sends only what it was given"
        if not self._endings.may_go(operation):
            self._take()
            self._pool.next(self)
            return
        operation.sent, operation.returned = True, None
        self._sent_ms = self.connection.monotonic_ms()
        message, declaration = operation.message, operation.declaration
        commands: list[amqp.Command] = []
        if declaration is not None:
            commands.append(
                amqp.DeclareQueue(
                    channel=self.number,
                    queue=declaration.queue,
                    durable=declaration.durable,
                    arguments=declaration.arguments,
                )
            )
        commands.append(amqp.Publish(self.number, message.queue, message.properties, message.body))
        self.connection.send(commands)

    def _take(self) -> tuple[PublishOperation | None, bool]:
        taken = self._operation, self._is_declared
        self._operation, self._is_declared = None, False
        return taken

    def _declared(self, _event: amqp.QueueDeclared) -> None:
        self._is_declared = True

    def _returned(self, event: amqp.Returned) -> None:
        if self._operation is not None:
            self._operation.returned = f"{event.code} {event.text}"

    def _confirmed(self, _event: amqp.Confirmed) -> None:
        operation, _ = self._take()
        if operation is not None:
            self._endings.confirmed(operation)
        self._answered()

    def _nacked(self, _event: amqp.Nacked) -> None:
        operation, _ = self._take()
        if operation is not None:
            self._endings.nacked(operation)
        self.close()  # as PublishChannel takes another one

    def _answered(self) -> None:
        if self.state == "open":  # an answer may cross the close of a channel that was given up
            self._pool.next(self)


class SoloPool:
    """A few channels that serve operations which need one to themselves, in the order they came.

    One that is not answered is put by, with what is on it, when something waits for a channel: RabbitMQ 4 answers
    neither a declaration nor the close of its channel while the node of a classic queue is down (seen on clusters of
    4.0 and 4.3), and other queues have no part in that.
    """

    def __init__(
        self,
        connection: SessionConnection,
        endings: Endings,
        *,
        channels: int,
        later: Callable[[int, Callable[[], object]], None],
    ) -> None:
        self._connection = connection
        self._endings = endings
        self._channels = [SoloChannel(connection, endings, self) for _ in range(channels)]
        self._free = deque(self._channels)
        self._put_by: set[SoloChannel] = set()
        """Channels in whose place there are others; closed when they are answered, or overdue."""
        self._waiting: deque[PublishOperation] = deque()
        self._later = later
        self._will_look = False

    def perform(self, operation: PublishOperation) -> None:
        """Send an operation on a free channel, or when one is free."""
        self._waiting.append(operation)
        self.resume()

    def resume(self) -> None:
        """Give what waits to the channels that are free, where that is possible now."""
        while self._free and self._is_ready() and (operation := self._next_operation()) is not None:
            # An open channel first: opening one costs a round trip.
            channel = next((c for c in self._free if c.state == "open"), self._free[0])
            self._free.remove(channel)
            channel.perform(operation)
        if self._waiting and not self._free and not self._will_look and self._is_ready():
            self._will_look = True
            self._later(UNANSWERED_MS, self._look)

    def next(self, channel: SoloChannel) -> None:
        """Take back a channel that has done its work."""
        if channel in self._put_by:
            self._put_by.discard(channel)
            channel.close()
        elif channel not in self._free:
            self._free.append(channel)
        self.resume()

    def not_opened(self, channel: SoloChannel, operation: PublishOperation, error: BackendError) -> None:
        """Do without a channel for which the connection has no room, as long as there is another one."""
        if any(other.state in ("open", "opening") for other in self._channels):
            self._waiting.appendleft(operation)
        else:
            self._free.append(channel)
            self._endings.not_sent(operation, error)
        self.resume()

    def wait_again(self, operation: PublishOperation) -> None:
        """Take back an operation whose channel was lost before it was sent."""
        self._waiting.appendleft(operation)

    def connection_lost(self) -> None:
        """Learn that every channel is gone and so free."""
        self._free = deque(self._channels)
        self._put_by.clear()

    def forget_finished(self) -> None:
        """Drop what waited until its deadline, and close the channels on which something was not answered until its."""
        self._waiting = self._endings.unfinished(self._waiting)
        for channel in self._put_by:
            channel.give_up()
        self._put_by_where(SoloChannel.give_up)
        self.resume()

    def _next_operation(self) -> PublishOperation | None:
        """Take the oldest that waits, but none with a declaration that is out on a channel which was put by."""
        unanswered = {channel.declaration.queue for channel in self._put_by if channel.declaration is not None}
        for place, operation in enumerate(self._waiting):
            if operation.declaration is None or operation.declaration.queue not in unanswered:
                del self._waiting[place]
                return operation
        return None

    def _look(self) -> None:
        self._will_look = False
        if self._waiting and self._is_ready():
            now_ms = self._connection.monotonic_ms()
            self._put_by_where(lambda channel: channel.is_unanswered(now_ms))
            self.resume()

    def _put_by_where(self, condition: Callable[[SoloChannel], bool]) -> None:
        for place, channel in enumerate(self._channels):
            if condition(channel):
                self._put_by.add(channel)
                self._channels[place] = SoloChannel(self._connection, self._endings, self)
                self._free.append(self._channels[place])

    def _is_ready(self) -> bool:
        return self._connection.is_ready and self._connection.blocked is None


def refusal(operation: PublishOperation, code: int, text: str, *, is_declared: bool) -> ChannelClosedError:
    """Say what the broker refused when it closed the channel of an operation."""
    declaration = operation.declaration
    if declaration is not None and not is_declared:
        return DeclareRefusedError(
            f"declaring hold queue '{declaration.queue}': the broker refused it and the message was not published: "
            f"{code} {text}. "
            + remedy(
                code, "A queue of that name exists with other properties: delete it, or use another deferred_suffix."
            ),
            code=code,
            text=text,
        )
    return ChannelClosedError(
        f"{operation.doing}: the broker refused the message and closed the channel: {code} {text}", code=code, text=text
    )
