"""Owns what is kept of a test until its page is written: its broker's journal, and how things stood at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuey_fake.wording import duration

if TYPE_CHECKING:
    from queuey_fake import FakeBroker
    from queuey_fake.journal import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What happened on one broker."""

    version: str
    lives: list[Life]
    forgotten: int
    lost: frozenset[int]
    """The messages that RabbitMQ would have dropped without a trace, expected or not."""
    expected: frozenset[int]
    """Those of them that the test expects to lose."""
    begun_ms: int
    ended_ms: int
    at_the_end: str
    """What is held and due at the end."""

    @classmethod
    def of(cls, broker: FakeBroker) -> Recording:
        """Record a broker as it stands, before it is closed."""
        journal = broker.journal
        lives = journal.lives()
        lost = frozenset(loss.number for loss in journal.losses)
        unexpected = frozenset(loss.number for loss in journal.unexpected_losses(of_others=True))
        # Where a freeze has ended, the broker's time is another by now: the last thing that happened counts.
        ended_ms = max(broker.now_ms(), journal.last_at_ms or 0)
        return cls(
            version=broker.version,
            lives=lives,
            forgotten=journal.forgotten,
            lost=lost,
            expected=lost - unexpected,
            begun_ms=min((life.events[0][1] for life in lives), default=ended_ms),
            ended_ms=ended_ms,
            at_the_end=broker.explain(),
        )

    @property
    def span(self) -> str:
        """Return how much virtual time has passed since the first message."""
        return duration(max(self.ended_ms - self.begun_ms, 0))
