"""The frames that a busy connection consists of: publishes out; deliveries, acks and nacks in.

pika encodes and decodes any method; a publish costs it 20 microseconds and a delivery 24, most of it spent on
being general. Here are only the four that come by the thousand, and only in their plain form: whatever is out of the
ordinary (a value of another type, a body of several frames, a frame that is not all there) is left to pika, which
stays the one that judges. Tests hold every byte against pika's.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any

import pika
from pika.data import encode_table, encode_value

from queuey_rabbitmq.amqp import Delivered, LateProperties, Properties
from queuey_rabbitmq.core.errors import SerializationError

FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT, FRAME_END = 1, 2, 3, 8, 0xCE
FRAME_KINDS = frozenset({FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT})
OVERHEAD = 8
"""Bytes of a frame around its payload."""

KNOWN = 1024
"""How many texts, counters and queues are encoded once: they are the same in message after message."""

BASIC = 60
DELIVER = b"\x00\x3c\x00\x3c"
ACK = b"\x00\x3c\x00\x50"
NACK = b"\x00\x3c\x00\x78"
PUBLISH_DEFAULT_EXCHANGE = b"\x00\x3c\x00\x28\x00\x00\x00"
MANDATORY = b"\x01"
HAS_HEADERS = 0x20
"""In the first octet of the properties' flags."""

unpack_frame = Struct(">BHI").unpack_from
_frame = Struct(">BHI").pack
_header = Struct(">BHIHHQH").pack
_header_fields = Struct(">HHQ").unpack_from
_long_long = Struct(">Q")
_long = Struct(">I")
_signed_int = Struct(">ci").pack
_long_string = Struct(">cI").pack
_confirm = Struct(">QB").unpack_from
_delivery_tag = Struct(">QB").unpack_from


def _short(value: str) -> bytes:
    encoded = value.encode()
    return bytes((len(encoded),)) + encoded  # raises over 255 bytes, and pika then says so


_known_short = lru_cache(maxsize=KNOWN)(_short)


@lru_cache(maxsize=KNOWN)
def _known_integer(key: str, value: int) -> bytes:
    return _short(key) + _signed_int(b"I", value)


def _table(values: Mapping[str, Any]) -> bytes:
    """Return a field table; of the values, texts and integers of 32 bits are told apart here, the others by pika."""
    pieces = []
    for key, value in values.items():
        if type(value) is int and -(2**31) <= value < 2**31:
            pieces.append(_known_integer(key, value))
        elif type(value) is str:
            encoded = value.encode()
            pieces.append(_short(key) + _long_string(b"S", len(encoded)) + encoded)
        else:
            pieces.append(_short(key))
            encode_value(pieces, value)
    table = b"".join(pieces)
    return _long.pack(len(table)) + table


@lru_cache(maxsize=KNOWN)
def _publish_method(channel: int, routing_key: str) -> bytes:
    arguments = PUBLISH_DEFAULT_EXCHANGE + _short(routing_key) + MANDATORY
    return _frame(FRAME_METHOD, channel, len(arguments)) + arguments + b"\xce"


def encode_publish(channel: int, routing_key: str, properties: Properties, body: bytes) -> bytes:
    """Return the frames of a mandatory publish to the default exchange, its body in one frame.

    Raises anything for values that are not of AMQP's types.
    """
    flags, fields = _property_list(properties)
    size = len(body)
    header = _header(FRAME_HEADER, channel, len(fields) + 14, BASIC, 0, size, flags)
    frames = _publish_method(channel, routing_key) + header + fields + b"\xce"
    if size:
        frames += _frame(FRAME_BODY, channel, size) + body + b"\xce"
    return frames


def _property_list(  # noqa: C901, PLR0912 -- one branch for each of AMQP's properties, in its order
    p: Properties,
) -> tuple[int, bytes]:
    """Return the flags of the properties that are set, and their values."""
    flags = 0
    fields = b""
    if p.content_type is not None:
        flags |= 0x8000
        fields += _known_short(p.content_type)
    if p.content_encoding is not None:
        flags |= 0x4000
        fields += _known_short(p.content_encoding)
    if p.headers is not None:
        flags |= 0x2000
        fields += _table(p.headers)
    if p.delivery_mode is not None:
        flags |= 0x1000
        fields += bytes((p.delivery_mode,))
    if p.priority is not None:
        flags |= 0x0800
        fields += bytes((p.priority,))
    if p.correlation_id is not None:
        flags |= 0x0400
        fields += _short(p.correlation_id)
    if p.reply_to is not None:
        flags |= 0x0200
        fields += _short(p.reply_to)
    if p.expiration is not None:
        flags |= 0x0100
        fields += _known_short(p.expiration)
    if p.message_id is not None:
        flags |= 0x0080
        fields += _short(p.message_id)
    if p.timestamp is not None:
        flags |= 0x0040
        fields += _long_long.pack(p.timestamp)
    if p.type is not None:
        flags |= 0x0020
        fields += _known_short(p.type)
    if p.user_id is not None:
        flags |= 0x0010
        fields += _known_short(p.user_id)
    if p.app_id is not None:
        flags |= 0x0008
        fields += _known_short(p.app_id)
    if p.cluster_id is not None:
        flags |= 0x0004
        fields += _known_short(p.cluster_id)
    return flags, fields


def unwritable_header(headers: Mapping[str, Any] | None) -> str | None:
    """Say which header pika cannot write, if one: its own errors show what it had written before, or nothing at all."""
    for name, value in (headers or {}).items():
        try:
            encode_table([], {name: value})
        except Exception:  # noqa: BLE001 -- pika's encoders raise a dozen different things
            return f"header {name!r}: AMQP cannot carry {reprlib.repr(value)} of type {type(value).__name__}"
    return None


def decode_properties(encoded: bytes) -> Mapping[str, Any]:
    """Return the properties of a message by name. Raises SerializationError for what pika cannot decode."""
    properties = pika.BasicProperties()
    try:
        properties.decode(encoded)
    except Exception as error:
        raise SerializationError(f"the properties of a message cannot be decoded: {error!r}") from error
    values: dict[str, Any] = vars(properties)
    return values


class Incomplete(Exception):  # noqa: N818 -- not an error: the rest has not been read yet
    """More bytes must come first."""


def decode_confirm(data: bytes, payload: int) -> tuple[int, bool]:
    """Return delivery tag and `multiple` of an ack or nack of the broker; `payload` is where the method starts."""
    tag, bits = _confirm(data, payload + 4)
    return tag, bool(bits & 1)


def decode_delivery(data: bytes, start: int, end: int, number: int) -> tuple[Delivered, int] | None:
    """Return the delivery whose method frame is `data[start:end]`, and where its last frame ends.

    Returns None where pika should look at it; `number` is the port's for the channel.

    Raises Incomplete where header or body have not come yet.
    """
    size = len(data)
    if size - end < OVERHEAD:
        raise Incomplete
    kind, _, length = unpack_frame(data, end)
    header_end = end + OVERHEAD + length
    if kind != FRAME_HEADER:
        return None
    if size < header_end:
        raise Incomplete
    _, _, body_size = _header_fields(data, end + 7)
    body_end = header_end
    body = b""
    if body_size:
        if size - header_end < OVERHEAD:
            raise Incomplete
        kind, _, length = unpack_frame(data, header_end)
        if kind != FRAME_BODY or length != body_size:
            return None
        body_end = header_end + OVERHEAD + length
        if size < body_end:
            raise Incomplete
        body = data[header_end + 7 : body_end - 1]
    if not data[end - 1] == data[header_end - 1] == data[body_end - 1] == FRAME_END:
        return None
    at = start + 12
    stop = at + data[start + 11]
    consumer_tag = data[at:stop].decode()
    delivery_tag, bits = _delivery_tag(data, stop)
    at = stop + 10
    stop = at + data[at - 1]
    exchange = data[at:stop].decode()
    at = stop + 1
    routing_key = data[at : at + data[stop]].decode()
    encoded = data[end + 19 : header_end - 1]
    properties = LateProperties(encoded, decode_properties, has_headers=bool(encoded[0] & HAS_HEADERS))
    delivered = Delivered(number, consumer_tag, delivery_tag, bool(bits & 1), exchange, routing_key, properties, body)
    return delivered, body_end
