"""Properties keep the octets they came with and are decoded only when read."""

import pytest

from queuey_fake.model import table_codec
from queuey_fake.model.fields import Field, longstr
from queuey_fake.model.properties import NO_PROPERTIES, Properties


def test_unchanged_properties_are_written_back_octet_for_octet() -> None:
    # A bool of 7 reads as true and would be encoded as 1.
    payload = b"\x20\x00" + (4).to_bytes(4, "big") + b"\x01at\x07"
    properties = Properties.from_payload(payload)
    assert properties.headers == {"a": Field("bool", True)}
    assert properties.payload() == payload


def test_an_absent_property_is_none_without_decoding() -> None:
    properties = Properties.from_payload(b"\x10\x00\x02")
    assert properties.expiration is None
    assert properties._values is None
    assert properties.delivery_mode == 2


def test_malformed_octets_raise_only_when_a_present_property_is_read() -> None:
    properties = Properties.from_payload(b"\x20\x00\xff\xff\xff\xff")
    assert properties.priority is None
    with pytest.raises(table_codec.MalformedTable):
        _ = properties.headers


def test_replace_changes_adds_and_takes_away() -> None:
    properties = Properties(expiration="100", priority=3)
    changed = properties.replace(expiration=None, message_id="m")
    assert changed.values() == {"priority": 3, "message_id": "m"}
    assert properties.expiration == "100"


def test_rabbitmq_4_writes_keys_of_headers_in_order() -> None:
    properties = Properties(headers={"b": longstr("1"), "a": Field("unsignedshort", 2)})
    again = Properties.from_payload(properties.canonical_payload())
    assert list((again.headers or {}).items()) == [("a", Field("unsignedshort", 2)), ("b", longstr("1"))]
    assert list(properties.headers or {}) == ["b", "a"]


@pytest.mark.parametrize(
    ("came", "goes"),
    [
        (b"\x20\x00\x00\x00\x00\x04\x01at\x07", b"\x20\x00\x00\x00\x00\x04\x01at\x01"),
        (b"\x20\x00\x00\x00\x00\x08\x01at\x01\x01at\x00", b"\x20\x00\x00\x00\x00\x04\x01at\x01"),
        (
            b"\x20\x00\x00\x00\x00\x0b\x01aL" + bytes(7) + b"\x01",
            b"\x20\x00\x00\x00\x00\x0b\x01al" + bytes(7) + b"\x01",
        ),
        (b"\x10\x03\x02", b"\x10\x00\x02"),
        (b"\x10\x00\x02", b"\x10\x00\x02"),
    ],
    ids=["a bool of 7", "a key twice", "L is l", "flags that say nothing", "nothing to do"],
)
def test_rabbitmq_4_writes_properties_anew(came: bytes, goes: bytes) -> None:
    assert Properties.from_payload(came).canonical_payload() == goes


def test_a_header_that_cannot_be_there_is_told_without_decoding() -> None:
    properties = Properties.from_payload(b"\x20\x00" + (4).to_bytes(4, "big") + b"\x01at\x01")
    assert not properties.may_have_header("CC")
    assert properties._values is None
    assert properties.may_have_header("a")


def test_no_properties_are_two_octets_of_flags() -> None:
    assert NO_PROPERTIES.payload() == b"\x00\x00"


def test_equal_properties_are_equal_however_they_came() -> None:
    assert Properties(priority=4) == Properties.from_payload(b"\x08\x00\x04")


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Properties(colour="red")
