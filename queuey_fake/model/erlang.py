"""Erlang terms as RabbitMQ prints them into its reply texts.

Owns the printing (io_lib's ~p and the line breaks it makes) and the reading of an integer (string:to_integer).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Atom:
    """An Erlang atom. In terms, `str` is an Erlang string, `bytes` a binary, `tuple` a tuple, `int` an integer."""

    name: str


Term = Atom | str | bytes | int | tuple["Term", ...]


def printed(term: Term, *, column: int = 0, width: int = 80) -> str:
    """Return the term as ~p prints it from this column on (zero-based), broken where it does not fit into the width."""
    raise NotImplementedError
