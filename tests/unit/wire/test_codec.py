"""The codec agrees with pamqp's and pika's on every method, both ways, and any octets are read or refused."""

import struct
from typing import Any

import pamqp.commands
import pamqp.frame
import pamqp.header
import pika.spec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey_fake.model.fields import Field, longstr, table_to_python
from queuey_fake.model.properties import Properties
from queuey_fake.model.table_codec import MalformedTable
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from queuey_fake.wire.codec import ContentHeader, MalformedMethod, MalformedShortString, UnknownMethod
from queuey_fake.wire.methods import METHODS, Method

# pamqp lets names have these characters and 127 of them; it knows no type of a table's integers but by their size.
NAMES = st.text("abcXYZ019-_.:", max_size=40)
FULL_NAMES = NAMES.filter(bool)  # pamqp reads an empty property as none
TABLES = st.dictionaries(
    NAMES,
    st.one_of(
        NAMES.map(longstr),
        st.booleans().map(lambda value: Field("bool", value)),
        st.integers(-(2**31), -(2**15) - 1).map(lambda value: Field("signedint", value)),
        st.integers(2**40, 2**63 - 1).map(lambda value: Field("long", value)),
    ),
    max_size=4,
)
VALUES = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**31 - 1),  # pamqp and some clients read them as signed
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": NAMES,
    "longstr": NAMES.map(str.encode),
    "table": TABLES,
}
# What pamqp insists on, for fields that the protocol has deprecated.
DEPRECATED = {
    "ticket": 0,
    "out_of_band": "0",
    "channel_id": b"0",
    "capabilities": "",
    "known_hosts": "",
    "insist": False,
}
DEPRECATED |= {"cluster_id": ""}


def fields_of(method: Method) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: st.just(DEPRECATED[name]) if name in DEPRECATED else VALUES[type_] for name, type_ in method.fields}
    )


def plain(method: Method, fields: dict[str, Any]) -> list[Any]:
    """The fields as other codecs hold them, in order."""
    values = []
    for name, type_ in method.fields:
        value = fields[name]
        values.append(table_to_python(value) if type_ == "table" else value.decode() if type_ == "longstr" else value)
    return values


def pamqp_agrees(method: Method, fields: dict[str, Any]) -> None:
    ours = codec.method_frame(7, method, **fields)
    size, channel, pamqps = pamqp.frame.unmarshal(ours)
    assert (size, channel) == (len(ours), 7)
    values = [getattr(pamqps, name) for name in pamqps.attributes()]
    assert [value.decode() if isinstance(value, bytes) else value for value in values] == plain(method, fields)
    written = pamqp.frame.marshal(pamqps, 7)
    assert codec.decode_fields(method, written[7:-1]) == fields


def pika_agrees(method: Method, fields: dict[str, Any]) -> None:
    payload = codec.encode_method(method, **fields)
    kind = pika.spec.methods[method.class_id << 16 | method.method_id]
    pikas = kind.__new__(kind)  # some of them have fields without a default
    pikas.decode(payload, 4)
    values = [value.decode() if isinstance(value, bytes) else value for value in pikas.__dict__.values()]
    assert values == plain(method, fields)
    assert payload[:4] + b"".join(pikas.encode()) == payload


def unknown_to_pamqp(method: Method) -> bool:
    """It has no class access, and warns of the deprecated basic.recover-async."""
    return method.class_id == 30 or method == m.BASIC_RECOVER_ASYNC


ALL_METHODS = sorted(METHODS.values(), key=lambda method: method.name)
OTHERS_AGREE = {
    method.name: [
        *([] if unknown_to_pamqp(method) else [pamqp_agrees]),
        # Clients send connection.update-secret, so that pika writes and does not read it.
        *([] if method == m.CONNECTION_UPDATE_SECRET else [pika_agrees]),
    ]
    for method in ALL_METHODS
}


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
@given(data=st.data())
@settings(max_examples=15)
def test_a_method_comes_back_and_is_read_and_written_as_pamqp_and_pika_do(method: Method, data: st.DataObject) -> None:
    fields = data.draw(fields_of(method))
    payload = codec.encode_method(method, **fields)
    assert codec.method_of(payload) is method
    assert codec.decode_fields(method, payload) == fields
    for other_agrees in OTHERS_AGREE[method.name]:
        other_agrees(method, fields)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content_type": FULL_NAMES,
            "headers": TABLES.filter(bool),
            "delivery_mode": st.sampled_from([1, 2]),
            "priority": st.integers(0, 9),
            "correlation_id": FULL_NAMES,
            "message_id": FULL_NAMES,
            "expiration": FULL_NAMES,
            "reply_to": FULL_NAMES,
            "app_id": FULL_NAMES,
        },
    ),
    st.integers(0, 2**40),
)
def test_a_content_header_is_read_and_written_as_pamqp_does(values: dict[str, Any], size: int) -> None:
    payload = codec.CONTENT_HEADER.pack(60, 0, size) + Properties(**values).payload()
    _, _, pamqps = pamqp.frame.unmarshal(codec.frame(codec.HEADER, 1, payload))
    assert pamqps.body_size == size
    present = {name: value for name, value in pamqps.properties if value is not None and name in values}
    expected = {name: table_to_python(value) if name == "headers" else value for name, value in values.items()}
    assert present == expected
    again = ContentHeader(pamqp.frame.marshal(pamqps, 1)[7:-1])
    assert (again.body_size, Properties.from_payload(again.properties_payload).values()) == (size, values)


@given(st.binary(max_size=80))
@settings(max_examples=300)
def test_octets_are_a_method_or_refused_and_nothing_else(octets: bytes) -> None:
    for method in METHODS.values():
        payload = codec.METHOD_IDS.pack(method.class_id, method.method_id) + octets
        try:
            fields = codec.decode_fields(method, payload)
        except (MalformedMethod, MalformedTable):
            continue
        assert list(fields) == [name for name, _ in method.fields]


@pytest.mark.parametrize("octets", [b"", b"\x00", struct.pack(">HH", 60, 81), struct.pack(">HH", 61, 10)])
def test_an_unknown_method_is_told_from_a_malformed_one(octets: bytes) -> None:
    with pytest.raises(UnknownMethod):
        codec.method_of(octets)


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    payload = codec.METHOD_IDS.pack(50, 30) + b"\x00\x00\x02\xff\xfe\x00"
    with pytest.raises(MalformedShortString):
        codec.decode_fields(m.QUEUE_PURGE, payload)


def test_a_routing_key_that_is_not_utf8_is_taken_as_it_is() -> None:
    payload = codec.METHOD_IDS.pack(60, 40) + b"\x00\x00\x00\x02\xff\xfe\x00"
    fields = codec.decode_fields(m.BASIC_PUBLISH, payload)
    assert codec.short_string(fields["routing_key"]) == b"\x02\xff\xfe"


def test_a_long_reply_text_is_cut_to_a_short_string() -> None:
    assert codec.short_string("x" * 300) == b"\xff" + b"x" * 255


def test_an_empty_body_has_no_body_frame() -> None:
    frames = codec.content_frames(1, b"\x00\x00", b"", 4096)
    assert frames == codec.frame(codec.HEADER, 1, codec.CONTENT_HEADER.pack(60, 0, 0) + b"\x00\x00")


def test_a_long_body_is_split_so_that_no_frame_is_longer_than_frame_max() -> None:
    header = codec.content_frames(1, b"\x00\x00", b"", 4096)
    frames = codec.content_frames(1, b"\x00\x00", b"x" * 10_000, 4096)
    sizes = []
    at = len(header)
    while at < len(frames):
        _, _, size = codec.FRAME_HEADER.unpack_from(frames, at)
        sizes.append(size + codec.FRAME_OVERHEAD)
        at += size + codec.FRAME_OVERHEAD
    assert sizes == [4096, 4096, 10_000 - 2 * 4088 + 8]
