"""A client's connection answers, octet for octet, as RabbitMQ's does.

The refusals were given by RabbitMQ 3.10.8, 4.0.5 and 4.3.6 to the same octets.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey_fake.model.broker import Broker
from queuey_fake.model.fields import Field
from queuey_fake.model.properties import Properties
from queuey_fake.wire import channel, codec
from queuey_fake.wire import methods as m
from queuey_fake.wire.connection import Phase
from tests.unit.wire.amqp_client import CONSUME, DECLARE, PUBLISH, AmqpClient

VERSIONS = ["3.10", "4.0", "4.3"]


@pytest.fixture
def client() -> AmqpClient:
    return AmqpClient().open().open_channel()


# Refusals


def header(size: int = 0, properties: bytes = b"\x00\x00", *, class_id: int = 60, weight: int = 0) -> bytes:
    return codec.frame(codec.HEADER, 1, codec.CONTENT_HEADER.pack(class_id, weight, size) + properties)


def method(channel: int, method: m.Method, **fields: Any) -> bytes:
    return codec.method_frame(channel, method, **fields)


PUBLISHING = method(1, m.BASIC_PUBLISH, **PUBLISH)
REFUSED = {
    "properties that are no table": (
        PUBLISHING + header(properties=b"\x20\x00\xff\xff\xff\xff"),
        (541, "INTERNAL_ERROR", 0, 0),
    ),
    "properties that end too early": (PUBLISHING + header(properties=b"\x80\x00\x05ab"), (541, "INTERNAL_ERROR", 0, 0)),
    "properties without flags": (
        PUBLISHING + codec.frame(2, 1, codec.CONTENT_HEADER.pack(60, 0, 0)),
        (541, "INTERNAL_ERROR", 0, 0),
    ),
    "fields too many": (
        codec.frame(1, 1, b"\x00\x3c\x00\x50" + bytes(9) + b"xx"),
        (501, "FRAME_ERROR - cannot decode <<0,0,0,0,0,0,0,0,0,120,120>>", 60, 80),
    ),
    "fields too few on channel 0": (
        codec.frame(1, 0, b"\x00\x0a\x00\x32\x00"),
        (541, "INTERNAL_ERROR", 0, 0),
    ),
    "fields too few": (
        codec.frame(1, 1, b"\x00\x3c\x00\x50" + bytes(3)),
        (501, "FRAME_ERROR - cannot decode <<0,0,0>>", 60, 80),
    ),
    "a publish too short": (
        codec.frame(1, 1, b"\x00\x3c\x00\x28" + bytes(3)),
        (501, "FRAME_ERROR - cannot decode <<0,0,0>>", 60, 40),
    ),
    "a name that is not UTF-8": (
        codec.frame(1, 1, b"\x00\x32\x00\x1e\x00\x00\x02\xff\xfe\x00"),
        (501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0),
    ),
    "a method of servers": (
        method(1, m.QUEUE_DECLARE_OK, queue="a", message_count=1, consumer_count=0),
        (503, "COMMAND_INVALID - unimplemented method", 50, 11),
    ),
    "a method of servers with content": (
        method(1, m.BASIC_DELIVER, consumer_tag="", delivery_tag=1, redelivered=False, exchange="", routing_key="")
        + header(),
        (503, "COMMAND_INVALID - unimplemented method", 60, 60),
    ),
    "a method of servers on channel 0": (
        method(0, m.CONNECTION_OPEN_OK, known_hosts=""),
        (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 41),
    ),
    "a channel's method on channel 0": (
        method(0, m.QUEUE_PURGE, ticket=0, queue="q", nowait=False),
        (504, "CHANNEL_ERROR - unexpected method in connection state running", 50, 30),
    ),
    "a connection's method on a channel": (
        method(1, m.CONNECTION_OPEN, virtual_host="/", capabilities="", insist=False),
        (503, "COMMAND_INVALID - unimplemented method", 10, 40),
    ),
    "tuning again": (
        method(0, m.CONNECTION_TUNE_OK, channel_max=0, frame_max=0, heartbeat=0),
        (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 31),
    ),
    "a close-ok that nobody waits for": (
        method(0, m.CONNECTION_CLOSE_OK),
        (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 51),
    ),
    "a channel's close-ok that nobody waits for": (
        method(1, m.CHANNEL_CLOSE_OK),
        (503, "COMMAND_INVALID - unimplemented method", 20, 41),
    ),
    "a channel opened twice": (
        method(1, m.CHANNEL_OPEN, out_of_band=""),
        (504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10),
    ),
    "a body without a method": (
        codec.frame(3, 1, b"xx"),
        (505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead", 0, 0),
    ),
    "a body on a channel that is not open": (
        codec.frame(3, 5, b"xx"),
        (505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead", 0, 0),
    ),
    "a method on a channel that is not open": (
        method(5, m.BASIC_GET, ticket=0, queue="q", no_ack=False),
        (504, "CHANNEL_ERROR - expected 'channel.open'", 60, 70),
    ),
    "a method instead of a header": (
        PUBLISHING + method(1, m.TX_SELECT),
        (
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
            60,
            40,
        ),
    ),
    "a method instead of a body": (
        PUBLISHING + header(5) + method(1, m.TX_SELECT),
        (505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead", 60, 40),
    ),
    "a header of another class": (
        PUBLISHING + header(5, class_id=50),
        (505, "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead", 60, 40),
    ),
    "a header with weight": (
        PUBLISHING + header(5, weight=1),
        (
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
            60,
            40,
        ),
    ),
    "a header too short": (
        codec.frame(2, 1, b"\x00\x3c\x00"),
        (501, "FRAME_ERROR - type 2, all octets = <<0,60,0>>: unknown_frame", 0, 0),
    ),
    "a frame of an unknown type": (
        codec.frame(99, 0, b"x" * 20),
        (501, 'FRAME_ERROR - type 99, first 16 octets = <<"xxxxxxxxxxxxxxxx">>: unknown_frame', 0, 0),
    ),
    "a heartbeat on a channel": (codec.frame(8, 1, b""), (505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", 0, 0)),
    "a heartbeat that says something": (
        codec.frame(8, 0, b"abc"),
        (501, 'FRAME_ERROR - type 8, all octets = <<"abc">>: unknown_frame', 0, 0),
    ),
    "a header on channel 0": (
        codec.frame(2, 0, codec.CONTENT_HEADER.pack(60, 0, 5) + b"\x00\x00"),
        (505, "UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,5,0,0>>", 0, 0),
    ),
    "a frame that ends wrong": (
        b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xff",
        (501, "FRAME_ERROR - type 1, all octets = <<0,90,0,10>>: {invalid_frame_end_marker,255}", 0, 0),
    ),
    "a frame too large": (
        codec.FRAME_HEADER.pack(3, 1, 131_073),
        (501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,131073,131064}", 0, 0),
    ),
    "immediate": (
        method(1, m.BASIC_PUBLISH, **(PUBLISH | {"immediate": True})) + header(),
        (540, "NOT_IMPLEMENTED - immediate=true", 60, 40),
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", REFUSED)
def test_the_connection_is_closed_for(what: str, version: str) -> None:
    octets, (code, text, class_id, method_id) = REFUSED[what]
    client = AmqpClient(version=version).open().open_channel()
    client.write(octets)
    expected = {"reply_code": code, "reply_text": text, "class_id": class_id, "method_id": method_id}
    assert client.read() == [(0, "connection.close", expected)]
    client.say(1, m.TX_SELECT)
    assert client.read() == []


@pytest.mark.parametrize(
    "octets",
    [
        codec.frame(1, 1, b"\x00\x3c\x00\x51"),
        codec.frame(1, 0, b"\x00\x0a\x00\x63"),
        codec.frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\x03\x01aq"),
        PUBLISHING + codec.frame(1, 1, b"\x00\x3c\x00\x51"),
        PUBLISHING + header(3) + codec.frame(1, 1, b"\x00\x3c\x00\x51"),
    ],
    ids=["unknown method", "unknown method on channel 0", "malformed table", "instead of header", "instead of body"],
)
def test_rabbitmqs_reader_crashes_and_the_connection_ends_without_a_word(client: AmqpClient, octets: bytes) -> None:
    client.write(octets)
    assert client.octets() == b""
    assert client.server.is_finished
    assert client.broker.connections == {}


@pytest.mark.parametrize(
    ("version", "code", "text"),
    [
        ("3.10", 505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead"),
        ("4.0", 505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead"),
        ("4.3", 501, "FRAME_ERROR - content body frame exceeds remaining content size"),
    ],
)
def test_a_body_longer_than_announced_is_refused_at_once_by_4_3_only(version: str, code: int, text: str) -> None:
    client = AmqpClient(version=version).open().open_channel()
    client.write(PUBLISHING + header(2) + codec.frame(3, 1, b"xxxx") + method(1, m.TX_SELECT))
    [(_, _, fields)] = client.read()
    assert (fields["reply_code"], fields["reply_text"]) == (code, text)


def test_a_payload_may_exceed_frame_max_by_the_eight_octets_around_it() -> None:
    client = AmqpClient().open(frame_max=8192).open_channel()
    client.write(PUBLISHING + header(8192) + codec.frame(3, 1, b"x" * 8192) + method(1, m.TX_SELECT))
    assert client.names() == ["tx.select-ok"]


def test_a_channel_is_closed_with_the_method_and_drops_everything_until_close_ok(client: AmqpClient) -> None:
    client.say(1, m.QUEUE_PURGE, ticket=0, queue="none", nowait=False)
    client.say(1, m.QUEUE_PURGE, ticket=0, queue="none", nowait=False)
    client.publish(1)
    assert client.read() == [
        (
            1,
            "channel.close",
            {
                "reply_code": 404,
                "reply_text": "NOT_FOUND - no queue 'none' in vhost '/'",
                "class_id": 50,
                "method_id": 30,
            },
        )
    ]
    client.say(1, m.CHANNEL_CLOSE_OK)
    client.say(1, m.CHANNEL_OPEN, out_of_band="")
    client.say(1, m.TX_SELECT)
    assert client.names() == ["channel.open-ok", "tx.select-ok"]


def test_both_sides_may_close_a_channel_at_once(client: AmqpClient) -> None:
    client.say(1, m.QUEUE_PURGE, ticket=0, queue="none", nowait=False)
    client.say(1, m.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    client.say(1, m.CHANNEL_CLOSE_OK)
    assert client.names() == ["channel.close", "channel.close-ok"]
    assert client.open_channel(1).server.phase is Phase.RUNNING


def test_channel_max_bounds_how_many_channels_are_open_and_not_their_numbers() -> None:
    client = AmqpClient().open(channel_max=2)
    client.say(7, m.CHANNEL_OPEN, out_of_band="")
    client.say(8, m.CHANNEL_OPEN, out_of_band="")
    assert client.names() == ["channel.open-ok", "channel.open-ok"]
    client.say(7, m.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    client.say(9, m.CHANNEL_OPEN, out_of_band="")
    assert client.names() == ["channel.close-ok", "channel.open-ok"]
    client.say(10, m.CHANNEL_OPEN, out_of_band="")
    [(_, _, fields)] = client.read()
    assert fields["reply_text"] == (
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )


# Closing


def test_a_closed_connection_drops_what_follows_and_answers_a_second_close(client: AmqpClient) -> None:
    bye = method(0, m.CONNECTION_CLOSE, reply_code=200, reply_text="bye", class_id=0, method_id=0)
    client.write(bye + method(1, m.TX_SELECT) + bye)
    assert client.names() == ["connection.close-ok", "connection.close-ok"]
    assert client.broker.connections == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_closed_connection_is_told_nothing_more_of_octets_that_are_no_frames(version: str) -> None:
    client = AmqpClient(version=version).open().open_channel()
    client.publish(1, immediate=True)
    assert client.names() == ["connection.close"]
    client.write(PUBLISHING[:-1] + b"\x00")
    assert not client.read()
    assert client.server.ends_late


def test_the_end_follows_close_ok(client: AmqpClient) -> None:
    client.write(codec.frame(99, 0, b""))
    assert client.names() == ["connection.close"]
    assert not client.server.is_finished
    client.say(0, m.CONNECTION_CLOSE_OK)
    assert client.server.is_finished


def test_a_lost_connection_gives_everything_back(client: AmqpClient) -> None:
    other = AmqpClient(client.broker).open().open_channel()
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.publish(1, b"job")
    client.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=False)
    client.server.lose()
    other.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=False)
    [(_, name, fields), *_] = other.read()
    assert (name, fields["redelivered"]) == ("basic.get-ok", True)


# Content


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 400_000])
def test_a_body_of_any_size_arrives_whole(client: AmqpClient, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.publish(1, body[:size])
    client.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=True)
    told = client.read()
    assert [name for _, name, _ in told[:3]] == ["queue.declare-ok", "basic.get-ok", "header"]
    assert b"".join(payload for _, name, payload in told if name == "body") == body[:size]


@pytest.mark.parametrize(("version", "keys"), [("3.10", ["b", "a"]), ("4.0", ["a", "b"]), ("4.3", ["a", "b"])])
def test_headers_keep_their_types_and_4_sorts_their_keys(version: str, keys: list[str]) -> None:
    client = AmqpClient(version=version).open().open_channel()
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    headers = {"b": Field("unsignedshort", 7), "a": Field("float", 0.5)}
    client.publish(1, properties=Properties(headers=headers).payload())
    client.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=True)
    payload = client.read()[-1][2]
    got = Properties.from_payload(codec.ContentHeader(payload).properties_payload).headers or {}
    assert (got, list(got)) == (headers, keys)


def test_channels_may_interleave_their_contents(client: AmqpClient) -> None:
    client.open_channel(2)
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.write(PUBLISHING + header(3))
    client.publish(2, b"second")
    client.write(codec.frame(3, 1, b"fir"))
    client.say(1, m.BASIC_CONSUME, **CONSUME)
    bodies = [payload for _, name, payload in client.read() if name == "body"]
    assert bodies == [b"second", b"fir"]


@pytest.mark.parametrize(("version", "is_refused"), [("3.10", False), ("4.0", False), ("4.3", True)])
def test_a_header_that_announces_more_than_any_message_has_is_refused_by_4_3(version: str, *, is_refused: bool) -> None:
    client = AmqpClient(version=version).open().open_channel()
    client.write(PUBLISHING + header(536_870_913))
    texts = [fields["reply_text"] for _, _, fields in client.read()]
    said = "FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912"
    assert texts == [said] * is_refused


def test_what_all_channels_hold_of_unfinished_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "UNFINISHED_MAX", 1000)
    client = AmqpClient().open().open_channel(1).open_channel(2)
    for number in (1, 2):
        client.say(number, m.BASIC_PUBLISH, **PUBLISH)
        client.write(codec.frame(codec.HEADER, number, codec.CONTENT_HEADER.pack(60, 0, 900) + b"\x00\x00"))
        client.write(codec.frame(codec.BODY, number, b"x" * 500))
    assert client.read() == []
    client.write(codec.frame(codec.BODY, 1, b"x"))
    [(_, name, fields)] = client.read()
    assert (name, fields["reply_code"], fields["class_id"], fields["method_id"]) == ("connection.close", 506, 60, 40)


def test_a_body_that_is_finished_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "UNFINISHED_MAX", 1000)
    client = AmqpClient().open().open_channel()
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    client.read()
    for _ in range(3):
        client.write(PUBLISHING + header(900) + 2 * codec.frame(codec.BODY, 1, b"x" * 450))
    assert client.read() == []
    assert client.server.unfinished_octets == 0
    snapshot = client.broker.queue_snapshot("q")
    assert snapshot is not None
    assert [len(message.body) for message in snapshot.messages] == [900] * 3


def test_a_channel_is_not_opened_again_before_its_close_ok(client: AmqpClient) -> None:
    client.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=False)
    assert client.names() == ["channel.close"]
    client.say(1, m.CHANNEL_OPEN, out_of_band="")
    [(_, name, fields)] = client.read()
    assert (name, fields["reply_text"]) == ("connection.close", "CHANNEL_ERROR - second 'channel.open' seen")


def closed(by: str) -> AmqpClient:
    client = AmqpClient().open()
    ways = {
        "client": method(0, m.CONNECTION_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0),
        "broker": method(0, m.CONNECTION_CLOSE_OK),
    }
    client.write(ways[by])
    client.read()
    assert client.server.phase is {"client": Phase.CLOSED, "broker": Phase.CLOSING}[by]
    return client


CLOSED_BY = pytest.mark.parametrize("by", ["client", "broker"])


@CLOSED_BY
def test_the_close_ok_of_a_closed_connection_ends_it(by: str) -> None:
    client = closed(by)
    client.say(0, m.CONNECTION_CLOSE_OK)
    assert client.server.is_finished


@CLOSED_BY
@pytest.mark.parametrize("payload", [b"\x00\x0a", b"\x00\x0a\x00\x33zz", b"\x00\x0a\x00\x32zz"])
def test_what_fits_no_method_is_dropped_on_a_closed_connection(by: str, payload: bytes) -> None:
    client = closed(by)
    client.write(codec.frame(codec.METHOD, 0, payload))
    assert client.read() == []
    assert not client.server.is_finished


@CLOSED_BY
@pytest.mark.parametrize(("channel_number", "is_gone"), [(0, True), (1, False)])
def test_a_method_that_there_is_not_ends_a_closed_connection_on_channel_0(
    by: str, channel_number: int, *, is_gone: bool
) -> None:
    client = closed(by)
    client.write(codec.frame(codec.METHOD, channel_number, b"\x00\x63\x00\x01"))
    assert client.read() == []
    assert client.server.is_finished is is_gone


def test_a_term_behind_a_line_break_is_printed_from_its_own_column() -> None:
    client = AmqpClient().open()
    client.write(codec.frame(codec.METHOD, 1, b"\xc8" * 15 + b"\x01")[:-1] + b"\xff")
    [(_, _, fields)] = client.read()
    assert fields["reply_text"] == (
        "FRAME_ERROR - type 1, all octets = <<200,200,200,200,200,200,200,200,200,200,200,200,200,200,\n"
        "                       200,1>>: {invalid_frame_end_marker,255}"
    )


def test_octets_in_a_frame_error_are_octets_in_3_10() -> None:
    client = AmqpClient(version="3.10").open()
    client.write(codec.frame(77, 1, b"\xff"))
    assert b'type 77, all octets = <<"\xff">>: unknown_frame' in client.octets()


def test_a_client_that_lost_track_of_frames_sees_the_end_late() -> None:
    client = AmqpClient().open()
    client.write(codec.frame(codec.METHOD, 0, b"\x00\x0a\x00\x33")[:-1] + b"\x00")
    assert client.names() == ["connection.close"]
    assert client.server.ends_late


def test_a_body_over_the_maximum_is_counted_and_not_kept() -> None:
    client = AmqpClient(version="4.3").open().open_channel()
    size = 16_777_217
    client.write(PUBLISHING + header(size))
    frame = codec.frame(3, 1, b"x" * 131_064)
    while size > 131_064:
        client.write(frame)
        size -= 131_064
        assert not client.server._channels[1]._body
    client.write(codec.frame(3, 1, b"x" * size))
    [(_, name, fields)] = client.read()
    assert (name, fields["reply_text"]) == (
        "channel.close",
        "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216",
    )


# Order


def test_a_return_comes_before_the_confirm_of_its_publish(client: AmqpClient) -> None:
    client.say(1, m.CONFIRM_SELECT, nowait=True)
    client.publish(1, mandatory=True, routing_key="nowhere")
    assert client.names() == ["basic.return", "header", "basic.ack"]


def test_a_run_of_confirms_becomes_one(client: AmqpClient) -> None:
    client.say(1, m.CONFIRM_SELECT, nowait=True)
    for _ in range(5):
        client.publish(1)
    assert client.read() == [(1, "basic.ack", {"delivery_tag": 5, "multiple": True})]
    client.publish(1)
    assert client.read() == [(1, "basic.ack", {"delivery_tag": 6, "multiple": False})]


def test_what_is_waiting_is_encoded_only_as_there_is_room(client: AmqpClient) -> None:
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    for _ in range(100):
        client.publish(1, b"x" * 1000)
    client.read()
    client.say(1, m.BASIC_CONSUME, **CONSUME)
    taken = client.server.take_output(5000)
    assert 5000 <= len(taken) < 7000
    assert client.server.waiting


def test_a_deleted_queue_cancels_consumers_only_where_the_client_understands_it(client: AmqpClient) -> None:
    deaf = AmqpClient(client.broker)
    deaf.start(capabilities=())
    deaf.tune()
    deaf.say(0, m.CONNECTION_OPEN, virtual_host="/", capabilities="", insist=False)
    deaf.open_channel()
    client.say(1, m.QUEUE_DECLARE, **DECLARE)
    for each in (client, deaf):
        each.say(1, m.BASIC_CONSUME, **CONSUME)
        each.read()
    client.say(1, m.QUEUE_DELETE, ticket=0, queue="q", if_unused=False, if_empty=False, nowait=False)
    assert sorted(client.names()) == ["basic.cancel", "queue.delete-ok"]
    assert deaf.read() == []


def test_access_is_granted_to_everyone(client: AmqpClient) -> None:
    rights = dict.fromkeys(("exclusive", "passive", "active", "write", "read"), False)
    client.say(1, m.ACCESS_REQUEST, realm="/data", **rights)
    assert client.read() == [(1, "access.request-ok", {"ticket": 1})]


def test_a_secret_may_be_updated(client: AmqpClient) -> None:
    client.say(0, m.CONNECTION_UPDATE_SECRET, new_secret=b"new", reason="old")
    assert client.names() == ["connection.update-secret-ok"]


# Hostile clients

CHUNKS = st.lists(st.binary(max_size=60), max_size=20)


@given(CHUNKS)
@settings(max_examples=150)
def test_any_octets_instead_of_a_handshake_end_in_bounded_words(chunks: list[bytes]) -> None:
    client = AmqpClient()
    for chunk in chunks:
        client.write(chunk)
    assert len(client.octets()) < 1000
    assert len(client.server._input) < 8192 + 8


FRAMES = st.one_of(
    st.builds(codec.frame, st.integers(0, 9), st.integers(0, 3), st.binary(max_size=40)),
    st.sampled_from([octets for octets, _ in REFUSED.values()]),
    st.builds(
        lambda method, octets, channel: codec.frame(
            1, channel, codec.METHOD_IDS.pack(method.class_id, method.method_id) + octets
        ),
        st.sampled_from(list(m.METHODS.values())),
        st.binary(max_size=40),
        st.integers(0, 3),
    ),
    st.binary(max_size=20),
)


@given(st.lists(FRAMES, max_size=12), st.sampled_from(VERSIONS), st.integers(1, 50))
@settings(max_examples=300)
def test_any_frames_leave_the_broker_working_for_others(frames: list[bytes], version: str, size: int) -> None:
    client = AmqpClient(version=version).open().open_channel()
    octets = b"".join(frames)
    for at in range(0, len(octets), size):
        client.write(octets[at : at + size])
    other = AmqpClient(client.broker).open().open_channel()
    other.say(1, m.QUEUE_DECLARE, **(DECLARE | {"queue": "other"}))
    assert other.names() == ["queue.declare-ok"]


SERVED = [
    method_
    for method_ in m.METHODS.values()
    if method_.class_id not in (10, 20) and not method_.has_content and not method_.name.endswith(("-ok", "get-empty"))
]


@pytest.mark.parametrize("served", SERVED, ids=lambda served: served.name)
def test_a_method_of_clients_is_served(served: m.Method) -> None:
    client = AmqpClient(Broker(version="4.0")).open().open_channel()
    values = {"bit": False, "short": 0, "long": 0, "longlong": 0, "shortstr": "", "table": {}}
    client.say(1, served, **{name: values[type_] for name, type_ in served.fields})
    texts = [fields.get("reply_text") for _, name, fields in client.read() if name.endswith("close")]
    assert "COMMAND_INVALID - unimplemented method" not in texts


def test_a_name_that_stands_for_no_queue_is_found_before_the_channel_is_found_not_to_be_open() -> None:
    client = AmqpClient().open()
    client.say(1, m.BASIC_GET, ticket=0, queue="", no_ack=True)
    [(number, name, fields)] = client.read()
    assert (number, name) == (1, "channel.close")
    assert (fields["reply_code"], fields["reply_text"]) == (404, "NOT_FOUND - no previously declared queue")
    client.say(1, m.CHANNEL_OPEN, out_of_band="")
    [(number, name, fields)] = client.read()
    assert (number, name, fields["reply_text"]) == (0, "connection.close", "CHANNEL_ERROR - second 'channel.open' seen")
