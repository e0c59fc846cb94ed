"""The consumers of one queue: who gets the next message.

Owns the rotation with its priorities, the credit that each consumer's prefetch leaves, and what each channel holds
unacknowledged of the queue (rabbit_queue_consumers). Knows nothing of messages' lives.

A consumer that cannot take a message leaves the rotation only when a delivery to it is tried, and joins its end again
when it has room (scenario fact_rr_full_seen_ackmany).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain

from queuey_fake.model.delivery import Consumer, Mailbox, PendingAck, SettlingQueue

_SENT_NOTICE = 50  # deliveries after which a channel's writer tells the queue so (?MORE_CONSUMER_CREDIT_AFTER)


class _Limit(Enum):
    """How a channel-wide limit stands towards one queue (rabbit_limiter, qstate)."""

    DORMANT = 0
    ACTIVE = 1
    SUSPENDED = 2


class Rotation:
    """Consumers in the order in which they are tried: by priority, and in turn among equals."""

    __slots__ = ("levels",)

    def __init__(self, consumers: Iterable[Consumer] = ()) -> None:
        self.levels: dict[int, deque[Consumer]] = {}  # the highest priority first; no level is empty
        for consumer in consumers:
            self.append(consumer)

    def __iter__(self) -> Iterator[Consumer]:
        return chain.from_iterable(self.levels.values())

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self.levels.get(consumer.priority, ())

    def first(self) -> Consumer | None:
        """Return the consumer that is tried next."""
        level = self.highest()
        return None if level is None else level[0]

    def highest(self) -> deque[Consumer] | None:
        """Return the consumers of the highest priority, in turn; the next one goes behind its equals by a rotation."""
        for level in self.levels.values():
            return level
        return None

    def append(self, consumer: Consumer) -> None:
        """Add a consumer behind its equals."""
        level = self.levels.get(consumer.priority)
        if level is None:
            self.levels[consumer.priority] = deque((consumer,))
            if len(self.levels) > 1:
                self.levels = dict(sorted(self.levels.items(), reverse=True))
        else:
            level.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out if it is there."""
        level = self.levels.get(consumer.priority)
        if level is None or consumer not in level:
            return
        if len(level) == 1:
            del self.levels[consumer.priority]
        else:
            level.remove(consumer)


class ChannelRecord:
    """What a queue knows of one channel (rabbit_queue_consumers, #cr)."""

    __slots__ = ("blocked", "consumer_tags", "credits", "limit", "mailbox", "unacked", "unsent")

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.unacked: dict[int, PendingAck] = {}  # by the message's sequence, in order of delivery
        self.consumer_tags: set[str] = set()
        self.blocked = Rotation()
        self.credits: dict[str, int] = {}  # by consumer tag; only consumers with a prefetch have one
        self.limit = _Limit.DORMANT
        self.unsent = 0

    @property
    def is_empty(self) -> bool:
        """Whether the queue has nothing to do with the channel any more (update_ch_record)."""
        return not (self.unacked or self.consumer_tags or self.unsent)


class Consumers:
    """All consumers of one queue; `count` includes those that have no room."""

    __slots__ = ("_queue", "active", "count", "records")

    def __init__(self, queue: SettlingQueue) -> None:
        self._queue = queue
        self.active = Rotation()
        self.records: dict[Mailbox, ChannelRecord] = {}
        self.count = 0

    def record(self, mailbox: Mailbox) -> ChannelRecord:
        """Return what is known of the channel, from now on something."""
        record = self.records.get(mailbox)
        if record is None:
            record = self.records[mailbox] = ChannelRecord(mailbox)
        return record

    def add(self, consumer: Consumer) -> None:
        """Add a consumer behind its equals."""
        record = self.record(consumer.mailbox)
        record.consumer_tags.add(consumer.tag)
        self.count += 1
        if consumer.mailbox.is_limited and record.limit is _Limit.DORMANT:
            record.limit = _Limit.ACTIVE
        if consumer.prefetch and not consumer.no_ack:
            record.credits[consumer.tag] = consumer.prefetch
        self.active.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out; what it holds unacknowledged stays with its channel."""
        record = self.records[consumer.mailbox]
        record.blocked.remove(consumer)
        self.active.remove(consumer)
        record.consumer_tags.remove(consumer.tag)
        if not record.consumer_tags:
            record.limit = _Limit.DORMANT
        self.count -= 1
        record.credits.pop(consumer.tag, None)

    def erase(self, mailbox: Mailbox) -> ChannelRecord | None:
        """Forget a channel with its consumers; return what was known, None where that was nothing."""
        record = self.records.pop(mailbox, None)
        if record is None or record.is_empty:
            return None
        self.count -= len(record.consumer_tags)
        for consumer in [consumer for consumer in self.active if consumer.mailbox is mailbox]:
            self.active.remove(consumer)
        return record

    def next_to_deliver(self) -> Consumer | None:
        """Return the consumer whose turn it is, its room taken; put aside those that have none on the way."""
        while (level := self.active.highest()) is not None:
            consumer = level[0]
            if self.take_room(consumer):
                level.rotate(-1)
                return consumer
            self.block(consumer)
        return None

    def take_room(self, consumer: Consumer) -> bool:
        """Take room for one delivery to the consumer if it has some (rabbit_limiter:can_send)."""
        record = self.records[consumer.mailbox]
        credit = record.credits.get(consumer.tag)
        if credit is not None and credit <= 0:
            return False
        if record.limit is not _Limit.DORMANT and not self._take_shared_room(record, consumer):
            return False
        if credit is not None:
            record.credits[consumer.tag] = credit - 1
        return True

    def _take_shared_room(self, record: ChannelRecord, consumer: Consumer) -> bool:
        if record.limit is _Limit.SUSPENDED:
            return False
        has_room = consumer.mailbox.take_room(self._queue, ack_required=not consumer.no_ack)
        if not has_room:
            record.limit = _Limit.SUSPENDED
        return has_room

    def has_credit(self, consumer: Consumer) -> bool:
        """Return whether the consumer's prefetch leaves room."""
        return self.records[consumer.mailbox].credits.get(consumer.tag, 1) > 0

    def give_credit(self, mailbox: Mailbox, consumer_tag: str | None) -> None:
        """Give a consumer that has a prefetch room for one delivery more."""
        record = self.records.get(mailbox)
        if record is not None and consumer_tag in record.credits:
            record.credits[consumer_tag] += 1
            self._unblock(record)

    def block(self, consumer: Consumer) -> None:
        """Put a consumer aside until there is room for it."""
        self.active.remove(consumer)
        self.records[consumer.mailbox].blocked.append(consumer)

    def is_blocked(self, consumer: Consumer) -> bool:
        """Return whether the consumer was put aside."""
        return consumer in self.records[consumer.mailbox].blocked

    def delivered(self, consumer: Consumer, pending: PendingAck | None) -> None:
        """Note a delivery that a consumer got."""
        record = self.records[consumer.mailbox]
        if pending is not None:
            record.unacked[pending.queued.sequence] = pending
        record.unsent = (record.unsent + 1) % _SENT_NOTICE

    def settle(self, mailbox: Mailbox, pending: list[PendingAck]) -> bool | None:
        """Note settled deliveries; return whether a consumer has room again, None for a channel that is not known."""
        record = self.records.get(mailbox)
        if record is None:
            return None
        has_room_again = False
        for one in pending:
            record.unacked.pop(one.queued.sequence, None)
            tag = one.consumer_tag
            if tag is not None and (credit := record.credits.get(tag)) is not None:
                record.credits[tag] = credit + 1
                if not credit:
                    has_room_again = True
        return has_room_again and self._unblock(record)

    def activate_limit(self, mailbox: Mailbox) -> None:
        """Hear that the channel has a limit from now on."""
        record = self.records.get(mailbox)
        if record is not None and record.limit is _Limit.DORMANT:
            record.limit = _Limit.ACTIVE

    def lift_limit(self, mailbox: Mailbox) -> bool:
        """Hear that the channel has no limit any more; return whether a consumer has room again."""
        return self._leave_suspension(mailbox, _Limit.DORMANT)

    def resume(self, mailbox: Mailbox) -> bool:
        """Hear that there is room under the channel's limit; return whether a consumer has room again."""
        return self._leave_suspension(mailbox, _Limit.ACTIVE)

    def _leave_suspension(self, mailbox: Mailbox, limit: _Limit) -> bool:
        record = self.records.get(mailbox)
        if record is None:
            return False
        if record.limit is not _Limit.SUSPENDED:
            if limit is _Limit.DORMANT:
                record.limit = limit
            return False
        record.limit = limit
        return self._unblock(record)

    def _unblock(self, record: ChannelRecord) -> bool:
        """Let the channel's consumers that have credit join the rotation again, at its end."""
        free = [consumer for consumer in record.blocked if record.credits.get(consumer.tag, 1) > 0]
        for consumer in free:
            record.blocked.remove(consumer)
            self.active.append(consumer)
        return bool(free)
