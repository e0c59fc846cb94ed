"""A classic queue: what happens to a message between its arrival and its end.

Owns time to live, length limits, the lease (x-expires) and delivery, as rabbit_amqqueue_process does, whose functions
the comments name. Knows no exchange: dead letters, and the end of the queue, go to its host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from queuey_fake.model import dead_letter, errors
from queuey_fake.model.arguments import QueueProperties, QueueSettings
from queuey_fake.model.consumers import Consumers
from queuey_fake.model.delivery import Consumer, Mailbox, PendingAck
from queuey_fake.model.message import Message, QueuedMessage
from queuey_fake.model.observer import Observer
from queuey_fake.model.ready import ReadyMessages
from queuey_fake.model.timers import Timer, Timers
from queuey_fake.model.versions import Version

_PERSISTENT = 2  # delivery mode

DELETED = "the queue was deleted"
LEASE_ENDED = "the queue expired (x-expires) with messages inside"
NO_CONSUMER_LEFT = "the queue was deleted with its last consumer"
CONNECTION_ENDED = "the queue was exclusive and its connection ended"
AUTOMATICALLY = "automatically"
RESTARTED = "the broker was restarted, which no transient message or queue outlives"

_WHAT_HAPPENS = {
    dead_letter.EXPIRED: "expired",
    dead_letter.REJECTED: "rejected",
    dead_letter.MAXLEN: "overflowed",
    dead_letter.DELIVERY_LIMIT: "returned too often",
}


class QueueHost(Protocol):
    """What a queue needs of the vhost that holds it."""

    name: str
    timers: Timers
    version: Version
    observer: Observer | None

    def has_exchange(self, name: str) -> bool:
        """Return whether there is such an exchange."""

    def dead_letter(self, message: Message, queue: Queue, *, reason: str, delivery_count: int) -> None:
        """Route a dead message through the queue's dead-letter exchange; it arrives after this operation."""

    def queue_stopped(self, queue: Queue) -> None:
        """Hear that the queue is gone."""

    def queue_crashed(self, queue: Queue) -> None:
        """Hear that the queue crashed, and put another in its place."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueIdentity:
    """What a declaration fixes: name, properties, what the arguments mean, and the connection that owns it."""

    name: str
    properties: QueueProperties
    settings: QueueSettings
    owner: object | None


class Queue:
    """One classic queue."""

    is_settled_by_channels = False
    """Whether the channel settles what its consumers without acknowledgements get, when it has it."""

    def __init__(self, identity: QueueIdentity, host: QueueHost) -> None:
        settings = identity.settings
        self.identity = identity
        self.name = identity.name
        self.settings = settings
        self.owner = identity.owner
        self.is_deleted = False
        self.ready = ReadyMessages(settings.max_priority or 0)
        self.consumers = Consumers(self)
        self.ttl_timer: Timer | None = None
        self.lease_timer: Timer | None = None
        self._host = host
        self._timers = host.timers
        self._sequence = 0
        self._has_deadlines = False  # whether any message that was ever here may expire
        self._holder: Consumer | None = None  # the exclusive consumer, or the single active one
        self._had_consumers = False
        self._is_limited = settings.max_length is not None or settings.max_length_bytes is not None
        self._drops_head = self._is_limited and settings.overflow == "drop-head"
        self._reads_from_disk = settings.is_lazy and host.version.lazy_queues_forget_expirations
        self.renew_lease()

    @property
    def consumer_count(self) -> int:
        """How many consumers queue.declare-ok counts."""
        return self.consumers.count

    # ------------------------------------------------------------------------------------------------ arrival

    def publish(self, message: Message, publisher: Mailbox | None = None) -> bool:  # noqa: ARG002  quorum queues ask
        """Take a message; return False where the queue refuses it for its length (maybe_deliver_or_enqueue).

        `publisher` is the channel that it comes from, None for a dead letter.
        """
        if self.is_deleted:
            return True  # the publisher has its confirm: to a gone queue the message counts as handled
        if self._is_limited and not self._drops_head and self._would_overflow(message):
            self._refuse(message)
            return False
        queued = self._new(message)
        if self.consumers.active.levels and (consumer := self._next_consumer()) is not None:
            if self.ready.count and not consumer.no_ack and self._host.version.sac_failover_waits_for_event:
                return self._crash(message)
            if (observer := self._host.observer) is not None:
                observer.report("queued", message, queue=self.name, detail="", at_ms=self._timers.now_ms)
            self._deliver(consumer, queued)
        else:
            self._enqueue(queued)
        return True

    def _enqueue(self, queued: QueuedMessage) -> None:
        if self._reads_from_disk:
            queued.message = queued.message.read_from_disk()
        message = queued.message
        if message.delivery_count and self._host.version.redelivered_if_delivery_count:
            queued.redelivered = True  # not when handed over directly (scenario dlx_redelivered_reject_late_consumer)
        self.ready.append(queued)
        if (observer := self._host.observer) is not None:
            observer.report("queued", message, queue=self.name, detail="", at_ms=self._timers.now_ms)
        has_dropped = self._drops_head and self._drop_overflow()
        # Only these let an expired message be the head unnoticed; a plain publish onto a queue that is not empty does
        # not look, so a message that becomes head by its priority expires by no timer (scenario prio_ttl_zero).
        if queued.deadline_ms is not None:
            if has_dropped or self.ready.count == 1:
                self.drop_expired()
        elif has_dropped and self.ready.count != 1:
            self.drop_expired()

    def _crash(self, message: Message) -> bool:
        """Die of a message that could go to a consumer past others, as 3.10 does (attempt_delivery).

        Return True for a transient message, which was confirmed before.
        """
        if self._host.observer is not None:
            self._report("lost", message, "the queue crashed")
        self._host.queue_crashed(self)
        return not self._is_kept(message)

    def _is_kept(self, message: Message) -> bool:
        return self.identity.properties.durable and message.properties.delivery_mode == _PERSISTENT

    def abandon(self) -> list[QueuedMessage]:
        """End this incarnation of the queue; return what the next one recovers, in order."""
        self._end()
        everything = sorted([*self.ready, *self.unacked()], key=lambda queued: (-queued.level, queued.sequence))
        return [queued for queued in everything if self._is_kept(queued.message)]

    def recover(self, messages: list[QueuedMessage]) -> None:
        """Take the messages over that outlived another incarnation of the queue."""
        for queued in messages:
            self._sequence += 1
            queued.sequence = self._sequence
            self.ready.append(queued)
        self._has_deadlines = True  # some may
        self.drop_expired()

    def _new(self, message: Message) -> QueuedMessage:
        settings = self.settings
        ttl_ms = settings.message_ttl_ms
        expiration_ms = message.expiration_ms
        if expiration_ms is not None and (ttl_ms is None or expiration_ms < ttl_ms):
            ttl_ms = expiration_ms
        level = 0
        if settings.max_priority:
            level = min(message.properties.priority or 0, settings.max_priority)
        self._sequence += 1
        deadline_ms = None
        if ttl_ms is not None:
            deadline_ms = self._timers.now_ms + ttl_ms
            self._has_deadlines = True
        return QueuedMessage(message, self._sequence, deadline_ms, level)

    def _would_overflow(self, message: Message) -> bool:
        settings = self.settings
        return (settings.max_length is not None and self.ready.count + 1 > settings.max_length) or (
            settings.max_length_bytes is not None and self.ready.octets + len(message.body) > settings.max_length_bytes
        )

    def _refuse(self, message: Message) -> None:
        if self._host.observer is not None:
            self._report("refused", message, "the queue is full")
        if self.settings.overflow == "reject-publish-dlx":
            self._dead_letter(message, dead_letter.MAXLEN, message.delivery_count)

    def _is_over_limit(self) -> bool:
        settings = self.settings
        return (settings.max_length is not None and self.ready.count > settings.max_length) or (
            settings.max_length_bytes is not None and self.ready.octets > settings.max_length_bytes
        )

    def _drop_overflow(self) -> bool:
        """Drop from the head until the rest is within the limits (maybe_drop_head); return whether any was dropped."""
        has_dropped = False
        while self._is_over_limit():
            has_dropped = True
            dropped = self.ready.pop()
            self._dead_letter(dropped.message, dead_letter.MAXLEN, dropped.delivery_count)
        return has_dropped

    def drop_expired(self) -> None:
        """Drop what is over age at the head, and set the timer for the head that stays (drop_expired_msgs).

        Only the head can expire: behind one that lives longer a message stays, counted, past its deadline.
        """
        if not self._has_deadlines:
            return
        ready = self.ready
        now_ms = self._timers.now_ms
        while (head := ready.head()) is not None and head.deadline_ms is not None:
            if head.deadline_ms > now_ms:
                self._set_ttl_timer(head.deadline_ms)
                return
            ready.pop()
            self._dead_letter(head.message, dead_letter.EXPIRED, head.delivery_count)

    def _set_ttl_timer(self, deadline_ms: int) -> None:
        # A timer that is set for an earlier deadline stays, even when its message is gone (scenario fact_stale_timer).
        timer = self.ttl_timer
        if timer is not None:
            if timer.due_ms <= deadline_ms:
                return
            self._timers.cancel(timer)
        self.ttl_timer = self._timers.set(deadline_ms, self._ttl_timer_fires)

    def _ttl_timer_fires(self) -> None:
        self.ttl_timer = None
        self.drop_expired()

    def _dead_letter(self, message: Message, reason: str, delivery_count: int) -> None:
        if self._host.observer is not None:
            self._report(_WHAT_HAPPENS[reason], message)
        exchange = self.settings.dead_letter_exchange
        if exchange is not None and self._host.has_exchange(exchange):
            self._host.dead_letter(message, self, reason=reason, delivery_count=delivery_count)
        elif self._host.observer is not None:
            self._report("dropped", message, reason)

    # ------------------------------------------------------------------------------------------------ delivery

    def fetch(self) -> QueuedMessage:
        """Take the head, then drop what is over age behind it; there must be a ready message."""
        queued = self.ready.pop()
        if self.ready.count:
            self.drop_expired()
        return queued

    def get(self, *, no_ack: bool) -> QueuedMessage | None:
        """Take the head for basic.get, which renews the lease."""
        if self.settings.expires_ms is not None:
            self.renew_lease()
        if not self.ready.count:
            return None
        queued = self.fetch()
        self._report_handed_over("got", queued.message, "", no_ack=no_ack)
        return queued

    def hold_unacked(self, mailbox: Mailbox, pending: PendingAck) -> None:
        """Note that a message taken by basic.get is to be settled."""
        self.consumers.record(mailbox).unacked[pending.queued.sequence] = pending

    def run(self) -> None:
        """Deliver what can be delivered (run_message_queue)."""
        while self.ready.count and (consumer := self._next_consumer()) is not None:
            self._deliver(consumer, self.fetch())

    def _next_consumer(self) -> Consumer | None:
        if not self.settings.single_active_consumer:
            return self.consumers.next_to_deliver()
        holder = self._holder
        if holder is None or self.consumers.is_blocked(holder):
            return None
        if self.consumers.take_room(holder):
            return holder
        self.consumers.block(holder)
        return None

    def _deliver(self, consumer: Consumer, queued: QueuedMessage) -> None:
        self._report_handed_over("delivered", queued.message, consumer.tag, no_ack=consumer.no_ack)
        self.consumers.delivered(consumer, consumer.mailbox.deliver(consumer, queued))

    def _report_handed_over(self, what: str, message: Message, detail: str, *, no_ack: bool) -> None:
        if (observer := self._host.observer) is not None:
            observer.report(what, message, queue=self.name, detail=detail, at_ms=self._timers.now_ms)
        if no_ack:
            self._report("acknowledged", message, AUTOMATICALLY)

    # ------------------------------------------------------------------------------------------------ settling

    def acknowledge(self, mailbox: Mailbox, pending: list[PendingAck]) -> None:
        """Forget the messages."""
        has_room_again = self.consumers.settle(mailbox, pending)
        self._report_acknowledged(pending)
        if has_room_again:
            self.run()

    def _report_acknowledged(self, pending: list[PendingAck]) -> None:
        if (observer := self._host.observer) is not None:
            for one in pending:
                message = one.queued.message
                observer.report("acknowledged", message, queue=self.name, detail="", at_ms=self._timers.now_ms)

    def requeue(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Put the messages back to their places; `counts` says whether 4.3 raises their delivery count."""
        has_room_again = self.consumers.settle(mailbox, pending)
        self._requeue_and_run(pending, counts=counts)
        if has_room_again:
            self.run()

    def discard(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Dead-letter rejected messages, or drop them without a dead-letter exchange."""
        has_room_again = self.consumers.settle(mailbox, pending)
        if self.settings.max_priority:  # rabbit_priority_queue:ackfold goes through the levels from the highest
            pending = sorted(pending, key=lambda one: -one.queued.level)
        for one in pending:
            self._dead_letter(one.queued.message, dead_letter.REJECTED, one.queued.delivery_count + counts)
        if has_room_again:
            self.run()

    def _requeue_and_run(self, pending: list[PendingAck], *, counts: bool) -> None:
        for one in pending:
            queued = one.queued
            queued.redelivered = True
            queued.delivery_count += counts
            if self._reads_from_disk:
                queued.message = queued.message.read_from_disk()
            self.ready.requeue(queued)
            if self._host.observer is not None:
                self._report("requeued", queued.message)
        if self._drops_head:
            self._drop_overflow()
        self.drop_expired()
        self.run()

    # ------------------------------------------------------------------------------------------------ consumers

    def check_consumer(self, *, exclusive: bool) -> None:
        """Raise ChannelException where a consumer, or an exclusive one, cannot be added (check_exclusive_access)."""
        if self.settings.single_active_consumer:
            is_refused = exclusive
        else:
            is_refused = self._holder is not None or (exclusive and self.consumers.count > 0)
        if is_refused:
            raise errors.exclusive_use(self.name, self._host.name)

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer that was checked; `run` delivers to it."""
        self.consumers.add(consumer)
        self._had_consumers = True
        if self._holder is None and (consumer.exclusive or self.settings.single_active_consumer):
            self._holder = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Take a cancelled consumer out; what it has not settled stays with its channel."""
        version = self._host.version
        self.consumers.remove(consumer)
        if self._holder is consumer:
            self._holder = self.consumers.active.first() if self.settings.single_active_consumer else None
        if self._should_auto_delete():
            self.stop(NO_CONSUMER_LEFT)
            return
        # RabbitMQ 4 looks at the head again (fact_unarmed_cancel) and serves the next single active consumer at once.
        if version.cancel_examines_priority_head:
            self.drop_expired()
        if not version.sac_failover_waits_for_event:
            self.run()
        self.renew_lease()

    def channel_closed(self, mailbox: Mailbox) -> None:
        """Take back what the channel has not settled, and forget its consumers (handle_ch_down)."""
        record = self.consumers.erase(mailbox)
        if record is None:
            return
        if self._holder is not None and self._holder.mailbox is mailbox:
            self._holder = self.consumers.active.first() if self.settings.single_active_consumer else None
        if self._should_auto_delete():
            self.stop(NO_CONSUMER_LEFT)
            return
        self.renew_lease()
        self._requeue_and_run(list(record.unacked.values()), counts=True)

    def _should_auto_delete(self) -> bool:
        return self.identity.properties.auto_delete and self._had_consumers and self.consumers.count == 0

    def activate_limit(self, mailbox: Mailbox) -> None:
        """Hear that the channel's consumers share a limit from now on."""
        self.consumers.activate_limit(mailbox)

    def lift_limit(self, mailbox: Mailbox) -> None:
        """Hear that the channel's consumers share no limit any more."""
        if self.consumers.lift_limit(mailbox):
            self.run()

    def resume(self, mailbox: Mailbox) -> None:
        """Hear that there is room again under the limit that the channel's consumers share."""
        if self.consumers.resume(mailbox):
            self.run()

    # ------------------------------------------------------------------------------------------------ the queue itself

    def renew_lease(self) -> None:
        """Let the lease start anew, unless there are consumers (ensure_expiry_timer).

        Use never shortens it, also after the clock was set back: RabbitMQ's timer knows nothing of that clock.
        """
        if self.settings.expires_ms is None or self.consumers.count:
            return
        ends_ms = self._timers.now_ms + self.settings.expires_ms
        if self.lease_timer is not None:
            ends_ms = max(ends_ms, self.lease_timer.due_ms)
            self._timers.cancel(self.lease_timer)
        self.lease_timer = self._timers.set(ends_ms, self._lease_timer_fires)

    def declared_again(self) -> None:
        """Hear of another declaration, passive or not, which renews the lease."""
        self.renew_lease()

    def _lease_timer_fires(self) -> None:
        self.lease_timer = None
        if not self.consumers.count:
            self.stop(LEASE_ENDED)

    def purge(self) -> int:
        """Drop all ready messages, dead-lettering none; return how many."""
        if self._host.observer is not None:
            for queued in self.ready:
                self._report("purged", queued.message)
        return self.ready.clear()

    def delete(self, *, if_unused: bool, if_empty: bool) -> int:
        """End the queue; return how many ready messages went with it. Raises ChannelException where it must not."""
        count = self.ready.count
        if if_empty and count:
            raise errors.not_empty(self.name, self._host.name)
        if if_unused and self.consumers.count:
            raise errors.in_use("queue", self.name, self._host.name)
        self.stop(DELETED)
        return count

    def stop(self, why: str) -> None:
        """End the queue. Nothing in it is dead-lettered."""
        self._end()
        if self._host.observer is not None:
            for queued in [*self.ready, *self.unacked()]:
                self._report("lost", queued.message, why)
        self._host.queue_stopped(self)

    def _end(self) -> None:
        self.is_deleted = True
        for timer in (self.ttl_timer, self.lease_timer):
            if timer is not None:
                self._timers.cancel(timer)
        self.ttl_timer = self.lease_timer = None

    def dismiss(self) -> list[Consumer]:
        """Take all consumers out and return them; what they have not settled stays with their channels."""
        consumers = [*self.consumers.active]
        for record in self.consumers.records.values():
            consumers += record.blocked
        for consumer in consumers:
            self.consumers.remove(consumer)
        self._holder = None
        return consumers

    def unacked(self) -> list[QueuedMessage]:
        """Return what is delivered and not settled, by channel and in order of delivery."""
        return [one.queued for record in self.consumers.records.values() for one in record.unacked.values()]

    def _report(self, what: str, message: Message, detail: str = "") -> None:
        observer = self._host.observer
        if observer is not None:
            observer.report(what, message, queue=self.name, detail=detail, at_ms=self._timers.now_ms)
