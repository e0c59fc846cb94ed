"""Erlang's portable hash, as far as RabbitMQ's routing uses it: phash2 of a list of binaries.

Owns make_hash2 of the Erlang runtime (erts/emulator/beam/erl_term_hashing.c), which gives the same number on every
machine and in every release. Hashes no other terms.
"""

from collections.abc import Sequence

_GOLDEN = 0x9E3779B9  # HCONST; the constants of other terms are its multiples
_OF_BINARIES = 13 * _GOLDEN & 0xFFFFFFFF
_OF_NIL = 2 * _GOLDEN & 0xFFFFFFFF
_NIL = 2  # NIL_DEF, the end of every list


def phash2(binaries: Sequence[bytes], span: int) -> int:
    """Return erlang:phash2(Binaries, Span), from 0 to below the span."""
    state = 0
    for binary in binaries:
        initial = _OF_BINARIES + state & 0xFFFFFFFF
        state = _hash_of_block(binary, initial) if binary else initial
    return _mixed(_OF_NIL + _NIL, _OF_NIL, state) % span


def _hash_of_block(octets: bytes, initial: int) -> int:
    """Return block_hash: twelve octets at a time, and in the last turn the length where an octet would be."""
    a = b = _GOLDEN
    state = initial
    whole = len(octets) - len(octets) % 12
    for at in range(0, whole, 12):
        a, b, state = _mix(
            a + int.from_bytes(octets[at : at + 4], "little"),
            b + int.from_bytes(octets[at + 4 : at + 8], "little"),
            state + int.from_bytes(octets[at + 8 : at + 12], "little"),
        )
    rest = octets[whole:]
    return _mixed(
        a + int.from_bytes(rest[:4], "little"),
        b + int.from_bytes(rest[4:8], "little"),
        state + len(octets) + (int.from_bytes(rest[8:], "little") << 8),
    )


def _mixed(a: int, b: int, state: int) -> int:
    return _mix(a, b, state)[2]


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Return Bob Jenkins' mix of three words of 32 bits (MIX)."""
    for first, second, third in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & 0xFFFFFFFF) ^ ((c & 0xFFFFFFFF) >> first)
        b = (b - c - a & 0xFFFFFFFF) ^ (a << second & 0xFFFFFFFF)
        c = (c - a - b & 0xFFFFFFFF) ^ (b >> third)
    return a, b, c
