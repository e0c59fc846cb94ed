"""The bytes of a connection, and the places that lean on pika's inside.

pika 1.4.4 hands every frame to its transport singly, and the transport sends each one with a system call of its own:
three for a publish; and before it sends it waits in its loop for the socket to be writable, and after it reads it
reads again. Frames that come in pass a general machinery that costs more than all that a session does with them.
Nothing public changes any of it. And there is no public way to drop an open connection at once: `close()` waits for
answers, which a broker that is blocked or hung never gives. Each use is checked, and has a fallback on public means.
"""

from __future__ import annotations

import inspect
import socket
import ssl
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Protocol

import pika
import pika.exceptions

from queuey_rabbitmq.amqp import Delivered
from queuey_rabbitmq.pika_link import frames
from queuey_rabbitmq.pika_link.frames import Incomplete

MAX_JOINED_BYTES = 128 * 1024
"""A partial send copies what is left of a joined piece: pieces stay small, and large frames are not copied at all."""


READ_BYTES = 64 * 1024
"""How much is read at a time where the transport lets that be said; pika's own 4 KiB are eight messages.

Less than the 128 KiB from which the C library maps memory for each read, and unmaps it again.
"""


class Sink(Protocol):
    """A channel that takes deliveries and confirms without pika in between."""

    number: int
    """The port's number for the channel."""
    consuming: set[str]
    """Tags of the consumers that take deliveries."""

    def on_delivery(self, delivery: Delivered) -> None:
        """Take a delivery for one of `consuming`."""

    def on_confirm(self, delivery_tag: int, *, multiple: bool, is_ack: bool) -> None:
        """Take an ack or nack of the broker."""


class FastConnection(pika.SelectConnection):  # type: ignore[misc]  # pika ships no annotations
    """A SelectConnection that keeps frames until `flush`, and knows a short way for those that come by the thousand."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._unflushed: list[bytes] = []
        self._unread = b""
        self._socket: socket.socket | None = None
        """What may be written to directly while nothing waits in the transport."""
        self.sinks: dict[int, Sink] = {}
        """By pika's channel number; a channel without a sink gets everything from pika."""
        super().__init__(*args, **kwargs)

    # -------------------------------------------------------------------------------------------------- out

    def _adapter_emit_data(self, data: bytes) -> None:
        self._unflushed.append(data)

    def emit(self, data: bytes) -> None:
        """Write whole frames, behind those that pika has written."""
        self._unflushed.append(data)

    def flush(self) -> None:
        """Hand all frames to the transport, in order; those of a connection that is closed are dropped."""
        if not self._unflushed:
            return
        unflushed, self._unflushed = self._unflushed, []
        if self.is_closed:
            return
        ends = list(accumulate(map(len, unflushed)))
        start = written = 0
        while start < len(unflushed):
            stop = max(start + 1, bisect_right(ends, written + MAX_JOINED_BYTES))
            self._write(b"".join(unflushed[start:stop]))
            start, written = stop, ends[stop - 1]

    def _on_stream_connected(self) -> None:
        self._socket = _make_quick(self._transport)
        super()._on_stream_connected()

    def _write(self, data: bytes) -> None:
        """Write to the socket what it takes at once; the rest is for pika, and so is every error, which comes again."""
        if self._socket is not None and not self._transport.get_write_buffer_size():
            try:
                sent = self._socket.send(data)
            except OSError:
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        super()._adapter_emit_data(data)

    # --------------------------------------------------------------------------------------------------- in

    def _on_data_available(self, data_in: bytes) -> None:
        data = self._unread + data_in
        at = 0
        size = len(data)
        while size - at >= frames.OVERHEAD:
            kind, channel, length = frames.unpack_frame(data, at)
            if kind not in frames.FRAME_KINDS:  # not AMQP, or another version of it: pika says what it is
                super()._on_data_available(data[at:])
                at = size
                break
            end = at + frames.OVERHEAD + length
            if end > size:
                break
            sink = self.sinks.get(channel)
            if sink is not None and kind == frames.FRAME_METHOD:
                try:
                    taken = self._take(sink, data, at, end)
                except Incomplete:
                    break
            else:
                taken = 0
            if not taken:
                super()._on_data_available(data[at:end])
                taken = end
            at = taken
        self._unread = data[at:]

    def _take(self, sink: Sink, data: bytes, at: int, end: int) -> int:
        """Take the frames of one delivery or confirm; return where they end, or 0 where pika should look at them."""
        method = data[at + 7 : at + 11]
        if method == frames.DELIVER:
            try:
                decoded = frames.decode_delivery(data, at, end, sink.number)
            except Incomplete:
                raise
            except Exception:  # noqa: BLE001 -- not in the plain form: pika decides what it is
                return 0
            if decoded is None or decoded[0].consumer_tag not in sink.consuming:
                return 0
            delivery, last = decoded
            self._count(last - at)
            sink.on_delivery(delivery)
            return last
        if method in {frames.ACK, frames.NACK} and data[end - 1] == frames.FRAME_END:
            tag, multiple = frames.decode_confirm(data, at + 7)
            self._count(end - at)
            sink.on_confirm(tag, multiple=multiple, is_ack=method == frames.ACK)
            return end
        return 0

    def _count(self, size: int) -> None:
        """Note that bytes came: pika's heartbeat check takes a connection for dead that receives none."""
        self.bytes_received += size
        self.frames_received += 1


def _make_quick(transport: object) -> socket.socket | None:
    """Have a transport without TLS read much at a time, once for each time that there is something.

    Returns its socket, which takes writes between the transport's own; None where it is another transport than it is
    taken for.
    """
    sock = getattr(transport, "_sock", None)
    is_known = hasattr(transport, "_MAX_RECV_BYTES") and hasattr(transport, "_MAX_CONSUME_BYTES")
    if not isinstance(sock, socket.socket) or isinstance(sock, ssl.SSLSocket) or not is_known:
        return None
    vars(transport).update(_MAX_RECV_BYTES=READ_BYTES, _MAX_CONSUME_BYTES=1)
    return sock


def _is_fit() -> bool:
    """Whether the hooks exist as they are used here: with another pika, SelectConnection serves as it is."""
    hooks = {
        "_adapter_emit_data": ["self", "data"],
        "_on_data_available": ["self", "data_in"],
        "_on_stream_connected": ["self"],
    }
    return all(
        callable(hook := getattr(pika.SelectConnection, name, None))
        and list(inspect.signature(hook).parameters) == parameters
        for name, parameters in hooks.items()
    )


CONNECTION_CLASS: type[pika.SelectConnection] = FastConnection if _is_fit() else pika.SelectConnection


def flusher(connection: pika.SelectConnection) -> Callable[[], None]:
    """Return what hands the frames of this connection to its transport, at the end of a turn."""
    return connection.flush if isinstance(connection, FastConnection) else _nothing


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
