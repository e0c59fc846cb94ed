"""A publish like the one before is read in one step, and everything comes out as if it were read frame by frame."""

from collections.abc import Callable, Iterable
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey_fake.model.properties import Properties
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from queuey_fake.wire.channel import WireChannel
from tests.unit.wire.amqp_client import DECLARE, PUBLISH, AmqpClient

PERSISTENT = Properties(delivery_mode=2).payload()
HELD = Properties(delivery_mode=2, expiration="5").payload()
ALARM, CALM = b"raise the alarm", b"end the alarm"


def method(channel: int = 1, **fields: object) -> bytes:
    return codec.method_frame(channel, m.BASIC_PUBLISH, **(PUBLISH | fields))


def content(body: bytes, properties: bytes = PERSISTENT, *, channel: int = 1, frame_max: int = 131_072) -> bytes:
    return codec.content_frames(channel, properties, body, frame_max)


SAME = method(mandatory=True) + content(b"as ever")
CLOSE = codec.method_frame(1, m.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
CLOSE_OK = codec.method_frame(1, m.CHANNEL_CLOSE_OK)
OPEN = codec.method_frame(1, m.CHANNEL_OPEN, out_of_band="")
WRITES = st.sampled_from(
    [
        SAME,
        SAME,
        SAME + SAME,
        method(mandatory=True) + content(b"another"),
        method(mandatory=True) + content(b"longer than ever"),
        method(mandatory=True) + content(b"as ever", HELD),
        method(mandatory=True) + content(b"in frames", frame_max=12),
        method(mandatory=True) + content(b""),
        method(mandatory=True, routing_key="nobody") + content(b"as ever"),
        method(exchange="nowhere") + content(b"as ever"),
        method(2, mandatory=True) + content(b"as ever", channel=2),
        method(mandatory=True),
        content(b"as ever"),
        SAME[:10],
        SAME[:-10],
        SAME[10:],
        SAME[-10:],
        codec.HEARTBEAT_FRAME,
        SAME[:-1] + b"\x00",
        CLOSE_OK,
        OPEN,
        CLOSE,
        ALARM,
        CALM,
    ]
)


def of(writes: Iterable[bytes], version: str, write: Callable[[AmqpClient, bytes], None]) -> tuple[bytes, list[bytes]]:
    """Return what the client is told, and the bodies in the queue."""
    client = AmqpClient(version=version).open()
    for channel in (1, 2):
        client.open_channel(channel)
        client.say(channel, m.CONFIRM_SELECT, nowait=True)
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.octets()
    told = []
    for octets in writes:
        if octets in (ALARM, CALM):
            client.broker.set_alarm("memory" if octets is ALARM else None)
            client.write(b"")
        else:
            write(client, octets)
        told.append(client.octets())
    return b"|".join(told), [queued.message.body for queued in client.broker.vhosts["/"].queues["q"].ready]


def in_one_piece(client: AmqpClient, octets: bytes) -> None:
    client.write(octets)


def octet_by_octet(client: AmqpClient, octets: bytes) -> None:
    for at in range(len(octets)):
        client.write(octets[at : at + 1])


def comes_out_the_same(writes: list[bytes], version: str) -> None:
    with patch.object(WireChannel, "_remember_publish"):  # so nothing counts as repeated
        frame_by_frame = of(writes, version, in_one_piece)
    assert of(writes, version, in_one_piece) == frame_by_frame
    assert of(writes, version, octet_by_octet) == frame_by_frame


@given(st.lists(WRITES, min_size=1, max_size=6), st.sampled_from(["3.10", "4.0", "4.3"]))
@settings(max_examples=200)
def test_whatever_comes_between_repeated_publishes_it_is_as_if_each_were_read_frame_by_frame(
    writes: list[bytes], version: str
) -> None:
    comes_out_the_same([SAME, SAME, *writes, SAME, SAME], version)


BEGUN, REST = SAME[:-10], SAME[-10:]
METHOD_ONLY = method(mandatory=True)


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param([ALARM, SAME, CALM, SAME], id="an alarm"),
        pytest.param([BEGUN, ALARM, REST, SAME, CALM, SAME], id="an alarm amid a body"),
        pytest.param([METHOD_ONLY, ALARM, content(b"as ever"), SAME, CALM], id="an alarm behind the method"),
        pytest.param([METHOD_ONLY, ALARM, content(b"another"), SAME, CALM], id="an alarm behind the method of another"),
        pytest.param([SAME[:10], ALARM, SAME[10:], SAME, CALM], id="an alarm amid the method"),
        pytest.param([BEGUN, ALARM, CALM, REST, ALARM, SAME, CALM], id="an alarm that ended, and another"),
        pytest.param([BEGUN, REST, ALARM, SAME, CALM], id="an alarm behind one that came in parts"),
        pytest.param([METHOD_ONLY, content(b"other"), ALARM, SAME, CALM], id="an alarm behind another in parts"),
        pytest.param([SAME[:-1] + b"\x00", SAME], id="an end that is none"),
        pytest.param([BEGUN, REST[:-1] + b"\x00", SAME], id="an end that is none, later"),
        pytest.param([METHOD_ONLY, METHOD_ONLY + content(b"as ever")], id="a method without content"),
        pytest.param([METHOD_ONLY, codec.HEARTBEAT_FRAME, content(b"as ever"), SAME], id="a heartbeat between"),
        pytest.param([method(2) + SAME, content(b"as ever", channel=2), SAME], id="one amid another channel's"),
        pytest.param([CLOSE, SAME, OPEN, SAME], id="a closed channel"),
        pytest.param([METHOD_ONLY, CLOSE, OPEN, SAME], id="a channel that closes amid"),
        pytest.param([method(exchange="nowhere") + content(b"as ever"), SAME, CLOSE_OK, OPEN, SAME], id="a refusal"),
    ],
)
@pytest.mark.parametrize("version", ["3.10", "4.3"])
def test_it_is_as_if_each_were_read_frame_by_frame_around(writes: list[bytes], version: str) -> None:
    comes_out_the_same([SAME, SAME, *writes], version)


def test_a_third_publish_like_the_two_before_is_read_in_one_step() -> None:
    client = AmqpClient().open().open_channel()
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.write(SAME + SAME)
    with patch.object(WireChannel, "process") as process:
        client.write(METHOD_ONLY + content(b"another"))
        octet_by_octet(client, SAME)
    assert not process.called
    bodies = [queued.message.body for queued in client.broker.vhosts["/"].queues["q"].ready]
    assert bodies == [b"as ever", b"as ever", b"another", b"as ever"]


@pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
def test_a_body_that_came_in_frames_may_not_come_again_in_one_that_is_too_large(version: str) -> None:
    client = AmqpClient(version=version).open(frame_max=8192).open_channel()
    client.write((method() + content(b"x" * 12_000, frame_max=8192)) * 2)
    client.write(method() + content(b"x" * 12_000))
    [(channel, name, fields)] = client.read()
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,12000,8184}"
    assert (channel, name, fields["reply_text"]) == (0, "connection.close", text)
