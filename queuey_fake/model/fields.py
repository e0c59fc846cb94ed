"""Typed values of AMQP field tables, under the names that RabbitMQ gives their types.

Owns what a value is, and how a plain Python value becomes one and back, by the rules of pika. Knows nothing of their
octets (`table_codec`) and gives no meaning to any key.

A long string is a `str`; octets that are not UTF-8 live in it as surrogate escapes, so that nothing is lost either way.
"""

import calendar
import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple


class Field(NamedTuple):
    """One typed value.

    Types and the Python type of their values: longstr `str`; byte, unsignedbyte, short, unsignedshort, signedint,
    unsignedint, long `int`; timestamp `int` (seconds); float, double `float`; bool `bool`; void `None`; binary `bytes`;
    decimal `(scale, unscaled)`; array `tuple[Field, ...]`; table `Table`.
    """

    type: str
    value: Any


Table = dict[str, Field]

VOID = Field("void", None)

_UNSIGNED_32 = 2**32
_SCALE_MAX = 255
_KEY_OCTETS_MAX = 255


def longstr(value: str) -> Field:
    """Return a long string."""
    return Field("longstr", value)


def long(value: int) -> Field:
    """Return a 64-bit signed integer."""
    return Field("long", value)


def signedint(value: int) -> Field:
    """Return a 32-bit signed integer."""
    return Field("signedint", value)


def boolean(value: bool) -> Field:  # noqa: FBT001  the value itself, not an option
    """Return a boolean."""
    return Field("bool", value)


def timestamp(seconds: int) -> Field:
    """Return an instant, in whole seconds since 1970."""
    return Field("timestamp", seconds)


def array(values: Sequence[Field]) -> Field:
    """Return an array of typed values."""
    return Field("array", tuple(values))


def table(values: Table) -> Field:
    """Return a nested table."""
    return Field("table", values)


def text_of(octets: bytes) -> str:
    """Return the text of the octets, those that are not UTF-8 kept as surrogate escapes."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(text: str) -> bytes:
    """Return the octets that `text_of` made the text from."""
    return text.encode("utf-8", "surrogateescape")


def in_key_order(values: Table) -> Table:
    """Return the table with its keys in the order of their octets (rabbit_misc:sort_field_table)."""
    return dict(sorted(values.items(), key=lambda item: octets_of(item[0])))


def field_from_python(value: Any) -> Field:  # noqa: C901, PLR0911  one return for each type
    """Return the value with the type that pika gives it on the wire (pika.data.encode_value).

    Raises TypeError for what has no type there, ValueError for what its type has no room for.
    """
    if type(value) is int:  # most are
        return _integer_from_python(value)
    match value:
        case str():
            if not value.isascii():
                value.encode()  # raises where UTF-8 cannot write it, as for pika
            return Field("longstr", value)
        case bytes():
            return Field("binary", value)
        case bool():
            return Field("bool", value)
        case int():
            return _integer_from_python(value)
        case decimal.Decimal():
            return _decimal_from_python(value)
        case dt.datetime():
            return Field("timestamp", calendar.timegm(value.utctimetuple()))
        case dict():
            return Field("table", table_from_python(value))
        case list():
            return Field("array", tuple(field_from_python(item) for item in value))
        case None:
            return VOID
        case _:
            raise TypeError(f"a field table cannot hold {value!r} of type {type(value).__name__}")


@lru_cache(maxsize=256, typed=True)  # the same small numbers come again and again, counters for the most part
def _integer_from_python(value: int) -> Field:
    # pika.compat.long is an int that asks to be sent with 64 bits; told by its name, for pika is not imported here.
    if -(2**31) <= value < 2**31 and (type(value) is int or type(value).__name__ != "long"):
        return Field("signedint", int(value))
    if -(2**63) <= value < 2**63:
        return Field("long", int(value))
    raise ValueError(f"{value} does not fit into the 64 bits of an AMQP integer")


def _decimal_from_python(value: decimal.Decimal) -> Field:
    value = value.normalize()
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise TypeError(f"a field table cannot hold the decimal {value}")
    scale = max(0, -exponent)
    unscaled = int(value.scaleb(scale))
    if scale > _SCALE_MAX or not -(2**31) <= unscaled < 2**31:
        raise ValueError(f"a field table has no room for the decimal {value}")
    # pika writes a signed number where RabbitMQ reads an unsigned one (rabbit_binary_parser); the octets are the same.
    return Field("decimal", (scale, unscaled % _UNSIGNED_32))


def table_from_python(values: Mapping[str, Any] | None) -> Table:
    """Return the mapping as pika would send it; None is an empty table, as for pika. Raises as for its values."""
    return {_key(key): field_from_python(value) for key, value in (values or {}).items()}


@lru_cache(maxsize=256)  # names of headers, the same ones again and again
def _key(key: str | bytes) -> str:
    """Return a key that fits into a short string, as pika checks it (pika.data.encode_short_string)."""
    if not isinstance(key, str | bytes):
        raise TypeError(f"a field table has texts as keys, not {key!r} of type {type(key).__name__}")
    octets = key.encode() if isinstance(key, str) else key
    if len(octets) > _KEY_OCTETS_MAX:
        raise ValueError(f"a key of a field table has at most {_KEY_OCTETS_MAX} octets, and not those of {key!r}")
    return text_of(octets)


def field_to_python(field: Field) -> Any:  # noqa: PLR0911  one return for each type
    """Return the plain value that pika decodes the field to (pika.data.decode_value)."""
    match field.type:
        case "longstr":
            return field.value if field.value.isascii() else string_to_python(field.value)
        case "timestamp":
            return dt.datetime.fromtimestamp(field.value, dt.UTC)
        case "float" | "double":
            return int(field.value)
        case "decimal":
            scale, unscaled = field.value
            return decimal.Decimal(unscaled - _UNSIGNED_32 * (unscaled >= _UNSIGNED_32 // 2)).scaleb(-scale)
        case "array":
            return [field_to_python(item) for item in field.value]
        case "table":
            return table_to_python(field.value)
        case _:
            return field.value


def table_to_python(values: Table) -> dict[str, Any]:
    """Return the table as pika decodes it: with `bytes` for a key that is not UTF-8, whatever it is annotated with."""
    return {key if key.isascii() else string_to_python(key): field_to_python(field) for key, field in values.items()}


def string_to_python(text: str) -> Any:
    """Return the text, or the octets that it was made from where those are not UTF-8, as pika does."""
    octets = octets_of(text)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets
