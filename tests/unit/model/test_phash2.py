"""Erlang's portable hash of lists of binaries is what Erlang says it is."""

import pytest

from queuey_fake.model.phash2 import phash2

# What erlang:phash2(Binaries, 1 bsl 32) said in the Erlang of each of the three RabbitMQs.
TOLD_BY_ERLANG = [
    ([], 3468870702),
    ([b""], 440873397),
    ([b"k"], 2013669284),
    ([b"k", b"a"], 2286125691),
    ([b"abcdefghijkl"], 3176216688),
    ([b"abcdefghijklm"], 1435586393),
    ([b"k", b""], 944160478),
    ([b"k", b"longer than twelve bytes", b"x"], 209760819),
]


@pytest.mark.parametrize(("binaries", "hash_"), TOLD_BY_ERLANG)
def test_a_list_of_binaries_has_the_hash_that_erlang_gives_it(binaries: list[bytes], hash_: int) -> None:
    assert phash2(binaries, 2**32) == hash_


def test_the_hash_stays_below_its_span() -> None:
    assert (phash2([b"k"], 134_217_728), phash2([b"k"], 7)) == (403364, 2013669284 % 7)
