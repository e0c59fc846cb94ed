"""A client that says exactly what a test tells it to, frame by frame, to a connection without a socket."""

from typing import Any

from queuey_fake.model.broker import Broker
from queuey_fake.model.fields import boolean, table
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from queuey_fake.wire.connection import ServerConnection
from queuey_fake.wire.methods import Method

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
PUBLISH = {"ticket": 0, "exchange": "", "routing_key": "q", "mandatory": False, "immediate": False}
DECLARE = {
    "ticket": 0,
    "queue": "q",
    "passive": False,
    "durable": True,
    "exclusive": False,
    "auto_delete": False,
    "nowait": False,
    "arguments": {},
}
CONSUME = {
    "ticket": 0,
    "queue": "q",
    "consumer_tag": "t",
    "no_local": False,
    "no_ack": False,
    "exclusive": False,
    "nowait": False,
    "arguments": {},
}
CAPABILITIES = ("authentication_failure_close", "consumer_cancel_notify", "basic.nack")
ROOM = 1 << 30


class AmqpClient:
    """One client of a broker; `read` returns what it was told since it last read."""

    def __init__(self, broker: Broker | None = None, version: str = "4.3") -> None:
        self.broker = broker or Broker(version=version)
        self.server = ServerConnection(self.broker)

    def write(self, octets: bytes) -> None:
        self.server.receive(octets)

    def say(self, channel: int, method: Method, **fields: Any) -> None:
        self.write(codec.method_frame(channel, method, **fields))

    def content(self, channel: int, body: bytes = b"", properties: bytes = b"\x00\x00") -> None:
        self.write(codec.content_frames(channel, properties, body, 131_072))

    def publish(self, channel: int, body: bytes = b"", properties: bytes = b"\x00\x00", **fields: Any) -> None:
        self.say(channel, m.BASIC_PUBLISH, **(PUBLISH | fields))
        self.content(channel, body, properties)

    def octets(self) -> bytes:
        return self.server.take_output(ROOM)

    def read(self) -> list[tuple[int, str, Any]]:
        """Return (channel, name, fields) of methods, (channel, "header" or "body", payload) of contents."""
        octets = self.octets()
        told = []
        at = 0
        while at < len(octets):
            type_, channel, size = codec.FRAME_HEADER.unpack_from(octets, at)
            payload = octets[at + 7 : at + 7 + size]
            assert octets[at + 7 + size] == codec.FRAME_END
            at += size + codec.FRAME_OVERHEAD
            if type_ == codec.METHOD:
                method = codec.method_of(payload)
                told.append((channel, method.name, codec.decode_fields(method, payload)))
            else:
                told.append((channel, {2: "header", 3: "body", 8: "heartbeat"}[type_], payload))
        return told

    def names(self) -> list[str]:
        return [name for _, name, _ in self.read()]

    def start(self, *, capabilities: tuple[str, ...] = CAPABILITIES, **fields: Any) -> None:
        self.write(PROTOCOL_HEADER)
        properties = {"capabilities": table({name: boolean(True) for name in capabilities})}
        answer = {
            "client_properties": properties,
            "mechanism": "PLAIN",
            "response": b"\x00guest\x00guest",
            "locale": "en_US",
        }
        self.say(0, m.CONNECTION_START_OK, **(answer | fields))

    def tune(self, **fields: Any) -> None:
        self.say(0, m.CONNECTION_TUNE_OK, **({"channel_max": 2047, "frame_max": 131_072, "heartbeat": 0} | fields))

    def open(self, vhost: str = "/", **tuning: Any) -> "AmqpClient":
        self.start()
        self.tune(**tuning)
        self.say(0, m.CONNECTION_OPEN, virtual_host=vhost, capabilities="", insist=False)
        self.read()
        return self

    def open_channel(self, number: int = 1) -> "AmqpClient":
        self.say(number, m.CHANNEL_OPEN, out_of_band="")
        self.read()
        return self
