"""Consuming a queue: one channel per consumer, deliveries into its mailbox, settlements out of it.

A settlement is only ever sent on the channel that its delivery came from; once that channel is gone the broker has
taken the message back, and a stale delivery tag would close the next channel (scenario ack_other_channel).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

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
from queuey_rabbitmq.session.endings import NOT_FOUND, Endings, remedy
from queuey_rabbitmq.session.operations import Step

Settlement = Literal["ack", "requeue", "reject"]


CHECK_PAUSES_S = (*[0.0] * 12, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.1, 0.1)
"""Seconds to wait after each check that brought nothing though the broker says that more is coming.

After the last one it is believed to go elsewhere. A quorum queue answers a check before it has written down the acks
that came first, and gives the consumer room only then (rabbit_quorum_queue:stat, 4.3). And what a queue had sent before
it answered, the channel may hand on only after the answer, so that nothing is ready and nothing came: of that, only the
next answer can be sure.
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last thing that a consumer puts into its mailbox: why nothing follows."""

    error: QueueyError


class ConsumerKeeper(Protocol):
    """Who looks after consumers."""

    def consumer_lost(self, consumer: ConsumerChannel, error: BackendError) -> None:
        """Decide what becomes of a consumer that the broker ended: `reopen` it, or `end` it."""

    def consumer_ended(self, consumer: ConsumerChannel) -> None:
        """Forget a consumer: it has ended, and its channel is gone."""

    def settled_too_late(self) -> None:
        """Learn of an outcome that came after the channel of its delivery was gone."""


class ConsumerChannel(ManagedChannel):
    """A consumer, its channel and its acks; it puts (itself, what came) into its mailbox, which others may share.

    It outlives its channel: opened again, it goes on with a new one. `number`, the channel's, and `live` may be read
    from any thread; everything else belongs to turns.
    """

    handlers: ClassVar = {
        amqp.Delivered: "_delivered",
        amqp.ConsumeStarted: "_started",
        amqp.ConsumerCancelled: "_cancelled",
        amqp.QueueDeclared: "_checked",
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
        keeper: ConsumerKeeper,
    ) -> None:
        super().__init__(connection)
        self.queue = queue
        self.tag = tag
        self.live = False
        """Whether deliveries of the present channel can be settled."""
        self.has_ended = False
        self.failures = 0
        """How often in a row it was opened in vain."""
        self._endings = endings
        self._prefetch = prefetch
        self._mailbox = mailbox
        self._keeper = keeper
        self._acks = AckBatch()
        self._start: Step | None = None
        self._stop: Step | None = None
        self._reopens = False
        self._drains = False
        self._is_cancelled = False
        self._unsettled = 0
        self._last_tag = 0
        self._checks: deque[Step] = deque()
        self.has_more = False
        """Whether, when `check` last ended, the queue had something left that is coming here."""
        self.depth = 0
        """How many messages, when `check` last ended, were ready in the queue or unsettled here."""

    def start(self, step: Step) -> None:
        """Open the channel and start the consumer; the step ends when the broker knows it."""
        self._start = step
        self.open()

    def stop(self, step: Step) -> None:
        """Cancel the consumer and close its channel; what was not settled goes back to the queue."""
        self.end(ShutDownError(f"the consumer of queue '{self.queue}' is closed"))
        if self.state == "closed":
            self._endings.succeed(step)
            return
        self._stop = step
        if self.state == "open":
            self._give_back_all()
            self._close_channel()

    def drain(self) -> None:
        """Take no more from the broker, and end when the last that is on its way has come."""
        if self.state == "open" and not (self.has_ended or self._reopens or self._is_cancelled):
            self._drains = True
            self.connection.send([amqp.Cancel(self.number, self.tag)])
        else:
            self._end_as_asked()

    def check(self, step: Step) -> None:
        """End the step when everything that the broker has ready for this consumer has come.

        While there is no channel it waits for the next one, up to the step's deadline.
        The queue answers a passive declaration after what it has sent before. It may answer before it looks at acks
        that came first (rabbit_amqqueue_process:prioritise_call), so `has_more` tells whether to ask again.
        """
        self.has_more = False
        if self.has_ended:
            self._endings.succeed(step)
            return
        self._checks.append(step)
        if self.live:
            self.send_acks()
            self._ask_the_queue()

    def end(self, error: QueueyError) -> None:
        """Deliver nothing more but the error; while the channel is there, what is out can still be settled."""
        if not self.has_ended:
            self.has_ended = True
            if self._start is not None:
                self._endings.fail(self._start, error)
            self._mailbox.put((self, Ended(error)))
            while self._checks:
                self._endings.succeed(self._checks.popleft())
        if self.state == "closed":
            self._keeper.consumer_ended(self)

    def reopen(self) -> None:
        """Consume again, on another channel; what is unsettled on this one, if it is there, goes back."""
        if self.state == "closed":
            self.open()
        else:
            self._reopens = True
            self._close_channel()

    def is_current(self, channel: int) -> bool:
        """Tell whether a delivery of that channel can still be settled."""
        return self.live and channel == self.number

    def settle(self, channel: int, delivery_tag: int, settlement: Settlement) -> DeliveryLost | None:
        """Settle a delivery; return the error where it is too late."""
        if not self.is_current(channel):
            self._keeper.settled_too_late()
            return lost_delivery(self.queue)
        self._unsettled -= 1
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
        if self.live and self._acks.unsent:
            acks = self._acks.flush()
            self.connection.send([amqp.Ack(self.number, tag, multiple) for tag, multiple in acks])

    def opened(self) -> None:
        """Start the consumer, or close the channel where it has ended meanwhile."""
        if self.has_ended:
            self._close_channel()
            return
        self.live = True
        self._is_cancelled = False
        self._acks = AckBatch()
        self._unsettled = 0
        self.connection.send(
            [amqp.Consume(channel=self.number, queue=self.queue, consumer_tag=self.tag, prefetch=self._prefetch)]
        )
        for _ in self._checks:
            self._ask_the_queue()

    def not_opened(self, error: BackendError) -> None:
        """End the consumer as it was asked to; or leave it to its keeper, as there is no channel for it."""
        failure = BackendError(f"consuming queue '{self.queue}': {error}")
        failure.__cause__ = error
        self._channel_gone(failure)

    def refused(self, event: amqp.CommandRefused) -> None:
        """End the consumer: what it says cannot be written."""
        self.end(BackendError(f"consuming queue '{self.queue}': it cannot be written in AMQP: {event.error}"))
        self._close_channel()

    def closed(self, code: int, text: str) -> None:
        """End the consumer as it was asked to; or leave it to its keeper, as the broker closed its channel."""
        self._channel_gone(
            ChannelClosedError(
                f"consuming queue '{self.queue}': the broker closed the channel: {code} {text}{_remedy(code, text)}",
                code=code,
                text=text,
            )
        )

    def _channel_gone(self, error: BackendError) -> None:
        self.live = False
        reopens, self._reopens = self._reopens, False
        if self._drains:
            self._end_as_asked()
        if self.has_ended:
            self._gone()
        elif reopens:
            self.open()
        else:
            self._lost_by_broker(error)

    def lost(self, error: BackendError) -> None:
        """Wait for the connection to come back, or end with it; the broker takes back what was not settled."""
        self.live = self._reopens = False
        if self._drains:
            self._end_as_asked()
        if self.has_ended:
            self._gone()
        elif not self.connection.comes_back:
            failure = type(error)(f"consuming queue '{self.queue}': {error}")
            failure.__cause__ = error
            self.end(failure)

    def _end_as_asked(self) -> None:
        self.end(ShutDownError(f"the consumer of queue '{self.queue}' was asked to take no more"))

    def _ask_the_queue(self) -> None:
        self.connection.send([amqp.DeclareQueue(channel=self.number, queue=self.queue, passive=True, arguments={})])

    def _gone(self) -> None:
        if self._stop is not None:
            self._endings.succeed(self._stop)
        self._keeper.consumer_ended(self)

    def _lost_by_broker(self, error: BackendError) -> None:
        if self._start is not None and not self._start.finished:
            self.end(error)
        else:
            self.failures += 1
            self._keeper.consumer_lost(self, error)

    def _give_back_all(self) -> None:
        """Give back what is unsettled on a channel whose consumer is cancelled, before its close is answered.

        Else that goes back only when the channel's process has ended, a moment after the answer
        (rabbit_channel:notify_queues, 4.3), and whoever looks at the queue at once misses it.
        """
        if self.live and self._drains and self._unsettled:
            self.send_acks()
            tag = self._acks.highest_open(self._last_tag)
            self.connection.send([amqp.Nack(self.number, tag, requeue=True, multiple=True)])

    def _close_channel(self) -> None:
        self.send_acks()
        self.live = False
        # Closing the channel cancels the consumer too, and requeues what is still unsettled.
        self.connection.send([amqp.CloseChannel(self.number)])

    def _started(self, _event: amqp.ConsumeStarted) -> None:
        self.failures = 0
        if self._start is not None:
            self._endings.succeed(self._start)

    def _delivered(self, event: amqp.Delivered) -> None:
        self._unsettled += 1
        self._last_tag = event.delivery_tag
        self._mailbox.put((self, event))

    def _checked(self, event: amqp.QueueDeclared) -> None:
        self.has_more = event.message_count > 0 and self._unsettled < self._prefetch
        self.depth = event.message_count + self._unsettled
        if self._checks:
            self._endings.succeed(self._checks.popleft())

    def _cancelled(self, event: amqp.ConsumerCancelled) -> None:
        if self._drains or not event.by_broker:
            self._end_as_asked()
            return
        self._is_cancelled = True
        self._lost_by_broker(
            ConsumerCancelledError(
                f"consuming queue '{self.queue}': the broker cancelled the consumer; the queue was deleted, the "
                "node that held it is gone, or a delivery was held longer than the broker's consumer_timeout allows"
            )
        )


def _remedy(code: int, text: str) -> str:
    if code != NOT_FOUND:
        return ""
    if "no queue" in text:  # scenario consume_missing_queue; it has other words for one on a node that is down
        return ". Declare it first: backend.declare([QueueConfig(...)]) makes a work queue and its dead queue."
    return f". {remedy(code, '')}"


def lost_delivery(queue: str) -> DeliveryLost:
    """Say why a delivery can no longer be settled."""
    return DeliveryLost(
        f"settling a delivery of queue '{queue}': the channel it came from is gone, so the broker has taken the "
        "message back and delivers it again; do nothing with this one."
    )
