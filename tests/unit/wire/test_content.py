"""The content of a publish is taken when RabbitMQ takes it: under an alarm, and where it cannot be read.

Measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, which answered the same octets so.
"""

import pytest

from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from tests.unit.wire.amqp_client import PUBLISH, AmqpClient

PUBLISHING = codec.method_frame(1, m.BASIC_PUBLISH, **PUBLISH)


def header(size: int = 0) -> bytes:
    return codec.frame(codec.HEADER, 1, codec.CONTENT_HEADER.pack(codec.CLASS_BASIC, 0, size) + b"\x00\x00")


ALARM = b"raise the alarm"
JOB = codec.frame(codec.BODY, 1, b"job")
UNDER_ALARM = {
    "a header": ([ALARM, PUBLISHING + header(3) + JOB], ["connection.blocked"]),
    "a header whose method came before": ([PUBLISHING, ALARM, header(3) + JOB], ["connection.blocked"]),
    "a body whose header came before": ([PUBLISHING + header(3), ALARM, JOB], ["basic.ack", "connection.blocked"]),
    "a body that had begun": (
        [PUBLISHING + header(3) + JOB[:8], ALARM, JOB[8:]],
        ["basic.ack", "connection.blocked"],
    ),
    "the last of two bodies": ([PUBLISHING + header(6) + JOB, ALARM, JOB], ["basic.ack", "connection.blocked"]),
    "the header of nothing": ([ALARM, PUBLISHING + header()], ["basic.ack", "connection.blocked"]),
}


@pytest.mark.parametrize("repeated", [0, 2])
@pytest.mark.parametrize("what", UNDER_ALARM)
def test_an_alarm_blocks_a_connection_behind_a_frame_of_content(what: str, repeated: int) -> None:
    client = AmqpClient()
    client.start(capabilities=("connection.blocked",))
    client.tune()
    client.say(0, m.CONNECTION_OPEN, virtual_host="/", capabilities="", insist=False)
    client.open_channel()
    client.say(1, m.CONFIRM_SELECT, nowait=True)
    client.write((PUBLISHING + header(3) + JOB) * repeated)
    client.read()
    writes, told = UNDER_ALARM[what]
    for octets in writes:
        if octets is ALARM:
            client.broker.set_alarm("low on memory")
        else:
            client.write(octets)
    client.say(1, m.BASIC_QOS, prefetch_size=0, prefetch_count=1, global_=False)
    assert client.names() == told


@pytest.mark.parametrize("properties", [b"\x20\x00\x00\x00\x00\x05abc", b"\x80\x00\x05ab", b""])
@pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
def test_properties_that_cannot_be_read_matter_last(properties: bytes, version: str) -> None:
    client = AmqpClient(version=version).open().open_channel()
    client.publish(1, b"job", properties, exchange="nowhere")
    assert client.names() == ["channel.close"]
    client.publish(1, b"job", properties)  # dropped, for the channel is closed
    assert client.read() == []
    client.open_channel(2)
    client.publish(2, b"job", properties, immediate=True)
    [(_, name, fields)] = client.read()
    assert (name, fields["reply_code"]) == ("connection.close", 540)
