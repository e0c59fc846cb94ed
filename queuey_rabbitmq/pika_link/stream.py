"""How the bytes of a connection leave, and how its TCP stream is dropped: the two places that lean on pika's inside.

pika 1.4.4 hands every frame to its transport singly, and the transport sends each one with a system call of its own:
three for a publish. Nothing public changes that; joined, a publish costs the client a third of the CPU time.
Nor is there a public way to drop an open connection at once: `close()` waits for answers, which a broker that is
blocked or hung never gives. Both uses are checked and have a fallback on public means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pika
import pika.exceptions

MAX_JOINED_BYTES = 128 * 1024
"""A partial send copies what is left of a joined piece: pieces stay small, and large frames are not copied at all."""


class CoalescingConnection(pika.SelectConnection):  # type: ignore[misc]  # pika ships no annotations
    """A SelectConnection that keeps frames until `flush` hands them to the transport as few pieces."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._unflushed: list[bytes] = []
        super().__init__(*args, **kwargs)

    def _adapter_emit_data(self, data: bytes) -> None:
        self._unflushed.append(data)

    def flush(self) -> None:
        """Hand all frames to the transport, in order; those of a connection that is closed are dropped."""
        if not self._unflushed:
            return
        frames, self._unflushed = self._unflushed, []
        if self.is_closed:
            return
        size = 0
        start = 0
        for index, frame in enumerate(frames):
            size += len(frame)
            if size > MAX_JOINED_BYTES and index > start:
                super()._adapter_emit_data(b"".join(frames[start:index]))
                start = index
                size = len(frame)
        super()._adapter_emit_data(b"".join(frames[start:]))


def _can_coalesce() -> bool:
    hook = getattr(pika.SelectConnection, "_adapter_emit_data", None)
    return hook is not None and list(inspect.signature(hook).parameters) == ["self", "data"]


CONNECTION_CLASS: type[pika.SelectConnection] = CoalescingConnection if _can_coalesce() else pika.SelectConnection


def flusher(connection: pika.SelectConnection) -> Callable[[], None]:
    """Return what hands the frames of this connection to its transport, at the end of a turn."""
    return connection.flush if isinstance(connection, CoalescingConnection) else _nothing


def drop(connection: pika.SelectConnection, error: pika.exceptions.AMQPConnectionError) -> None:
    """Close the TCP stream at once; the connection's close or open-error callback follows with this error.

    Also while the connection is opening, where `close()` is immediate too, but in the middle of the AMQP handshake
    pika 1.4.4 then trips over its own assertion (`_on_connection_workflow_done` gets a class for an instance).
    """
    terminate = getattr(connection, "_terminate_stream", None)
    if terminate is not None:
        terminate(error)
    elif not connection.is_closing:
        connection.close()


def _nothing() -> None:
    pass
