"""Faults on demand: one face, for the broker in memory and for a real one behind a proxy of our own.

`queuey_faults` gives it to a test. The fake makes its faults itself (`queuey_fake.faults`); for a real broker they are
made here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol


class Faults(Protocol):
    """What can be made to fail; durations are seconds or timedelta, in the broker's time.

    Every fault strikes all connections of the test's broker. They end with the test.
    """

    def drop_connections(self, *, after_publishes: int | None = None, before_confirm: bool = True) -> None:
        """Cut every connection: now, or after the n-th publish from now, right before or after its confirm.

        The broker has taken that publish in either case.
        """

    def refuse_connections(self, *, for_: timedelta | float) -> None:
        """Refuse every new connection for a while; those that are open stay."""

    def hang(self) -> AbstractContextManager[object]:
        """Let nothing pass in either direction until `resume`, or until the end of a `with` block.

        New connections are taken and get no answer.
        """

    def resume(self) -> None:
        """End a hang: what was on its way arrives."""

    def delay(self, seconds: timedelta | float) -> None:
        """Let everything arrive so much later, in each direction; 0 ends it."""

    def block(self, reason: str = "low on memory") -> None:
        """Raise a resource alarm: from a connection that publishes, nothing more is read until `unblock`."""

    def unblock(self) -> None:
        """End the resource alarm; what was not read is."""

    def nack_next(self, n: int = 1) -> None:
        """Answer the next n publishes on confirming channels with basic.nack, and enqueue none of them."""

    def return_next(self, n: int = 1) -> None:
        """Return the next n mandatory publishes as unroutable."""

    def cancel_consumers(self, queue: str) -> None:
        """Cancel every consumer of a queue, and tell their clients; what they have not settled stays with them."""

    def delete_queue(self, queue: str) -> None:
        """Delete a queue behind the application's back, with what is in it."""

    def restart(self) -> None:
        """Restart the broker in good order: every connection ends, and what is not durable is gone.

        Raises NotOnThisBrokerError for a broker that is not this test run's alone.
        """

    def clear(self) -> None:
        """End every fault: what hangs arrives, and nothing more is asked of publishes or new connections."""
