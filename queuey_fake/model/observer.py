"""The seam through which somebody outside follows what becomes of each message.

Owns only the protocol. The model reports as things happen and never asks anything back.
"""

from __future__ import annotations

from typing import Protocol

from queuey_fake.model.message import Message


class Observer(Protocol):
    """Hears what happens to messages, in the order in which it happens.

    `what` is one of: published; returned, unroutable; queued; delivered (`detail` is the consumer tag), got;
    acknowledged ("automatically" where none is waited for), requeued; expired, rejected, overflowed, "returned too
    often"; and then dead-lettered (`queue` is where it goes, `detail` the reason) or dropped (`detail` says why);
    refused by a full queue; purged; lost with its queue. `queue` is where it happens, "" outside any. A dead-lettered
    message is another `Message` with the same `number`.
    """

    def report(self, what: str, message: Message, *, queue: str, detail: str, at_ms: int) -> None:
        """Take note; must not call the model."""
