"""The octets of AMQP 0-9-1: frames, methods and content headers.

Owns both directions, driven by the table in `methods`. Keeps the properties of a message as the octets they came in;
field tables are the model's own (`table_codec`). Raises MalformedMethod or MalformedTable, and decides nothing about
them.
"""

import functools
import struct
from typing import Any

from queuey_fake.model import table_codec
from queuey_fake.model.fields import octets_of, text_of
from queuey_fake.wire.methods import METHODS, Method

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8  # types of frames
FRAME_END = 0xCE
FRAME_OVERHEAD = 8  # the header and the end of a frame
CLASS_BASIC = 60

FRAME_HEADER = struct.Struct(">BHI")
METHOD_IDS = struct.Struct(">HH")
CONTENT_HEADER = struct.Struct(">HHQ")
_INTEGERS = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}
_LONG = _INTEGERS["long"]
_SHORT_STRING_MAX = 255

HEARTBEAT_FRAME = FRAME_HEADER.pack(HEARTBEAT, 0, 0) + bytes([FRAME_END])


class UnknownMethod(ValueError):  # noqa: N818  it names what is unknown
    """Class and method ids that AMQP 0-9-1 does not have."""


class MalformedMethod(ValueError):  # noqa: N818  it names what is malformed
    """The octets of the fields do not fit the method."""

    def __init__(self, method: Method, octets: bytes) -> None:
        super().__init__(f"{method.name} cannot have the fields {octets!r}")
        self.method = method
        self.octets = octets


class MalformedShortString(MalformedMethod):
    """A short string of the method is not UTF-8."""


def frame(type_: int, channel: int, payload: bytes) -> bytes:
    """Return the frame."""
    return b"%b%b\xce" % (FRAME_HEADER.pack(type_, channel, len(payload)), payload)


def method_of(payload: bytes) -> Method:
    """Return the method that the payload of a method frame is for. Raises UnknownMethod."""
    try:
        return METHODS[METHOD_IDS.unpack_from(payload)]
    except (KeyError, struct.error) as error:
        raise UnknownMethod(f"no method of AMQP 0-9-1 starts with {payload[:4]!r}") from error


def decode_fields(method: Method, payload: bytes) -> dict[str, Any]:
    """Return the fields of the method, by name, from the payload of its frame.

    Raises MalformedMethod, or MalformedTable for a field table in it. Short strings must be UTF-8 except in the methods
    that carry content, where RabbitMQ does not look (rabbit_framing_amqp_0_9_1:decode_method_fields).
    """
    try:
        return _decode_fields(method, payload)
    except (IndexError, struct.error) as error:
        raise MalformedMethod(method, payload[METHOD_IDS.size :]) from error


def _decode_fields(method: Method, payload: bytes) -> dict[str, Any]:
    at = METHOD_IDS.size
    bit = 0  # the mask of the next bit in the octet before `at`, where a run of bits goes on
    values: dict[str, Any] = {}
    for name, type_ in method.fields:
        if type_ == "bit":
            if bit == 0:
                bit = 1
                at += 1
            values[name] = bool(payload[at - 1] & bit)
            bit = bit << 1 & 0xFF
            continue
        bit = 0
        if type_ in _INTEGERS:
            values[name] = _INTEGERS[type_].unpack_from(payload, at)[0]
            at += _INTEGERS[type_].size
            continue
        start = at + (1 if type_ == "shortstr" else 4)
        size = payload[at] if type_ == "shortstr" else _LONG.unpack_from(payload, at)[0]
        at = start + size
        if at > len(payload):
            raise IndexError
        values[name] = _sized_value(method, type_, payload, start, at)
    if at != len(payload):
        raise IndexError
    return values


def _sized_value(method: Method, type_: str, payload: bytes, start: int, end: int) -> Any:
    octets = payload[start:end]
    if type_ == "table":
        return table_codec.decode_table(octets)
    if type_ == "longstr":
        return octets
    if method.has_content:
        return text_of(octets)
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise MalformedShortString(method, payload[METHOD_IDS.size :]) from error


def encode_method(method: Method, **values: Any) -> bytes:
    """Return the payload of the method's frame. Every field must be given; short strings are cut to 255 octets."""
    pieces = [METHOD_IDS.pack(method.class_id, method.method_id)]
    bits = -1  # the octet that a run of bits is collected in, -1 outside of one
    mask = 1
    for name, type_ in method.fields:
        value = values[name]
        if type_ == "bit":
            if bits < 0:
                bits, mask = 0, 1
            bits |= mask if value else 0
            mask <<= 1
            continue
        if bits >= 0:
            pieces.append(bytes([bits]))
            bits = -1
        pieces.append(_encode_field(type_, value))
    if bits >= 0:
        pieces.append(bytes([bits]))
    return b"".join(pieces)


def _encode_field(type_: str, value: Any) -> bytes:
    if type_ in _INTEGERS:
        return _INTEGERS[type_].pack(value)
    if type_ == "shortstr":
        return short_string(value)
    octets = table_codec.encode_table(value) if type_ == "table" else value
    return _LONG.pack(len(octets)) + octets


@functools.lru_cache(maxsize=4096)
def short_string(text: str) -> bytes:
    """Return the short string; names of exchanges, queues and consumers come again and again."""
    octets = octets_of(text)[:_SHORT_STRING_MAX]
    return bytes([len(octets)]) + octets


def method_frame(channel: int, method: Method, **values: Any) -> bytes:
    """Return the frame of the method."""
    return frame(METHOD, channel, encode_method(method, **values))


def content_frames(channel: int, properties_payload: bytes, body: bytes, frame_max: int) -> bytes:
    """Return the header and the body frames of a content, none of them longer than `frame_max` (0: no limit)."""
    header = frame(HEADER, channel, CONTENT_HEADER.pack(CLASS_BASIC, 0, len(body)) + properties_payload)
    if not body:
        return header
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    if len(body) <= room:
        return header + frame(BODY, channel, body)
    parts = (frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room))
    return header + b"".join(parts)


class ContentHeader:
    """A content header as it came: class, weight, size of the body and properties."""

    __slots__ = ("body_size", "class_id", "properties_payload", "weight")

    def __init__(self, payload: bytes) -> None:
        """Take the payload of the frame, of `CONTENT_HEADER.size` octets at least."""
        self.class_id, self.weight, self.body_size = CONTENT_HEADER.unpack_from(payload)
        self.properties_payload = payload[CONTENT_HEADER.size :]
