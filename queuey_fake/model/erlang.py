"""Erlang terms as RabbitMQ prints them into its reply texts.

Owns the printing (io_lib's ~p and the line breaks it makes) and the reading of an integer (string:to_integer).
"""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Atom:
    """An Erlang atom."""

    name: str


# In terms, `str` is an Erlang string, `bytes` a binary, `None` the atom undefined, `tuple` a tuple, `list` a list;
# `bool`, `int` and `float` are themselves.
Term = Any

_BARE_ATOM = re.compile(r"[a-z][A-Za-z0-9_@]*\Z")
_ESCAPES = {
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\b": "\\b",
    "\f": "\\f",
    "\x1b": "\\e",
    '"': '\\"',
    "\\": "\\\\",
}
_INTEGER = re.compile(r"[+-]?[0-9]+")


def printed(term: Term, *, column: int = 0, width: int = 80) -> str:
    """Return the term as ~p prints it from this column on (counted from 0), broken where it does not fit the width.

    Once a tuple does not fit, io_lib_pretty breaks it behind every element and writes the next one column behind the
    brace (scenario ttl_msg_invalid).
    """
    flat = _flat(term)
    if column + len(flat) + 1 < width or not isinstance(term, tuple) or len(term) < 2:  # noqa: PLR2004  atom and an element
        return flat
    indent = column + 1
    pieces = [printed(element, column=indent, width=width) for element in term]
    return "{" + (",\n" + " " * indent).join(pieces) + "}"


def _flat(term: Term) -> str:  # noqa: PLR0911  one return for each kind of term
    match term:
        case None:
            return "undefined"
        case bool():
            return "true" if term else "false"
        case int():
            return str(term)
        case float():
            return _float(term)
        case Atom(name):
            return name if _BARE_ATOM.match(name) else f"'{name}'"
        case str():
            return _string(term)
        case bytes():
            return _binary(term)
        case tuple():
            return "{" + ",".join(map(_flat, term)) + "}"
        case _:
            return "[" + ",".join(map(_flat, term)) + "]"


def _string(text: str) -> str:
    if text and all(_is_printable(character) for character in text):
        return f'"{_quoted(text)}"'
    return "[" + ",".join(str(ord(character)) for character in text) + "]"


def _float(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def _binary(octets: bytes) -> str:
    if not octets:
        return "<<>>"
    text = octets.decode("latin-1")
    if all(_is_printable(character) for character in text):
        return f'<<"{_quoted(text)}">>'
    return "<<" + ",".join(map(str, octets)) + ">>"


def _is_printable(character: str) -> bool:
    return character in _ESCAPES or " " <= character <= "~" or character >= "\xa0"


def _quoted(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def leading_integer(text: str) -> tuple[int, str] | None:
    """Return the integer that the text starts with and the rest, or None where there is none (string:to_integer)."""
    match = _INTEGER.match(text)
    return (int(match.group()), text[match.end() :]) if match else None
