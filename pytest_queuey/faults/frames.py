"""Owns the few octets of AMQP 0-9-1 that the proxy reads and writes: whole frames, and methods that faults are made of.

Refuses to understand anything else, which passes as it came.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3

CHANNEL_OPEN: Final = b"\x00\x14\x00\x0a"
CONFIRM_SELECT: Final = b"\x00\x55\x00\x0a"
PUBLISH: Final = b"\x00\x3c\x00\x28"
CONSUME: Final = b"\x00\x3c\x00\x14"
CONSUME_OK: Final = b"\x00\x3c\x00\x15"
CANCEL: Final = b"\x00\x3c\x00\x1e"
CANCEL_OK: Final = b"\x00\x3c\x00\x1f"
RETURN: Final = b"\x00\x3c\x00\x32"
DELIVER: Final = b"\x00\x3c\x00\x3c"
GET_OK: Final = b"\x00\x3c\x00\x47"
ACK: Final = b"\x00\x3c\x00\x50"
NACK: Final = b"\x00\x3c\x00\x78"
WITH_CONTENT: Final = frozenset({PUBLISH, RETURN, DELIVER, GET_OK})

_BLOCKED: Final = b"\x00\x0a\x00\x3c"
_UNBLOCKED: Final = b"\x00\x0a\x00\x3d"
_HEAD: Final = struct.Struct(">BHI")
_BODY_SIZE: Final = struct.Struct(">Q")
_TAG_AND_BITS: Final = struct.Struct(">QB")
_END: Final = b"\xce"
_MANDATORY: Final = 1
_NOWAIT: Final = 1
_CONSUME_NOWAIT: Final = 8


class Frame(NamedTuple):
    """One frame, and its octets as they came."""

    kind: int
    channel: int
    payload: bytes
    octets: bytes

    @property
    def method(self) -> bytes:
        """Return the ids of its class and method, where it is a method frame; else nothing."""
        return self.payload[:4] if self.kind == METHOD else b""


def whole_frames(received: bytearray) -> Iterator[Frame]:
    """Yield the frames that have come in full; each is taken off when the next one is asked for."""
    while len(received) >= _HEAD.size:
        kind, channel, size = _HEAD.unpack_from(received)
        end = _HEAD.size + size + len(_END)
        if len(received) < end:
            return
        octets = bytes(received[:end])
        yield Frame(kind, channel, octets[_HEAD.size : -1], octets)
        del received[:end]


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return the octets of a frame."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def short_strings(payload: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Return short strings that stand one behind the other, and where they end."""
    found = []
    for _ in range(count):
        end = at + 1 + payload[at]
        found.append(payload[at + 1 : end])
        at = end
    return found, at


def body_size(header: Frame) -> int:
    """Return how large the body is that a content header announces."""
    size: int = _BODY_SIZE.unpack_from(header.payload, 4)[0]
    return size


def is_mandatory(publish: bytes) -> bool:
    """Return whether a basic.publish is mandatory."""
    _, end = short_strings(publish, 6, 2)
    return bool(publish[end] & _MANDATORY)


def consume(payload: bytes) -> tuple[bytes, bytes, bool]:
    """Return the queue and the tag of a basic.consume, and whether it is answered."""
    (queue, tag), end = short_strings(payload, 6, 2)
    return queue, tag, not payload[end] & _CONSUME_NOWAIT


def confirm(payload: bytes) -> tuple[int, bool]:
    """Return the delivery tag of a basic.ack or basic.nack, and whether it covers those before it."""
    tag, bits = _TAG_AND_BITS.unpack_from(payload, 4)
    return tag, bool(bits & 1)


def confirming(method: bytes, channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return a basic.ack or basic.nack."""
    return frame(METHOD, channel, method + _TAG_AND_BITS.pack(tag, multiple))


def returning(publish: bytes) -> bytes:
    """Return the payload of the basic.return with which a broker gives a publish back as unroutable."""
    _, end = short_strings(publish, 6, 2)
    return RETURN + struct.pack(">H", 312) + _short(b"NO_ROUTE") + publish[6:end]


def cancelling(channel: int, tag: bytes, *, wants_answer: bool) -> bytes:
    """Return a basic.cancel."""
    return frame(METHOD, channel, CANCEL + _short(tag) + bytes([0 if wants_answer else _NOWAIT]))


def blocked(reason: str) -> bytes:
    """Return a connection.blocked."""
    return frame(METHOD, 0, _BLOCKED + _short(reason.encode()))


def unblocked() -> bytes:
    """Return a connection.unblocked."""
    return frame(METHOD, 0, _UNBLOCKED)


def _short(octets: bytes) -> bytes:
    return bytes([len(octets)]) + octets
