"""Python values become typed fields by pika's rules, and back."""

import datetime as dt
import decimal

import pika.data
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.compat import long as pika_long

from queuey_fake.model import fields, table_codec
from queuey_fake.model.fields import Field

PYTHON_VALUES = st.recursive(
    st.one_of(
        st.text(max_size=20),
        st.binary(max_size=20),
        st.booleans(),
        st.none(),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**32).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC)),
        st.decimals(-(10**4), 10**4, places=3),
    ),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=10), children, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=10), PYTHON_VALUES, max_size=5))
def test_a_python_table_has_the_octets_that_pika_sends(values: dict[str, object]) -> None:
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, values)
    pikas = b"".join(pieces)[4:]
    assert table_codec.encode_table(fields.table_from_python(values)) == pikas


@given(st.dictionaries(st.text(max_size=10), PYTHON_VALUES, max_size=5))
def test_a_table_becomes_the_python_values_that_pika_reads(values: dict[str, object]) -> None:
    table = fields.table_from_python(values)
    octets = table_codec.encode_table(table)
    pikas, _ = pika.data.decode_table(len(octets).to_bytes(4, "big") + octets, 0)
    assert fields.table_to_python(table) == pikas


def test_an_integer_takes_32_bits_where_it_fits() -> None:
    assert fields.field_from_python(2**31 - 1) == Field("signedint", 2**31 - 1)
    assert fields.field_from_python(2**31) == Field("long", 2**31)


def test_an_integer_that_asks_for_64_bits_gets_them() -> None:
    assert fields.field_from_python(pika_long(5)) == Field("long", 5)


def test_an_integer_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        fields.field_from_python(2**63)


def test_a_float_is_refused_as_pika_refuses_it() -> None:
    with pytest.raises(TypeError, match="float"):
        fields.field_from_python(1.5)


def test_a_long_string_that_is_not_utf8_reads_as_its_octets() -> None:
    field = fields.longstr(fields.text_of(b"\xff\xfe"))
    assert fields.field_to_python(field) == b"\xff\xfe"


def test_a_decimal_keeps_scale_and_digits() -> None:
    assert fields.field_from_python(decimal.Decimal("1.50")) == Field("decimal", (1, 15))
