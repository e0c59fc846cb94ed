"""What a channel in transaction mode holds back until tx.commit (rabbit_channel, tx).

Owns the publishes with the queues they were routed to, and the settlements, merged as RabbitMQ merges them. Carries
nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queuey_fake.model.delivery import PendingAck
from queuey_fake.model.message import Message
from queuey_fake.model.vhost import Target


@dataclass(frozen=True, slots=True)
class Settlement:
    """Deliveries settled in one way: `verb` is acknowledge, requeue or discard; `counts` as in the queues' methods."""

    verb: str
    counts: bool
    pending: list[PendingAck]


@dataclass(slots=True)
class Transaction:
    """One transaction at work."""

    publishes: list[tuple[Message, list[Target], bool]] = field(default_factory=list)  # message, queues, mandatory
    settlements: list[Settlement] = field(default_factory=list)

    def settle(self, settlement: Settlement) -> None:
        """Hold a settlement back; consecutive ones of one kind become one (ack_cons, scenario fact_tx_merge_same)."""
        last = self.settlements[-1] if self.settlements else None
        if last is not None and (last.verb, last.counts) == (settlement.verb, settlement.counts):
            last.pending.extend(settlement.pending)
        else:
            self.settlements.append(Settlement(settlement.verb, settlement.counts, [*settlement.pending]))
