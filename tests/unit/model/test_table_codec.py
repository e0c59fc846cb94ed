"""Field tables and property lists keep every type of RabbitMQ's, and refuse what its parser has no clause for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_fake.model import table_codec
from queuey_fake.model.fields import VOID, Field, text_of
from queuey_fake.model.table_codec import MalformedTable

FINITE_32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXTS = st.binary(max_size=30).map(text_of)
LEAVES = st.one_of(
    TEXTS.map(lambda value: Field("longstr", value)),
    st.binary(max_size=30).map(lambda value: Field("binary", value)),
    st.booleans().map(lambda value: Field("bool", value)),
    st.just(VOID),
    st.integers(-(2**7), 2**7 - 1).map(lambda value: Field("byte", value)),
    st.integers(0, 2**8 - 1).map(lambda value: Field("unsignedbyte", value)),
    st.integers(-(2**15), 2**15 - 1).map(lambda value: Field("short", value)),
    st.integers(0, 2**16 - 1).map(lambda value: Field("unsignedshort", value)),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: Field("signedint", value)),
    st.integers(0, 2**32 - 1).map(lambda value: Field("unsignedint", value)),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: Field("long", value)),
    st.integers(0, 2**64 - 1).map(lambda value: Field("timestamp", value)),
    FINITE_32.map(lambda value: Field("float", value)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Field("double", value)),
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(lambda value: Field("decimal", value)),
)
KEYS = st.binary(max_size=20).map(text_of)
FIELDS = st.recursive(
    LEAVES,
    lambda children: (
        st.lists(children, max_size=4).map(lambda values: Field("array", tuple(values)))
        | st.dictionaries(KEYS, children, max_size=4).map(lambda values: Field("table", values))
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, FIELDS, max_size=6)
SHORT = st.binary(max_size=40).map(text_of)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": SHORT,
        "content_encoding": SHORT,
        "headers": TABLES,
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": SHORT,
        "reply_to": SHORT,
        "expiration": SHORT,
        "message_id": SHORT,
        "timestamp": st.integers(0, 2**64 - 1),
        "type": SHORT,
        "user_id": SHORT,
        "app_id": SHORT,
        "cluster_id": SHORT,
    },
)


@given(TABLES)
def test_a_table_comes_back_with_its_types(table: dict[str, Field]) -> None:
    assert table_codec.decode_table(table_codec.encode_table(table)) == table


@given(PROPERTIES)
def test_properties_come_back(properties: dict[str, object]) -> None:
    assert table_codec.decode_properties(table_codec.encode_properties(properties)) == properties


@given(st.binary(max_size=60))
def test_octets_are_a_table_or_malformed_and_nothing_else(octets: bytes) -> None:
    try:
        table = table_codec.decode_table(octets)
    except MalformedTable:
        return
    assert isinstance(table, dict)


@given(st.binary(max_size=60))
def test_octets_are_properties_or_malformed_and_nothing_else(octets: bytes) -> None:
    try:
        properties = table_codec.decode_properties(octets)
    except MalformedTable:
        return
    assert properties.keys() <= table_codec.PROPERTY_FLAGS.keys()


@given(TABLES.filter(bool), st.data())
def test_a_table_that_is_cut_short_is_malformed_or_a_shorter_table(
    table: dict[str, Field], data: st.DataObject
) -> None:
    octets = table_codec.encode_table(table)
    cut = data.draw(st.integers(0, len(octets) - 1))
    try:
        assert len(table_codec.decode_table(octets[:cut])) < len(table)
    except MalformedTable as error:
        assert "ends inside" in str(error)  # noqa: PT017  the other outcome is as good


def test_both_letters_of_64_bit_integers_are_read() -> None:
    octets = b"\x01aL" + (5).to_bytes(8, "big")
    assert table_codec.decode_table(octets) == {"a": Field("long", 5)}


def test_the_first_of_two_equal_keys_counts() -> None:
    assert table_codec.decode_table(b"\x01at\x01\x01at\x00") == {"a": Field("bool", True)}


def test_nan_is_malformed_for_erlang_has_none() -> None:
    octets = b"\x01a" + b"d" + b"\x7f\xf8" + bytes(6)
    with pytest.raises(MalformedTable):
        table_codec.decode_table(octets)


def test_nesting_is_bounded() -> None:
    octets = b""
    for _ in range(1000):
        octets = b"\x01aF" + len(octets).to_bytes(4, "big") + octets
    with pytest.raises(MalformedTable, match="nested"):
        table_codec.decode_table(octets)


def test_an_unknown_letter_is_malformed() -> None:
    with pytest.raises(MalformedTable, match="'q'"):
        table_codec.decode_table(b"\x01aq")


def test_the_two_low_bits_of_the_flags_say_nothing() -> None:
    assert table_codec.decode_properties(b"\x08\x03\x04") == {"priority": 4}


def test_octets_behind_the_last_property_are_malformed() -> None:
    with pytest.raises(MalformedTable, match="behind"):
        table_codec.decode_properties(b"\x10\x00\x02\x00")
