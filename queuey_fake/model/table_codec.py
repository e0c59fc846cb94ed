"""The octets of field tables and property lists, as AMQP 0-9-1 and RabbitMQ write them.

Owns both directions of the field table with every type that RabbitMQ knows, and of the property list of class basic.
Refuses what RabbitMQ's parser has no clause for, and nesting beyond a bound, with MalformedTable.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from queuey_fake.model.fields import VOID, Field, Table, octets_of, text_of

MAX_DEPTH = 64  # RabbitMQ has no bound but its memory; this one keeps a hostile table from exhausting the stack.

CONTENT_TYPE = 1 << 15
CONTENT_ENCODING = 1 << 14
HEADERS = 1 << 13
DELIVERY_MODE = 1 << 12
PRIORITY = 1 << 11
CORRELATION_ID = 1 << 10
REPLY_TO = 1 << 9
EXPIRATION = 1 << 8
MESSAGE_ID = 1 << 7
TIMESTAMP = 1 << 6
TYPE = 1 << 5
USER_ID = 1 << 4
APP_ID = 1 << 3
CLUSTER_ID = 1 << 2

NO_FLAGS = 0b11  # two bits that say nothing to RabbitMQ (rabbit_framing_amqp_0_9_1:decode_properties)

PROPERTY_FLAGS = {
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "headers": HEADERS,
    "delivery_mode": DELIVERY_MODE,
    "priority": PRIORITY,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "timestamp": TIMESTAMP,
    "type": TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "cluster_id": CLUSTER_ID,
}


class MalformedTable(ValueError):  # noqa: N818  it names what is malformed
    """Octets that are no field table or no property list."""


# (octet, type, struct) of the values of fixed size. 'L' is read as RabbitMQ reads it and never written.
_FIXED = (
    (b"b", "byte", struct.Struct(">b")),
    (b"B", "unsignedbyte", struct.Struct(">B")),
    (b"s", "short", struct.Struct(">h")),
    (b"u", "unsignedshort", struct.Struct(">H")),
    (b"I", "signedint", struct.Struct(">i")),
    (b"i", "unsignedint", struct.Struct(">I")),
    (b"l", "long", struct.Struct(">q")),
    (b"T", "timestamp", struct.Struct(">Q")),
    (b"f", "float", struct.Struct(">f")),
    (b"d", "double", struct.Struct(">d")),
)
_LETTERS = {letter[0]: (type_, layout) for letter, type_, layout in _FIXED}
_LETTERS[ord("L")] = _LETTERS[ord("l")]
_TYPES = {type_: (letter, layout) for letter, type_, layout in _FIXED}
_LENGTH = struct.Struct(">I")
_DECIMAL = struct.Struct(">BI")


def decode_table(octets: bytes) -> Table:
    """Return the table whose entries these octets are, the length in front already taken off."""
    return _decode_table(octets, 0, len(octets), MAX_DEPTH)


def _decode_table(octets: bytes, at: int, end: int, depth: int) -> Table:
    if depth == 0:
        raise MalformedTable(f"a field table nested more than {MAX_DEPTH} deep")
    table: Table = {}
    while at < end:
        key_end = at + 1 + octets[at]
        if key_end >= end:
            raise MalformedTable("a field table ends inside a key")
        key = text_of(octets[at + 1 : key_end])
        field, at = _decode_field(octets, key_end, end, depth)
        table.setdefault(key, field)  # rabbit_misc:table_lookup finds the first of two
    return table


def _decode_field(octets: bytes, at: int, end: int, depth: int) -> tuple[Field, int]:
    letter = octets[at]
    at += 1
    if letter in _LETTERS:
        type_, layout = _LETTERS[letter]
        after = _within(at + layout.size, end)
        value = layout.unpack_from(octets, at)[0]
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124  that is how NaN is told
            raise MalformedTable("a float that Erlang has no value for")
        return Field(type_, value), after
    match letter:
        case 0x74:  # t
            return Field("bool", octets[at] != 0) if _within(at + 1, end) else VOID, at + 1
        case 0x44:  # D
            after = _within(at + _DECIMAL.size, end)
            return Field("decimal", _DECIMAL.unpack_from(octets, at)), after
        case 0x56:  # V
            return VOID, at
        case 0x53 | 0x78 | 0x46 | 0x41:  # S x F A
            start = _within(at + 4, end)
            after = _within(start + _LENGTH.unpack_from(octets, at)[0], end)
            return _decode_sized(letter, octets, start, after, depth), after
        case _:
            raise MalformedTable(f"a field table has no values of type {chr(letter)!r}")


def _decode_sized(letter: int, octets: bytes, at: int, end: int, depth: int) -> Field:
    match letter:
        case 0x53:
            return Field("longstr", text_of(octets[at:end]))
        case 0x78:
            return Field("binary", octets[at:end])
        case 0x46:
            return Field("table", _decode_table(octets, at, end, depth - 1))
        case _:
            return Field("array", _decode_array(octets, at, end, depth - 1))


def _decode_array(octets: bytes, at: int, end: int, depth: int) -> tuple[Field, ...]:
    if depth == 0:
        raise MalformedTable(f"a field array nested more than {MAX_DEPTH} deep")
    values = []
    while at < end:
        field, at = _decode_field(octets, at, end, depth)
        values.append(field)
    return tuple(values)


def _within(position: int, end: int) -> int:
    if position > end:
        raise MalformedTable("a field table ends inside a value")
    return position


def encode_table(table: Table) -> bytes:
    """Return the entries of the table, without the length in front."""
    pieces: list[bytes] = []
    for key, field in table.items():
        octets = octets_of(key)
        pieces.append(len(octets).to_bytes(1, "big"))
        pieces.append(octets)
        pieces.append(encode_field(field))
    return b"".join(pieces)


def encode_field(field: Field) -> bytes:  # noqa: PLR0911  one return for each type
    """Return the letter and the octets of one value."""
    type_, value = field
    if type_ in _TYPES:
        letter, layout = _TYPES[type_]
        return letter + layout.pack(value)
    match type_:
        case "longstr":
            return _sized(b"S", octets_of(value))
        case "bool":
            return b"t\x01" if value else b"t\x00"
        case "void":
            return b"V"
        case "binary":
            return _sized(b"x", value)
        case "table":
            return _sized(b"F", encode_table(value))
        case "array":
            return _sized(b"A", b"".join(map(encode_field, value)))
        case "decimal":
            return b"D" + _DECIMAL.pack(*value)
        case _:
            raise ValueError(f"RabbitMQ has no field type {type_!r}")


def _sized(letter: bytes, octets: bytes) -> bytes:
    return letter + _LENGTH.pack(len(octets)) + octets


def flags_of(properties: Mapping[str, Any]) -> int:
    """Return the property flags that say which are present."""
    return sum(map(PROPERTY_FLAGS.__getitem__, properties))  # each is another bit


def decode_properties(payload: bytes) -> dict[str, Any]:
    """Return the properties that flags and property list hold, in the order of the protocol."""
    try:
        return _decode_properties(payload)
    except (IndexError, struct.error) as error:
        raise MalformedTable("a property list ends inside a property") from error


def _decode_properties(payload: bytes) -> dict[str, Any]:
    flags = payload[0] << 8 | payload[1]
    end = len(payload)
    at = 2
    values: dict[str, Any] = {}
    for name, flag in PROPERTY_FLAGS.items():
        if not flags & flag:
            continue
        if flag & (DELIVERY_MODE | PRIORITY):
            values[name] = payload[at]
            at += 1
        elif flag == HEADERS:
            start = at + 4
            at = _within(start + _LENGTH.unpack_from(payload, at)[0], end)
            values[name] = _decode_table(payload, start, at, MAX_DEPTH)
        elif flag == TIMESTAMP:
            values[name] = int.from_bytes(payload[at : _within(at + 8, end)], "big")
            at += 8
        else:
            start = at + 1
            at = _within(start + payload[at], end)
            values[name] = text_of(payload[start:at])
    if at != end:
        raise MalformedTable("octets behind the last property")
    return values


def encode_properties(properties: Mapping[str, Any]) -> bytes:
    """Return flags and property list."""
    pieces = [flags_of(properties).to_bytes(2, "big")]
    for name, flag in PROPERTY_FLAGS.items():
        if name not in properties:
            continue
        value = properties[name]
        if flag & (DELIVERY_MODE | PRIORITY):
            pieces.append(value.to_bytes(1, "big"))
        elif flag == HEADERS:
            octets = encode_table(value)
            pieces += (_LENGTH.pack(len(octets)), octets)
        elif flag == TIMESTAMP:
            pieces.append(value.to_bytes(8, "big"))
        else:
            octets = octets_of(value)
            pieces += (len(octets).to_bytes(1, "big"), octets)
    return b"".join(pieces)
