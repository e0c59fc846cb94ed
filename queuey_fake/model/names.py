"""Names that the broker makes up: amq.gen-..., amq.ctag-..., and the addresses of direct replies.

Owns their form. They come from a counter, so that one run has the same names as the next.
"""

from __future__ import annotations

import base64
import hashlib


class Names:
    """The made-up names of one broker."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def queue(self) -> str:
        """Return a name for a queue that was declared without one."""
        return f"amq.gen-{self._next()}"

    def consumer_tag(self) -> str:
        """Return a tag for a consumer that was started without one."""
        return f"amq.ctag-{self._next()}"

    def reply_queue(self) -> str:
        """Return an address for direct replies."""
        return f"amq.rabbitmq.reply-to.{self._next()}.{self._next()}"

    def _next(self) -> str:
        self._count += 1
        octets = hashlib.sha256(b"queuey %d" % self._count).digest()[:16]
        return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
