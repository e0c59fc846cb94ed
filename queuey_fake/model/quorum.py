"""A quorum queue on its one node: delivery limit, returns, priorities, and what differs from a classic queue.

Owns what rabbit_fifo does otherwise than rabbit_amqqueue_process. There is no replication here: one node is the quorum.
"""

from __future__ import annotations

from queuey_fake.model import dead_letter, errors
from queuey_fake.model.delayed_retry import DelayedMessages
from queuey_fake.model.delivery import Consumer, Mailbox, PendingAck
from queuey_fake.model.fields import Table, long, octets_of
from queuey_fake.model.message import Message, QueuedMessage
from queuey_fake.model.queue import LEASE_ENDED, Queue, QueueHost, QueueIdentity
from queuey_fake.model.quorum_ready import DEFAULT_PRIORITY, QuorumReadyMessages
from queuey_fake.model.timers import Timer

_TICK_MS = 5_000  # how often a queue looks whether its lease has ended, from its declaration on (?TICK_INTERVAL)
_NO_PREFETCH = 2_000  # stands for no limit (rabbit_quorum_queue:consume)
_LOW_LIMIT = 0.8  # below this share of its limits a queue that refused messages takes them again (?LOW_LIMIT)


class _Publisher:
    """What a channel that publishes has heard of the queue's being full, and what it will have after its turn.

    A burst without confirms, or a transaction's commit, is let in whole that fills the queue: what the queue says
    comes too late for it (scenarios quorum_reject_publish_burst, quorum_reject_publish_transaction).
    """

    __slots__ = ("_has_heard", "_turn", "last_told")

    def __init__(self, is_refused: bool) -> None:  # noqa: FBT001  a fact, not an option
        self._has_heard = self.last_told = is_refused
        self._turn: tuple[int, int] | None = None

    def is_refused(self, turn: tuple[int, int]) -> bool:
        """Return whether the channel may not publish; it has heard what the queue said before this turn of its."""
        if turn != self._turn:
            self._turn = turn
            self._has_heard = self.last_told
        return self._has_heard


class QuorumQueue(Queue):
    """One quorum queue. `level` of its messages is their place among the version's priorities."""

    is_settled_by_channels = True
    ready: QuorumReadyMessages  # type: ignore[assignment]  # another order behind the same methods

    def __init__(self, identity: QueueIdentity, host: QueueHost) -> None:
        self._started_ms = host.timers.now_ms
        self._delayed = DelayedMessages()
        self._retry_timer: Timer | None = None
        super().__init__(identity, host)
        version = host.version
        self.ready = QuorumReadyMessages(
            version.quorum_priorities, counts_properties=version.quorum_bytes_count_properties
        )
        self._drops_every_head = version.quorum_priorities == "strict"
        self._places: dict[Mailbox, dict[str, int]] = {}  # of the channels' consumers, by tag, in order of subscription
        self._last_place = 0
        self._giving_way: Consumer | None = None  # the single active consumer, once one of higher priority waits
        self._publishers: dict[Mailbox, _Publisher] = {}  # where publishes may be refused

    @property
    def consumer_count(self) -> int:
        """How many consumers queue.declare-ok counts: those served, and any that hold messages (query_stat)."""
        count = int(self._holder is not None) if self.settings.single_active_consumer else self.consumers.count
        holders = {
            (pending.consumer_tag, 0 if pending.consumer_tag is not None else pending.delivery_tag, record)
            for record in self.consumers.records.values()
            for pending in record.unacked.values()
            if pending.consumer_tag is None or pending.consumer_tag not in record.consumer_tags
        }
        return count + len(holders)

    # ------------------------------------------------------------------------------------------------ arrival

    def publish(self, message: Message, publisher: Mailbox | None = None) -> bool:
        """Take a message; return False while its channel is refused. A queue takes one more than its limit says.

        Dead letters are never refused, for it is the publishing channels that hold back (untracked_enqueue).
        """
        if self.is_deleted:
            return True
        if publisher is not None and self._is_limited and not self._drops_head and self._refuses(publisher):
            self._refuse(message)
            return False
        self.ready.append(self._new(message))
        if self._host.observer is not None:
            self._report("queued", message)
        self._check_out(self._timers.now_ms - 1)  # a TTL of 0 leaves the rest of its millisecond to be delivered in
        return True

    def _refuses(self, publisher: Mailbox) -> bool:
        """Return whether a channel may not publish: it hears so when it begins to, then as it changes.

        So what is refused by one while the queue has some room again, but not enough to let all in, another that is
        new may publish (rabbit_fifo_client:enqueue; scenario quorum_reject_publish_new_channel).
        """
        known = self._publishers.get(publisher)
        if known is None:
            publisher.known_to(self)
            known = self._publishers[publisher] = _Publisher(self._is_over_limit())
        return known.is_refused((publisher.turns, self._timers.now_ms))

    def _new(self, message: Message) -> QueuedMessage:
        queued = super()._new(message)
        queued.level = self.ready.level_of(message.properties.priority)
        return queued

    def run(self) -> None:
        """Look at the head and at the consumers again, in a millisecond after what lives for no time came.

        Each command of a client is an entry of the log with an instant of its own (scenario
        quorum_ttl_zero_behind_the_head_consumed).
        """
        self._check_out(self._timers.now_ms)

    def _check_out(self, over_age_ms: int) -> None:
        """Drop what is over age at the head, deliver what can be delivered, then look at the limits (checkout)."""
        self._drop_over_age(over_age_ms)
        while self._deliver_ready(over_age_ms):
            self._look_at_limits()
            self.drop_expired()
        self._look_at_limits()
        # A TTL of 0 leaves the rest of the millisecond to be delivered in (update_expiry_header), and that is over now.
        self.drop_expired()
        self._look_at_limits()

    def _deliver_ready(self, over_age_ms: int) -> bool:
        """Deliver once to whoever has room; return whether a consumer has room again that settles at once.

        Each consumer is sent at once what it gets of all (add_delivery_effects). One without acknowledgements has its
        prefetch too: the channel settles for it, after the delivery.
        """
        chosen: dict[Consumer, list[QueuedMessage]] = {}
        while self.ready.count and (consumer := self._next_consumer()) is not None:
            chosen.setdefault(consumer, []).append(self.ready.pop())
            if not self.settings.single_active_consumer and not self.consumers.has_credit(consumer):
                self.consumers.block(consumer)  # it leaves at once, not when the next delivery is tried
            self._drop_over_age(over_age_ms)
        settling_at_once = []
        for consumer in sorted(chosen, key=lambda each: self._place(each.mailbox, each.tag)):
            for queued in chosen[consumer]:
                self._deliver(consumer, queued)
                if consumer.no_ack and consumer.prefetch:
                    settling_at_once.append(consumer)
        for consumer in settling_at_once:
            self.consumers.give_credit(consumer.mailbox, consumer.tag)
        return bool(settling_at_once)

    def _place(self, mailbox: Mailbox, tag: str) -> tuple[int, bytes]:
        """Return the place of a consumer among others (the keys of #state.consumers).

        A basic.get is a consumer for itself, by its delivery tag; from 4.0 on behind the real ones.
        """
        if self._host.version.quorum_consumers_go_by_tag:
            return 0, octets_of(tag)
        place = self._places.get(mailbox, {}).get(tag)
        return (self._last_place + 1, octets_of(tag)) if place is None else (place, b"")

    def drop_expired(self) -> None:
        """Drop what is over age at the head, and set the timer for the head that stays."""
        self._drop_over_age(self._timers.now_ms)
        self._set_timer()

    def _drop_over_age(self, instant_ms: int) -> None:
        while (head := self.ready.head()) is not None and _is_over_age(head, instant_ms):
            if self._drops_every_head:
                self._drop_every_head(instant_ms)
                return
            self.ready.pop()
            self._dead_letter(head.message, dead_letter.EXPIRED, head.delivery_count)

    def _drop_every_head(self, instant_ms: int) -> None:
        """Drop what is over age at the head of any level (4.3, expire_batch)."""
        for level in self.ready.heads():
            while level and _is_over_age(level[0], instant_ms):
                dead = self.ready.take_from(level)
                self._dead_letter(dead.message, dead_letter.EXPIRED, dead.delivery_count)

    def _set_timer(self) -> None:
        if self._drops_every_head:
            deadlines = [level[0].deadline_ms for level in self.ready.heads()]
        else:
            head = self.ready.head()
            deadlines = [] if head is None else [head.deadline_ms]
        soonest = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if soonest is not None:
            self._set_ttl_timer(soonest)

    def _ttl_timer_fires(self) -> None:
        self.ttl_timer = None
        if self._drops_every_head:
            self._drop_every_head(self._timers.now_ms)
        self.run()

    def _look_at_limits(self) -> None:
        if not self._is_limited:
            return
        if self._drops_head:
            self._drop_overflow()
        elif self._is_over_limit():
            self._tell_publishers(is_refused=True)
        elif self._is_below_low_limit():
            self._tell_publishers(is_refused=False)

    def _tell_publishers(self, *, is_refused: bool) -> None:
        for publisher in self._publishers.values():
            publisher.last_told = is_refused

    def _is_over_limit(self) -> bool:
        settings = self.settings
        return (settings.max_length is not None and self._length > settings.max_length) or (
            settings.max_length_bytes is not None and self._octets > settings.max_length_bytes
        )

    @property
    def _length(self) -> int:
        """How many messages the limit is about: also what waits to be ready again (messages_ready_plus_delayed)."""
        return self.ready.count + len(self._delayed)

    @property
    def _octets(self) -> int:
        return self.ready.octets + sum(self.ready.size(queued) for queued in self._delayed.messages)

    def _drop_overflow(self) -> bool:
        """Drop from the head until the rest is within the limits; before 4.3 the last to be dropped dies first.

        What the queue's machine has to do for each is put in front of what it has to do already (evaluate_limit).
        """
        dropped = []
        while self.ready.count and self._is_over_limit():
            dropped.append(self.ready.pop())
        if self._host.version.quorum_overflow_dies_backwards:
            dropped.reverse()
        for each in dropped:
            self._dead_letter(each.message, dead_letter.MAXLEN, each.delivery_count)
        return bool(dropped)

    def _is_below_low_limit(self) -> bool:
        settings = self.settings
        return (settings.max_length is None or self._length <= int(settings.max_length * _LOW_LIMIT)) and (
            settings.max_length_bytes is None or self._octets <= int(settings.max_length_bytes * _LOW_LIMIT)
        )

    # ------------------------------------------------------------------------------------------------ delivery

    def get(self, *, no_ack: bool) -> QueuedMessage | None:
        """Take the head for basic.get; over-age messages go first, for a quorum queue never hands them out.

        With `no_ack` the message is settled at once, which looks at the head again. Without, an over-age head is
        counted in the answer still and goes right after it (scenario quorum_ttl_zero_behind_the_head_that_is_got).
        """
        if self.settings.single_active_consumer:
            raise errors.get_from_single_active_consumer(
                self.name, self._host.name, prints_binary=self._host.version.quorum_type_is_printed_as_binary
            )
        self.renew_lease()
        self.drop_expired()
        if not self.ready.count:
            return None
        queued = self.ready.pop()
        if no_ack:
            self.drop_expired()
        else:
            self._set_timer()
        self._look_at_limits()
        self._annotate(queued, is_get=True)
        if self._host.observer is not None:
            self._report_handed_over("got", queued.message, "", no_ack=no_ack)
        return queued

    def _deliver(self, consumer: Consumer, queued: QueuedMessage) -> None:
        self._annotate(queued, is_get=False)
        super()._deliver(consumer, queued)

    def _annotate(self, queued: QueuedMessage, *, is_get: bool) -> None:
        """Set what the delivery says of earlier ones (rabbit_fifo_client:add_delivery_count_header)."""
        version = self._host.version
        acquired = queued.acquired_count
        if acquired is None and queued.delivery_count and version.message_containers:
            acquired = queued.delivery_count  # it was rejected elsewhere (maybe_set_msg_delivery_count)
        queued.redelivered = bool(acquired)
        headers: Table = {}
        if acquired is not None and version.quorum_nack_counts_as_acquired:
            headers["x-acquired-count"] = long(acquired)
            if queued.delivery_count:
                headers["x-delivery-count"] = long(queued.delivery_count)
        elif acquired is not None:
            headers["x-delivery-count"] = long(acquired)
        elif is_get and version.quorum_counts_first_delivery:
            headers["x-delivery-count"] = long(0)
        queued.annotations = headers or None

    # ------------------------------------------------------------------------------------------------ settling

    def acknowledge(self, mailbox: Mailbox, pending: list[PendingAck]) -> None:
        """Forget the messages."""
        self._settle(mailbox, pending)
        self._report_acknowledged(pending)
        self._activate_next()
        self.run()

    def requeue(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Take the messages back, or dead-letter those that came back too often (return_one)."""
        self._settle(mailbox, pending)
        # Without a delivery limit each is written to the log again (#requeue), and so comes behind all others.
        exceeding = self._take_back(pending, counts=counts, to_the_back=self.settings.delivery_limit is None)
        if self._host.version.quorum_exceeding_return_is_credited_twice:
            for one in exceeding:
                self.consumers.give_credit(mailbox, one.consumer_tag)
        if not self._host.version.quorum_return_activates_no_consumer:
            self._activate_next()
        self.run()

    def _take_back(self, pending: list[PendingAck], *, counts: bool, to_the_back: bool) -> list[PendingAck]:
        """Make the messages ready again; return those that exceeded the delivery limit and died of it."""
        exceeding = []
        version = self._host.version
        limit = self.settings.delivery_limit
        for one in pending:
            queued = one.queued
            queued.acquired_count = (queued.acquired_count or 0) + 1
            queued.delivery_count += counts
            returns = queued.delivery_count if version.quorum_nack_counts_as_acquired else queued.acquired_count
            if limit is not None and returns > limit:
                self._dead_letter(queued.message, dead_letter.DELIVERY_LIMIT, queued.delivery_count)
                exceeding.append(one)
                continue
            if self._host.observer is not None:
                self._report("requeued", queued.message)
            if self._is_delayed(queued, counts=counts):
                continue
            if to_the_back:
                self._sequence += 1
                queued.sequence = self._sequence
                queued.level = self.ready.level_of(DEFAULT_PRIORITY)
                self.ready.append(queued)
                self.drop_expired()
                self.run()  # each is an entry of the log
            else:
                self.ready.give_back(queued)
        self.drop_expired()  # with a TTL of 0 none comes back within the millisecond that it lives
        return exceeding

    def _is_delayed(self, queued: QueuedMessage, *, counts: bool) -> bool:
        """Return whether a message that came back waits now before it is ready again (should_delay)."""
        rule = self.settings.delayed_retry
        delay_ms = rule.delay_ms(queued.delivery_count, counts=counts) if rule is not None else None
        if delay_ms is None:
            return False
        self._delayed.add(queued, self._timers.now_ms + delay_ms)
        self._set_retry_timer()
        return True

    def _set_retry_timer(self) -> None:
        if self._retry_timer is not None:
            self._timers.cancel(self._retry_timer)
        due_ms = self._delayed.next_ms
        self._retry_timer = None if due_ms is None else self._timers.set(due_ms, self._retry_timer_fires)

    def _retry_timer_fires(self) -> None:
        """Make ready again what has waited, and what is over age by now expires (expire_shallow)."""
        self._retry_timer = None
        for queued in self._delayed.take_ready(self._timers.now_ms):
            self.ready.give_back(queued)
        self._set_retry_timer()
        self._drop_every_head(self._timers.now_ms)
        self.run()

    def discard(self, mailbox: Mailbox, pending: list[PendingAck], *, counts: bool) -> None:
        """Dead-letter rejected messages, or drop them without a dead-letter exchange."""
        if not self._host.version.quorum_nack_counts_as_acquired:
            counts = self._host.version.message_containers  # 4.0 counts every rejection, 3.10 none
        for one in pending:
            self._dead_letter(one.queued.message, dead_letter.REJECTED, one.queued.delivery_count + counts)
        self._settle(mailbox, pending)
        self._activate_next()
        self.run()

    def _settle(self, mailbox: Mailbox, pending: list[PendingAck]) -> None:
        """Note settled deliveries. With those of basic.get, or of a cancelled consumer, a use of the queue ends."""
        self.consumers.settle(mailbox, pending)
        self._retire()
        record = self.consumers.records.get(mailbox)
        consumed = record.consumer_tags if record is not None else ()
        if any(one.consumer_tag not in consumed for one in pending):
            self.renew_lease()

    # ------------------------------------------------------------------------------------------------ consumers

    def check_consumer(self, *, exclusive: bool) -> None:
        """Let every consumer in: quorum queues do not know exclusive ones."""

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer; `run` delivers to it. Raises ConnectionException for a channel-wide limit."""
        if consumer.mailbox.is_limited:
            raise errors.global_qos_unsupported(self.name, self._host.name)
        held = self._held_by(consumer)  # where a consumer of the same tag was cancelled before (merge_consumer)
        if not held:
            self._last_place += 1
            self._places.setdefault(consumer.mailbox, {})[consumer.tag] = self._last_place
        super().add_consumer(consumer)
        if consumer.prefetch:
            self.consumers.records[consumer.mailbox].credits[consumer.tag] = max(0, consumer.prefetch - held)
        self._activate_next()

    def activate_limit(self, mailbox: Mailbox) -> None:
        """Stay out of a channel-wide limit: classic queues alone hear of it (classic_consumer_queue_pids)."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Take a cancelled consumer out; what it has not settled stays with its channel."""
        self.consumers.remove(consumer)
        if self._holder is consumer:
            self._holder = None
        self._activate_next()
        self.renew_lease()
        self.run()

    def channel_closed(self, mailbox: Mailbox) -> None:
        """Take back what the channel has not settled, and forget its consumers (handle_down)."""
        self._publishers.pop(mailbox, None)
        record = self.consumers.erase(mailbox)
        if record is None:
            return
        if self._holder is not None and self._holder.mailbox is mailbox:
            self._holder = None
        by_consumer = sorted(record.unacked.values(), key=lambda one: self._place(mailbox, _tag_of(one)))
        self._take_back(by_consumer, counts=True, to_the_back=False)
        self._places.pop(mailbox, None)
        self._activate_next()
        self.renew_lease()
        self.run()

    def _next_consumer(self) -> Consumer | None:
        if self._holder is not None and self._holder is self._giving_way:
            return None
        return super()._next_consumer()

    def _activate_next(self) -> None:
        """Choose the single active consumer; it gives way to a higher priority, once it holds nothing.

        That it does not take back when the other one is gone (activate_next_consumer).
        """
        if not self.settings.single_active_consumer:
            return
        holder, best = self._holder, self._best_waiting()
        if holder is None:
            self._holder = best
        elif best is not None and self._host.version.quorum_sac_priority_takes_over and best.priority > holder.priority:
            if self._held_by(holder):
                self._giving_way = holder
            else:
                self._holder = best

    def _retire(self) -> None:
        """Take a single active consumer out of service that gives way and holds nothing (update_or_remove_con)."""
        if self._holder is not None and self._holder is self._giving_way and not self._held_by(self._holder):
            self._holder = self._giving_way = None

    def _best_waiting(self) -> Consumer | None:
        """Return who is next to be the single active consumer; of equals the one with the most room (sort_waiting)."""
        every = [*self.consumers.active, *(one for record in self.consumers.records.values() for one in record.blocked)]
        by_priority = self._host.version.quorum_sac_priority_takes_over
        return min(
            (consumer for consumer in every if consumer is not self._holder),
            key=lambda each: (
                (-each.priority, -(each.prefetch or _NO_PREFETCH)) if by_priority else (0, 0),
                self._places[each.mailbox][each.tag],
            ),
            default=None,
        )

    def _held_by(self, consumer: Consumer) -> int:
        """Return how many messages the consumer has not settled."""
        record = self.consumers.records.get(consumer.mailbox)
        return 0 if record is None else sum(one.consumer_tag == consumer.tag for one in record.unacked.values())

    # ------------------------------------------------------------------------------------------------ the queue itself

    def stop(self, why: str) -> None:
        """End the queue. Nothing in it is dead-lettered."""
        if self._host.observer is not None:
            for queued in self._delayed.messages:
                self._report("lost", queued.message, why)
        super().stop(why)

    def _end(self) -> None:
        super()._end()
        self._delayed.clear()
        self._set_retry_timer()
        for publisher in self._publishers:
            publisher.queue_gone(self)

    def renew_lease(self) -> None:
        """Let the lease start anew. Whether it has ended is seen at the queue's next tick (rabbit_fifo:is_expired)."""
        if self.settings.expires_ms is None:
            return
        if self.lease_timer is not None:
            self._timers.cancel(self.lease_timer)
        ticks = (self._timers.now_ms + self.settings.expires_ms - self._started_ms) // _TICK_MS + 1
        self.lease_timer = self._timers.set(self._started_ms + ticks * _TICK_MS, self._lease_timer_fires)

    def _lease_timer_fires(self) -> None:
        self.lease_timer = None
        if not self.consumer_count:  # what holds messages counts; when the last use ends, the lease starts anew
            self.stop(LEASE_ENDED)

    def declared_again(self) -> None:
        """Hear of another declaration, which renews no lease here."""

    def purge(self) -> int:
        """Drop all ready messages; who was refused may publish again (apply, #purge)."""
        if self._host.observer is not None:
            for queued in self._delayed.messages:
                self._report("purged", queued.message)
        count = super().purge() + self._delayed.clear()
        self._set_retry_timer()
        self._look_at_limits()
        return count

    def delete(self, *, if_unused: bool, if_empty: bool) -> int:
        """End the queue; return how many ready messages went with it. Conditions are not implemented."""
        if if_unused:
            raise errors.conditional_quorum_delete(self.name, self._host.name, "if-unused")
        if if_empty:
            raise errors.conditional_quorum_delete(self.name, self._host.name, "if-empty")
        return super().delete(if_unused=False, if_empty=False)


def _tag_of(pending: PendingAck) -> str:
    """Return the tag of the consumer that a quorum queue sees (quorum_ctag)."""
    return str(pending.delivery_tag) if pending.consumer_tag is None else pending.consumer_tag


def _is_over_age(queued: QueuedMessage, instant_ms: int) -> bool:
    return queued.deadline_ms is not None and queued.deadline_ms <= instant_ms


def new_queue(identity: QueueIdentity, host: QueueHost) -> Queue:
    """Return a new queue of the type that its arguments ask for."""
    return QuorumQueue(identity, host) if identity.settings.queue_type == "quorum" else Queue(identity, host)
