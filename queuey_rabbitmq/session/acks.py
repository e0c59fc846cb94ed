"""Batching the acks of one consumer's channel: which tags one `multiple` may cover. Sends nothing.

A channel has one consumer and no gets, so its delivery tags are 1, 2, 3 ... without holes. `multiple` at tag N is
right only while N itself is unacked at the broker and nothing below N is still being worked on; a tag below N that
was acked or nacked before is fine; tag 0 would ack everything (measured on 3.10.8; scenarios ack_multiple_gap,
ack_multiple_unknown_high).
"""

from __future__ import annotations


class AckBatch:
    """Acks that are settled here and not sent yet."""

    def __init__(self) -> None:
        self.unsent: list[int] = []
        """The tags of deliveries that are done and not acked yet."""
        self._settled: set[int] = set()
        self._lowest_open = 1

    def ack(self, tag: int) -> None:
        """Note that a delivery is done; `flush` says what to send."""
        self.unsent.append(tag)
        self._settled.add(tag)

    def settled_otherwise(self, tag: int) -> None:
        """Note a delivery whose nack or reject has been sent."""
        self._settled.add(tag)

    def highest_open(self, last: int) -> int:
        """Return the highest tag that is not settled, given the last there is; at least one must be open."""
        while last in self._settled:
            last -= 1
        return last

    def flush(self) -> list[tuple[int, bool]]:
        """Return (tag, multiple) of the acks to send now; none is held back, a held ack keeps a prefetch slot."""
        if not self.unsent:
            return []
        settled, lowest = self._settled, self._lowest_open
        while lowest in settled:
            settled.remove(lowest)
            lowest += 1
        self._lowest_open = lowest
        unsent, self.unsent = self.unsent, []
        highest = max(unsent)
        if highest < lowest:
            return [(highest, len(unsent) > 1)]
        prefix = [tag for tag in unsent if tag < lowest]
        acks = [(max(prefix), len(prefix) > 1)] if prefix else []
        acks += [(tag, False) for tag in unsent if tag >= lowest]
        return acks
