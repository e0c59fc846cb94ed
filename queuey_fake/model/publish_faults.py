"""What a test has asked to happen to publishes to come: refused, returned, or the last that a connection carries.

Owns the counting down. Breaks nothing itself: the channel does what the fate says, with the broker's own means.
"""

from __future__ import annotations

from enum import Enum


class Fate(Enum):
    """What becomes of one publish."""

    TAKEN = "taken"
    NACKED = "nacked"  # not enqueued; where the channel confirms, basic.nack
    RETURNED = "returned"  # routed nowhere
    LAST = "last"  # taken and, where the channel confirms, confirmed; then every connection is gone
    LAST_UNCONFIRMED = "last, unconfirmed"  # taken; then every connection is gone, before the confirm


class PublishFaults:
    """Counts publishes down, of all connections together."""

    __slots__ = ("confirms_last", "left", "nacks", "returns")

    def __init__(self) -> None:
        self.nacks = 0
        """How many publishes on confirming channels are still to be refused."""
        self.returns = 0
        """How many mandatory publishes are still to be returned."""
        self.left = 0
        """After how many publishes every connection is gone; 0 for never."""
        self.confirms_last = False

    def next_fate(self, *, is_mandatory: bool, is_confirming: bool) -> Fate:
        """Return what becomes of the next publish."""
        if self.nacks and is_confirming:
            self.nacks -= 1
            return Fate.NACKED
        if self.returns and is_mandatory:
            self.returns -= 1
            return Fate.RETURNED
        if self.left:
            self.left -= 1
            if not self.left:
                return Fate.LAST if self.confirms_last else Fate.LAST_UNCONFIRMED
        return Fate.TAKEN
