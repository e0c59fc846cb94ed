"""The way from the protocol header to an open connection, octet for octet as RabbitMQ goes it."""

from typing import Any

import pytest

from queuey_fake.model.fields import Field, longstr
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from tests.unit.wire.amqp_client import PROTOCOL_HEADER, AmqpClient

VERSIONS = ["3.10", "4.0", "4.3"]


def test_the_handshake_may_come_in_one_write() -> None:
    client = AmqpClient()
    client.start()
    client.tune()
    client.say(0, m.CONNECTION_OPEN, virtual_host="/", capabilities="", insist=False)
    client.say(1, m.CHANNEL_OPEN, out_of_band="")
    assert client.names() == ["connection.start", "connection.tune", "connection.open-ok", "channel.open-ok"]


def test_the_handshake_may_come_octet_by_octet() -> None:
    client = AmqpClient()
    for octet in PROTOCOL_HEADER:
        client.write(bytes([octet]))
    frame = codec.method_frame(
        0,
        m.CONNECTION_START_OK,
        client_properties={},
        mechanism="PLAIN",
        response=b"\x00guest\x00guest",
        locale="en_US",
    )
    for octet in frame:
        client.write(bytes([octet]))
    assert client.names() == ["connection.start", "connection.tune"]


@pytest.mark.parametrize(("version", "release"), [("3.10", "3.10.8"), ("4.0", "4.0.5"), ("4.3", "4.3.6")])
def test_the_server_says_it_is_the_rabbitmq_that_it_imitates(version: str, release: str) -> None:
    client = AmqpClient(version=version)
    client.write(PROTOCOL_HEADER)
    [(_, name, fields)] = client.read()
    properties = fields["server_properties"]
    assert name == "connection.start"
    assert (properties["product"], properties["version"]) == (longstr("RabbitMQ"), longstr(release))
    assert all(field == Field("bool", True) for field in properties["capabilities"].value.values())
    assert {"publisher_confirms", "basic.nack"} < properties["capabilities"].value.keys()
    assert {b"PLAIN", b"AMQPLAIN"} <= set(fields["mechanisms"].split())


@pytest.mark.parametrize(
    ("header", "answers"),
    [
        (b"AMQP\x03\x01\x00\x00", {"3.10": b"AMQP\x00\x00\x09\x01", "4.3": b"AMQP\x03\x01\x00\x00"}),
        (b"GET / HTTP/1.1\r\n", {"3.10": b"AMQP\x00\x00\x09\x01", "4.3": b"AMQP\x03\x01\x00\x00"}),
        (b"AMQP\x00\x00\x0a\x00", {"3.10": b"AMQP\x00\x00\x09\x01", "4.3": b"AMQP\x00\x00\x09\x01"}),
    ],
)
def test_another_protocol_is_answered_with_the_own_header_and_the_end(header: bytes, answers: dict[str, bytes]) -> None:
    for version, answer in answers.items():
        client = AmqpClient(version=version)
        client.write(header)
        assert client.octets() == answer
        assert client.server.is_finished


def test_the_header_of_0_9_is_taken_for_0_9_1() -> None:
    client = AmqpClient()
    client.write(b"AMQP\x01\x01\x00\x09")
    assert client.names() == ["connection.start"]


def test_amqplain_logs_in_too() -> None:
    client = AmqpClient()
    response = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
    client.start(mechanism="AMQPLAIN", response=response)
    assert client.names() == ["connection.start", "connection.tune"]


def test_a_wrong_password_is_told_to_a_client_that_understands_it() -> None:
    client = AmqpClient()
    client.start(response=b"\x00guest\x00wrong")
    [_, (_, name, fields)] = client.read()
    assert (name, fields["reply_code"], fields["reply_text"]) == (
        "connection.close",
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
    )
    assert (client.server.is_finished, client.server.ends_late) == (False, True)
    client.say(0, m.CONNECTION_CLOSE_OK)
    assert (client.server.is_finished, client.server.ends_late) == (True, False)


def test_a_client_that_was_refused_and_loses_track_of_frames_is_gone_at_once() -> None:
    client = AmqpClient()
    client.start(response=b"\x00guest\x00wrong")
    client.write(codec.frame(codec.METHOD, 0, b"\x00\x0a\x00\x33")[:-1] + b"\x00")
    assert (client.server.is_finished, client.server.ends_late) == (True, False)


@pytest.mark.parametrize(
    "answer",
    [
        {"response": b"\x00guest\x00wrong", "capabilities": ()},
        {"response": b"guest"},
        {"mechanism": "AMQPLAIN", "response": b"\x05LOGIN"},
        {"mechanism": "AMQPLAIN", "response": b""},
        {"mechanism": "EXTERNAL"},
    ],
)
def test_a_client_that_cannot_be_trusted_is_dropped_in_silence(answer: dict[str, Any]) -> None:
    client = AmqpClient()
    client.start(**answer)
    assert client.names() == ["connection.start"]
    assert client.server.is_finished
    assert client.server.ends_late


@pytest.mark.parametrize(
    ("version", "tuning"),
    [
        ("4.3", {"channel_max": 0}),
        ("4.3", {"channel_max": 2048}),
        ("4.3", {"frame_max": 0}),
        ("4.3", {"frame_max": 131_073}),
        ("4.3", {"frame_max": 8191}),
        ("4.0", {"frame_max": 4095}),
    ],
)
def test_a_tuning_beyond_the_servers_is_dropped_in_silence(version: str, tuning: dict[str, int]) -> None:
    client = AmqpClient(version=version)
    client.start()
    client.read()
    client.tune(**tuning)
    assert client.names() == []
    assert client.server.is_finished
    assert client.server.ends_late


def test_fields_that_fit_no_open_are_not_answered() -> None:
    client = AmqpClient()
    client.start()
    client.tune()
    client.read()
    client.write(codec.frame(codec.METHOD, 0, b"\x00\x0a\x00\x28\x05a"))
    assert client.names() == []
    assert client.server.ends_late


def test_an_unknown_vhost_is_refused_by_name() -> None:
    client = AmqpClient()
    client.start()
    client.tune()
    client.read()
    client.say(0, m.CONNECTION_OPEN, virtual_host="/nope", capabilities="", insist=False)
    [(_, name, fields)] = client.read()
    assert (name, fields) == (
        "connection.close",
        {"reply_code": 530, "reply_text": "NOT_ALLOWED - vhost /nope not found", "class_id": 10, "method_id": 40},
    )


@pytest.mark.parametrize("payload", [b"x", bytes(12)], ids=["what is no header", "a header"])
def test_what_comes_for_a_channel_before_opening_is_not_even_read(payload: bytes) -> None:
    client = AmqpClient()
    client.start()
    client.tune()
    client.read()
    client.write(codec.frame(codec.HEADER, 1, payload))
    [(_, name, fields)] = client.read()
    assert (name, fields["reply_code"]) == ("connection.close", 505)
    assert fields["reply_text"].startswith("UNEXPECTED_FRAME - type 2, all octets = ")


def test_closing_before_opening_is_refused() -> None:
    client = AmqpClient()
    client.start()
    client.tune()
    client.read()
    client.say(0, m.CONNECTION_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    [(_, _, fields)] = client.read()
    assert fields["reply_text"] == "CHANNEL_ERROR - unexpected method in connection state opening"
