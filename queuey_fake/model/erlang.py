"""Erlang terms as RabbitMQ prints them into its reply texts.

Owns the printing (io_lib's ~p and the line breaks that io_lib_pretty makes) and the reading of an integer
(string:to_integer).
"""

import re
from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class OctetString:
    """An Erlang string of single octets, as binary_to_list makes one."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Printed:
    """A term in a text, as ~p prints it with its width, or ~tp, which knows characters beyond Latin-1."""

    term: Term
    width: int = 80
    is_unicode: bool = True


def written(parts: Sequence[str | Printed], *, octets: bool = False) -> str:
    """Return the text that the parts make, each term printed from the column on where it begins.

    With `octets` as RabbitMQ 3.10 makes it, in which every character is an octet: texts are what their octets say.
    """
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += _as_octets(part) if octets else part
        else:
            shape = _Shaping(octets=octets, is_unicode=part.is_unicode).shape(part.term)
            text += _laid_out(shape, len(text) - text.rfind("\n") - 1, part.width)
    return text.encode("latin-1").decode("utf-8", "surrogateescape") if octets else text


def printed(term: Term, *, column: int = 0, width: int = 80) -> str:
    """Return the term as ~p prints it from this column on (counted from 0), broken where it does not fit the width."""
    return _laid_out(_Shaping(octets=False, is_unicode=True).shape(term), column, width)


def _as_octets(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


# What a term looks like, before it is laid out in lines


@dataclass(frozen=True, slots=True)
class _Shape:
    """A term printed on one line, and its elements where it can be broken between them."""

    flat: str
    elements: tuple["_Shape", ...] = ()
    is_tagged: bool = False  # a tuple with an atom in front
    is_numbers: bool = False  # a binary that is no text

    @property
    def is_atomic(self) -> bool:
        """Whether it is never broken."""
        return not self.elements and not self.is_numbers


class _Shaping:
    """How characters are printed: 3.10 takes each octet for one, ~p has no name for those beyond Latin-1."""

    def __init__(self, *, octets: bool, is_unicode: bool) -> None:
        self._octets = octets
        self._is_unicode = is_unicode and not octets

    def shape(self, term: Term) -> _Shape:
        """Return the shape of a term."""
        match term:
            case str():
                return self._string(_as_octets(term) if self._octets else term)
            case OctetString(octets):
                return self._string(octets.decode("latin-1"))
            case bytes():
                return self._binary(term)
            case tuple() | list():
                return self._sequence(term)
            case _:
                return _Shape(_atomic(term))

    def _sequence(self, terms: Sequence[Term]) -> _Shape:
        start, end = "{}" if isinstance(terms, tuple) else "[]"
        elements = tuple(map(self.shape, terms))
        flat = start + ",".join(element.flat for element in elements) + end
        is_tagged = isinstance(terms, tuple) and len(terms) > 1 and isinstance(terms[0], Atom)
        return _Shape(flat, elements, is_tagged)

    def _string(self, text: str) -> _Shape:
        if text and all(_is_printable(character, is_unicode=self._is_unicode) for character in text):
            return _Shape(f'"{_quoted(text)}"')
        return self._sequence([ord(character) for character in text])

    def _binary(self, octets: bytes) -> _Shape:
        if not octets:
            return _Shape("<<>>")
        if self._is_unicode and not octets.isascii():
            try:
                text = octets.decode()
            except UnicodeDecodeError:
                pass
            else:
                if all(_is_printable(character, is_unicode=True) for character in text):
                    return _Shape(f'<<"{_quoted(text)}"/utf8>>')
                return _numbers(octets)
        text = octets.decode("latin-1")
        if all(_is_printable(character, is_unicode=False) for character in text):
            return _Shape(f'<<"{_quoted(text)}">>')
        return _numbers(octets)


def _numbers(octets: bytes) -> _Shape:
    return _Shape("<<" + ",".join(map(str, octets)) + ">>", is_numbers=True)


def _atomic(term: Term) -> str:
    match term:
        case None:
            return "undefined"
        case bool():
            return "true" if term else "false"
        case float():
            return _float(term)
        case Atom(name):
            return name if _BARE_ATOM.match(name) else f"'{name}'"
        case _:
            return str(term)


def _float(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def _is_printable(character: str, *, is_unicode: bool) -> bool:
    return (
        character in _ESCAPES
        or " " <= character <= "~"
        or "\xa0" <= character <= ("\U0010ffff" if is_unicode else "\xff")
    )


def _quoted(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


# Lines (io_lib_pretty). Columns are counted from 1 here, and `depth` is how many closing brackets follow on the line.


def _laid_out(shape: _Shape, column: int, width: int) -> str:
    if shape.is_atomic or len(shape.flat) < width - column - 1:
        return shape.flat
    for indent in (_BEHIND_THE_TAG, 4):
        try:
            return _Lines(width, indent, len(shape.flat)).of(shape, column + 1, 0)
        except _TooFarRightError:
            pass
    return _Lines(width, 1, None).of(shape, column + 1, 0)


_BEHIND_THE_TAG = -1


class _TooFarRightError(Exception):
    """With this indent a tagged tuple would begin in the right half of the line, and not fit."""


class _Lines:
    """The layout with one indent for what follows the tag of a tuple; without `total` any indent will do."""

    def __init__(self, width: int, indent: int, total: int | None) -> None:
        self._width = width
        self._indent = indent
        self._total = total

    def of(self, shape: _Shape, column: int, depth: int) -> str:
        """Return the lines of a term that begins at the column."""
        if shape.is_atomic or len(shape.flat) < self._width - column - depth:
            return shape.flat
        if shape.is_numbers:
            return self._numbers(shape.flat, column + 2, depth)
        inside = self._tagged if shape.is_tagged else self._list
        return shape.flat[0] + inside(shape.elements, column + (not shape.is_tagged), depth) + shape.flat[-1]

    def _tagged(self, elements: Sequence[_Shape], column: int, depth: int) -> str:
        tag, *others = elements
        behind = column + len(tag.flat) + 2
        if 0 < self._indent < len(tag.flat) + 2:
            start = column + self._indent
            self._check(start <= self._width // 2 or (self._total or 0) + start <= self._width)
            return tag.flat + self._tail(others, start, behind, depth)
        self._check(behind < self._width // 2 or (self._total or 0) + behind < self._width)
        return f"{tag.flat},{self._list(others, behind, depth)}"

    def _check(self, is_good: bool) -> None:  # noqa: FBT001  a fact, not an option
        if self._total is not None and not is_good:
            raise _TooFarRightError

    def _list(self, elements: Sequence[_Shape], column: int, depth: int) -> str:
        text, size = self._element(elements[0], column, depth + 1 if len(elements) == 1 else 0)
        return text + self._tail(elements[1:], column, column + size, depth)

    def _tail(self, elements: Sequence[_Shape], start: int, column: int, depth: int) -> str:
        text = ""
        for number, element in enumerate(elements, 1):
            closing = depth + 1 if number == len(elements) else 0
            if element.is_atomic and len(element.flat) + 1 < self._width - column - (closing or 1):
                text += f",{element.flat}"
                column += 1 + len(element.flat)
            else:
                told, size = self._element(element, start, closing)
                text += ",\n" + " " * (start - 1) + told
                column = start + size
        return text

    def _element(self, element: _Shape, column: int, depth: int) -> tuple[str, int]:
        """Return the element, and how much of the line it takes: all of it where it could have been broken."""
        if element.is_atomic and len(element.flat) < self._width - column - depth:
            return element.flat, len(element.flat)
        return self.of(element, column, depth), self._width

    def _numbers(self, flat: str, column: int, depth: int) -> str:
        *numbers, last = flat[2:-2].split(",")
        room = left = max(8, self._width - column - depth)
        text = ""
        for number in (*(f"{number}," for number in numbers), last):
            if len(number) > left:
                text += "\n" + " " * (column - 1)
                left = room
            text += number
            left -= len(number)
        return f"<<{text}>>"


def leading_integer(text: str) -> tuple[int, str] | None:
    """Return the integer that the text starts with and the rest, or None where there is none (string:to_integer)."""
    match = _INTEGER.match(text)
    return (int(match.group()), text[match.end() :]) if match else None
