"""The seam through which somebody outside follows what becomes of each message.

Owns only the protocol. The model reports as things happen and never asks anything back.
"""

from __future__ import annotations

from typing import Protocol

from queuey_fake.model.message import Message


class Observer(Protocol):
    """Hears what happens to messages, in the order in which it happens.

    `what` is one of: published, returned, unroutable (dropped, not mandatory), queued, delivered, got, acknowledged,
    requeued, rejected, expired, dead-lettered, dropped, purged, refused, lost. `queue` is the queue where it happens,
    "" outside any. `detail` says more: why a message was dropped or refused, and for dead-lettered the reason. A
    dead-lettered message is another `Message` with the same `number`.
    """

    def report(self, what: str, message: Message, *, queue: str, detail: str, at_ms: int) -> None:
        """Take note; must not call the model."""
