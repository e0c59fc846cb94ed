"""What a channel has not settled yet, and in which order it is settled.

Owns the lookup by delivery tag and the grouping in which RabbitMQ settles several at once (rabbit_channel:collect_acks
and foreach_per_queue). Settles nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuey_fake.model import errors
from queuey_fake.model.delivery import PendingAck
from queuey_fake.model.fields import octets_of


class Unacked:
    """The unsettled deliveries of one channel, in the order of their tags."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, PendingAck] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingAck) -> None:
        """Note a delivery, whose tag is higher than all before."""
        self._pending[pending.delivery_tag] = pending

    def take(self, delivery_tag: int, *, multiple: bool) -> list[PendingAck]:
        """Take out one delivery, or with `multiple` it and all before it; tag 0 with `multiple` means all.

        Raises ChannelException for a tag that is not outstanding, with `multiple` too (scenario
        ack_multiple_unknown_high).
        """
        pending = self._pending
        if not multiple:
            one = pending.pop(delivery_tag, None)
            if one is None:
                raise errors.unknown_delivery_tag(delivery_tag)
            return [one]
        if delivery_tag == 0:
            return self.take_all()
        if delivery_tag not in pending:
            raise errors.unknown_delivery_tag(delivery_tag)
        tags = []
        for tag in pending:
            tags.append(tag)
            if tag == delivery_tag:
                break
        return [pending.pop(tag) for tag in tags]

    def take_all(self) -> list[PendingAck]:
        """Take everything out."""
        taken = list(self._pending.values())
        self._pending = {}
        return taken

    def put_back(self, taken: Iterable[PendingAck]) -> None:
        """Put deliveries back that were taken out, to where their tags belong."""
        merged = {one.delivery_tag: one for one in taken} | self._pending
        self._pending = dict(sorted(merged.items()))


def in_groups(pending: list[PendingAck]) -> list[list[PendingAck]]:
    """Return the deliveries in the groups that reach their queues one after the other.

    By queue name; there first each one of basic.get by itself, then by consumer tag, names and tags compared as octets;
    in a group by delivery tag (scenarios fact_group_reject, fact_group_requeue). Those of deleted queues are left out.
    """
    if len(pending) == 1:
        return [] if pending[0].queue.is_deleted else [pending]
    pending = [one for one in pending if not one.queue.is_deleted]
    groups: dict[tuple[bytes, int, int, bytes], list[PendingAck]] = {}
    for one in sorted(pending, key=lambda each: each.delivery_tag):
        queue = octets_of(one.queue.name)
        if one.consumer_tag is None:
            key = (queue, 0, one.delivery_tag, b"")
        else:
            key = (queue, 1, 0, octets_of(one.consumer_tag))
        groups.setdefault(key, []).append(one)
    return [groups[key] for key in sorted(groups)]
