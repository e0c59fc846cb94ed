"""Consuming a queue: one channel per consumer, deliveries into its mailbox, settlements out of it.

A settlement is only ever sent on the channel that its delivery came from; once that channel is gone the broker has
taken the message back, and a stale delivery tag would close the next channel (scenario ack_other_channel).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import (
    BackendError,
    ChannelClosedError,
    ConsumerCancelledError,
    DeliveryLost,
    QueueyError,
    ShutDownError,
)
from queuey_rabbitmq.session.acks import AckBatch
from queuey_rabbitmq.session.connection import ManagedChannel, SessionConnection
from queuey_rabbitmq.session.endings import Endings
from queuey_rabbitmq.session.operations import Step

Settlement = Literal["ack", "requeue", "reject"]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last thing that a consumer puts into its mailbox: why nothing follows."""

    error: QueueyError


class ConsumerChannel(ManagedChannel):
    """A consumer, its channel and its acks; it puts (itself, what came) into its mailbox, which others may share.

    `live` may be read from any thread; everything else belongs to turns.
    """

    handlers: ClassVar = {
        amqp.Delivered: "_delivered",
        amqp.ConsumeStarted: "_started",
        amqp.ConsumerCancelled: "_cancelled",
        amqp.CommandRefused: "_refused",
    }

    def __init__(
        self,
        connection: SessionConnection,
        endings: Endings,
        *,
        queue: str,
        tag: str,
        prefetch: int,
        mailbox: amqp.Mailbox[Any],
        ended: Callable[[ConsumerChannel], None],
    ) -> None:
        super().__init__(connection)
        self.queue = queue
        self.tag = tag
        self.live = False
        """Whether deliveries of this channel can still be settled."""
        self.stale_settlements = 0
        """How many outcomes came after the channel was gone."""
        self._endings = endings
        self._prefetch = prefetch
        self._mailbox = mailbox
        self._ended = ended
        self._acks = AckBatch()
        self._start: Step | None = None
        self._stop: Step | None = None
        self._has_ended = False

    def start(self, step: Step) -> None:
        """Open the channel and start the consumer; the step ends when the broker knows it."""
        self._start = step
        self.open()

    def stop(self, step: Step) -> None:
        """Cancel the consumer and close its channel; what was not settled goes back to the queue."""
        self._end(ShutDownError(f"the consumer of queue '{self.queue}' is closed"))
        if self.state == "closed":
            self._endings.succeed(step)
            return
        self._stop = step
        self.send_acks()
        self.live = False
        if self.state == "open":
            self._close_channel()

    def settle(self, delivery_tag: int, settlement: Settlement) -> DeliveryLost | None:
        """Settle a delivery; return the error where it is too late."""
        if not self.live:
            self.stale_settlements += 1
            return lost_delivery(self.queue)
        if settlement == "ack":
            self._acks.ack(delivery_tag)
        else:
            # At once and singly: a nack whose tag a later `multiple` covers must have gone before it.
            command = amqp.Nack if settlement == "requeue" else amqp.Reject
            self.connection.send([command(self.number, delivery_tag, settlement == "requeue")])
            self._acks.settled_otherwise(delivery_tag)
        return None

    def send_acks(self) -> None:
        """Send the acks gathered in this turn."""
        if self.live:
            acks = self._acks.flush()
            if acks:
                self.connection.send([amqp.Ack(self.number, tag, multiple) for tag, multiple in acks])

    def opened(self) -> None:
        """Start the consumer, or close the channel where it was stopped meanwhile."""
        if self._stop is not None:
            self._close_channel()
            return
        self.live = True
        self._acks = AckBatch()
        self.connection.send(
            [amqp.Consume(channel=self.number, queue=self.queue, consumer_tag=self.tag, prefetch=self._prefetch)]
        )

    def closed(self, code: int, text: str) -> None:
        """End the consumer: as it was asked to, or because the broker closed its channel."""
        self.live = False
        if self._stop is not None:
            self._endings.succeed(self._stop)
        else:
            self._fail(
                ChannelClosedError(
                    f"consuming queue '{self.queue}': the broker closed the channel: {code} {text}",
                    code=code,
                    text=text,
                )
            )
        self._ended(self)

    def lost(self, error: BackendError) -> None:
        """End the consumer with its connection; the broker takes back what was not settled."""
        self.live = False
        if self._stop is not None:
            self._endings.succeed(self._stop)
        failure = type(error)(f"consuming queue '{self.queue}': {error}")
        failure.__cause__ = error
        self._fail(failure)
        self._ended(self)

    def _close_channel(self) -> None:
        # Closing the channel cancels the consumer too, and requeues what is unsettled, in one step at the broker.
        self.connection.send([amqp.CloseChannel(self.number)])

    def _started(self, _event: amqp.ConsumeStarted) -> None:
        if self._start is not None:
            self._endings.succeed(self._start)

    def _delivered(self, event: amqp.Delivered) -> None:
        self._mailbox.put((self, event))

    def _cancelled(self, _event: amqp.ConsumerCancelled) -> None:
        # Deliveries that are out can still be settled: the channel lives on until the application closes it.
        self._fail(
            ConsumerCancelledError(
                f"consuming queue '{self.queue}': the broker cancelled the consumer; the queue was deleted, or the "
                "node that held it is gone. Declare the queue and consume it again."
            )
        )

    def _refused(self, event: amqp.CommandRefused) -> None:
        self._fail(BackendError(f"consuming queue '{self.queue}': it cannot be written in AMQP: {event.error}"))

    def _fail(self, error: BackendError) -> None:
        if self._start is not None:
            self._endings.fail(self._start, error)
        self._end(error)

    def _end(self, error: QueueyError) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._mailbox.put((self, Ended(error)))


def lost_delivery(queue: str) -> DeliveryLost:
    """Say why a delivery can no longer be settled."""
    return DeliveryLost(
        f"settling a delivery of queue '{queue}': the channel it came from is gone, so the broker has taken the "
        "message back and delivers it again; do nothing with this one."
    )
