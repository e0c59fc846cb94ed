"""The short way for publishes, deliveries and confirms does, byte for byte, what pika does."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.adapters.select_connection import IOLoop
from pika.channel import ContentFrameAssembler

from queuey_rabbitmq.amqp import Delivered, LateProperties, Properties
from queuey_rabbitmq.core.errors import SerializationError
from queuey_rabbitmq.pika_link import frames, stream

CHANNEL = 7
NUMBER = 70
short = st.text(max_size=60)
header_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | short | st.binary(max_size=20),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(short, values, max_size=3),
    max_leaves=5,
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short,
        "content_encoding": short,
        "headers": st.dictionaries(short, header_values, max_size=4),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": short,
        "reply_to": short,
        "expiration": short,
        "message_id": short,
        "timestamp": st.integers(0, 2**63 - 1),
        "type": short,
        "user_id": short,
        "app_id": short,
        "cluster_id": short,
    },
)
bodies = st.binary(max_size=200)


def content(method: Any, values: dict[str, Any], body: bytes, piece: int = 1_000) -> bytes:
    """The frames of a message as pika writes them."""
    written = frame.Method(CHANNEL, method).marshal()
    written += frame.Header(CHANNEL, len(body), pika.BasicProperties(**values)).marshal()
    for start in range(0, len(body), piece):
        written += frame.Body(CHANNEL, body[start : start + piece]).marshal()
    return bytes(written)


@given(routing_key=short, values=properties, body=bodies)
def test_a_publish_is_written_as_pika_writes_it(routing_key: str, values: dict[str, Any], body: bytes) -> None:
    expected = content(spec.Basic.Publish(exchange="", routing_key=routing_key, mandatory=True), values, body)
    assert frames.encode_publish(CHANNEL, routing_key, Properties(**values), body) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"message_id": "x" * 256},
        {"type": "é" * 128},
        {"headers": {"x": object()}},
        {"headers": {"x": 2**64}},
        {"priority": 256},
        {"priority": -1},
        {"delivery_mode": "2"},
        {"timestamp": "now"},
        {"timestamp": -1},
        {"content_type": 5},
    ],
)
def test_what_pika_refuses_to_write_is_not_written(values: dict[str, Any]) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 -- pika raises a dozen different things for these
        pika.BasicProperties(**values).encode()
    with pytest.raises(Exception):  # noqa: B017, PT011 -- whatever it is, pika is asked next
        frames.encode_publish(CHANNEL, "q", Properties(**values), b"")


def test_a_routing_key_that_is_too_long_is_not_written() -> None:
    with pytest.raises(ValueError, match="bytes must be in range"):
        frames.encode_publish(CHANNEL, "q" * 256, Properties(), b"")


class Sink:
    def __init__(self, heard: list[Any], consuming: set[str]) -> None:
        self.number = NUMBER
        self.consuming = consuming
        self._heard = heard

    def on_delivery(self, delivery: Delivered) -> None:
        d = delivery
        words = ("deliver", d.consumer_tag, d.delivery_tag, d.redelivered, d.exchange, d.routing_key)
        values = {name: getattr(d.properties, name) for name in Properties.__struct_fields__}
        self._heard.append((*words, values, d.body))
        assert d.channel == NUMBER

    def on_confirm(self, delivery_tag: int, *, multiple: bool, is_ack: bool) -> None:
        self._heard.append(("ack" if is_ack else "nack", delivery_tag, multiple))


class Reader:
    """A connection that only reads; what pika is left with is heard in the same words as what it is not."""

    def __init__(self, kind: type[pika.SelectConnection], consuming: set[str]) -> None:
        self.heard: list[Any] = []
        self.by_pika = 0
        self._loop = IOLoop()
        self._assembler = ContentFrameAssembler()
        self.connection = kind(pika.ConnectionParameters(), custom_ioloop=self._loop)
        self.connection._process_frame = self._process_frame
        if isinstance(self.connection, stream.FastConnection):
            self.connection.sinks[CHANNEL] = Sink(self.heard, consuming)

    def _process_frame(self, got: Any) -> None:
        self.by_pika += 1
        self.connection.frames_received += 1
        if isinstance(got, frame.Heartbeat):
            self.heard.append(("heartbeat",))
            return
        if isinstance(got, frame.Method) and isinstance(got.method, spec.Basic.Ack | spec.Basic.Nack):
            name = "ack" if isinstance(got.method, spec.Basic.Ack) else "nack"
            self.heard.append((name, got.method.delivery_tag, got.method.multiple))
            return
        message = self._assembler.process(got)
        if message is not None:
            method, header, body = message[0].method, message[1], message[2]
            words = (
                ("deliver", method.consumer_tag, method.delivery_tag, method.redelivered)
                if isinstance(method, spec.Basic.Deliver)
                else ("return", method.reply_code)
            )
            self.heard.append((*words, method.exchange, method.routing_key, vars(header.properties), body))

    def read(self, data: bytes, sizes: list[int]) -> list[Any]:
        at = 0
        try:
            for size in sizes:
                self.connection._on_data_available(data[at : at + size])
                at += size
            self.connection._on_data_available(data[at:])
        finally:
            self._loop.close()
        return self.heard


deliveries = st.builds(
    lambda tag, number, redelivered, exchange, key, values, body, piece: content(
        spec.Basic.Deliver(tag, number, redelivered, exchange, key), values, body, piece
    ),
    st.sampled_from(["here", "elsewhere"]),
    st.integers(1, 2**63 - 1),
    st.booleans(),
    short,
    short,
    properties,
    bodies,
    st.sampled_from([50, 1_000]),
)
returns = st.builds(
    lambda key, values, body: content(spec.Basic.Return(312, "NO_ROUTE", "", key), values, body),
    short,
    properties,
    bodies,
)
confirms = st.builds(
    lambda kind, tag, multiple: frame.Method(CHANNEL, kind(tag, multiple)).marshal(),
    st.sampled_from([spec.Basic.Ack, spec.Basic.Nack]),
    st.integers(1, 2**63 - 1),
    st.booleans(),
)
heartbeats = st.just(frame.Heartbeat().marshal())


@given(
    written=st.lists(deliveries | returns | confirms | heartbeats, max_size=8),
    sizes=st.lists(st.integers(0, 300), max_size=20),
)
def test_whatever_comes_in_whatever_pieces_is_heard_as_by_pika(written: list[bytes], sizes: list[int]) -> None:
    data = b"".join(written)
    fast, slow = Reader(stream.FastConnection, {"here"}), Reader(pika.SelectConnection, set())
    assert fast.read(data, sizes) == slow.read(data, sizes)
    assert fast.connection.bytes_received == slow.connection.bytes_received == len(data)
    assert fast.connection._unread == b""


def test_what_comes_by_the_thousand_does_not_pass_pika() -> None:
    data = content(spec.Basic.Deliver("here", 1, False, "", "q"), {"headers": {"x": 1}}, b"body")
    data += content(spec.Basic.Deliver("here", 2, False, "", "q"), {}, b"")
    data += frame.Method(CHANNEL, spec.Basic.Ack(3, True)).marshal()
    reader = Reader(stream.FastConnection, {"here"})
    assert len(reader.read(data, [])) == 3
    assert reader.by_pika == 0


def test_a_delivery_for_a_consumer_that_is_being_cancelled_is_left_to_pika() -> None:
    reader = Reader(stream.FastConnection, set())
    reader.read(content(spec.Basic.Deliver("here", 1, False, "", "q"), {}, b"body"), [])
    assert reader.by_pika == 3


def test_a_frame_without_its_end_is_left_to_pika_which_refuses_it() -> None:
    data = content(spec.Basic.Deliver("here", 1, False, "", "q"), {}, b"body")
    reader = Reader(stream.FastConnection, {"here"})
    with pytest.raises(pika.exceptions.InvalidFrameError):
        reader.read(data[:-1] + b"\x00", [])
    assert not [words for words in reader.heard if words[0] == "deliver"]


def test_a_consumer_tag_that_is_no_text_is_left_to_pika() -> None:
    data = content(spec.Basic.Deliver("here", 1, False, "", "q"), {}, b"body").replace(b"here", b"\xff\xffre")
    reader = Reader(stream.FastConnection, {"here"})
    reader.read(data, [])
    assert reader.by_pika == 3


def late(encoded: bytes, *, has_headers: bool) -> LateProperties:
    return LateProperties(encoded, frames.decode_properties, has_headers=has_headers)


def test_the_properties_of_a_delivery_are_decoded_when_they_are_looked_at() -> None:
    properties = late(b"\x00\x80\x02id", has_headers=False)
    assert properties.headers is None
    assert (properties.message_id, properties.type) == ("id", None)
    with pytest.raises(AttributeError, match="nothing_of_amqp"):
        properties.nothing_of_amqp  # noqa: B018 -- it is the look that raises
    headers = late(b"\x20\x00\x00\x00\x00\x07\x01kI\x00\x00\x00\x01", has_headers=True).headers
    assert (headers, len(headers), headers["k"], repr(headers)) == ({"k": 1}, 1, 1, "{'k': 1}")


def test_properties_that_pika_cannot_decode_are_an_error_for_who_looks_at_them() -> None:
    broken = late(b"\x20\x00\x00\x00\x00\x03\x01k?", has_headers=True)
    with pytest.raises(SerializationError, match="cannot be decoded"):
        dict(broken.headers)
