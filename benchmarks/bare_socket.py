"""The ceiling: an AMQP 0-9-1 client of precomputed frames on a bare socket, that checks nothing but the counts.

Speaks to a broker as guest with the default vhost. For benchmarks only.
"""

import socket
import struct
from urllib.parse import unquote, urlsplit

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
DELIVER = (60, 60)
ACK = (60, 80)
NACK = (60, 120)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(class_id: int, method_id: int, arguments: bytes = b"", *, channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def short(text: str) -> bytes:
    octets = text.encode()
    return bytes([len(octets)]) + octets


PERSISTENT_JSON = struct.pack(">H", 0x9000) + short("application/json") + b"\x02"


def publish(queue: str, body: bytes, properties: bytes, *, channel: int = 1) -> bytes:
    return (
        method(60, 40, b"\0\0" + short("") + short(queue) + b"\x01", channel=channel)
        + frame(HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties)
        + frame(BODY, channel, body)
    )


class BareSocket:
    """One connection with one open channel."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.wait_for(10, 10)
        plain = f"\0{parts.username}\0{parts.password}".encode()
        arguments = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(plain)) + plain + short("en_US")
        self.socket.sendall(method(10, 11, arguments, channel=0))
        self.wait_for(10, 30)
        vhost = unquote(parts.path[1:]) or "/"
        self.socket.sendall(method(10, 31, struct.pack(">HIH", 2047, 131072, 0), channel=0))
        self.socket.sendall(method(10, 40, short(vhost) + b"\0\0", channel=0))
        self.wait_for(10, 41)
        self.call(method(20, 10, b"\0"), 20, 11)

    def close(self) -> None:
        self.socket.sendall(method(10, 50, struct.pack(">H", 200) + short("bye") + b"\0\0\0\0", channel=0))
        self.socket.close()

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Read once, and return the whole frames so far as (kind, channel, payload)."""
        data = self.buffer + self.socket.recv(262144)
        found, at, size = [], 0, len(data)
        while at + 7 <= size:
            kind, channel, length = struct.unpack_from(">BHI", data, at)
            if at + 8 + length > size:
                break
            found.append((kind, channel, data[at + 7 : at + 7 + length]))
            at += 8 + length
        self.buffer = data[at:]
        return found

    def wait_for(self, class_id: int, method_id: int) -> bytes:
        while True:
            for kind, _, payload in self.frames():
                if kind == METHOD and struct.unpack_from(">HH", payload) == (class_id, method_id):
                    return payload

    def call(self, request: bytes, class_id: int, method_id: int) -> bytes:
        self.socket.sendall(request)
        return self.wait_for(class_id, method_id)

    def declare(self, queue: str, arguments: bytes = b"") -> None:
        table = struct.pack(">I", len(arguments)) + arguments
        self.call(method(50, 10, b"\0\0" + short(queue) + b"\x02" + table), 50, 11)

    def delete(self, queue: str) -> None:
        self.call(method(50, 40, b"\0\0" + short(queue) + b"\0"), 50, 41)

    def open_channel(self, channel: int) -> None:
        self.call(method(20, 10, b"\0", channel=channel), 20, 11)

    def confirm_select(self, channel: int = 1) -> None:
        self.call(method(85, 10, b"\0", channel=channel), 85, 11)

    def publish_confirmed(
        self, queue: str, body: bytes, *, count: int, window: int, properties: bytes = PERSISTENT_JSON
    ) -> None:
        """Publish mandatory messages with up to `window` unconfirmed, and wait for every confirm.

        `properties` are the flags and the property list of the content header.
        """
        one = publish(queue, body, properties)
        sent = confirmed = 0
        open_tags: set[int] = set()
        while confirmed < count:
            room = min(window - (sent - confirmed), count - sent)
            if room > 0:
                open_tags.update(range(sent + 1, sent + room + 1))
                sent += room
                self.socket.sendall(one * room)
            for kind, _, payload in self.frames():
                if kind != METHOD:
                    continue
                name = struct.unpack_from(">HH", payload)
                assert name != NACK, "the broker refused a publish"
                if name == ACK:
                    tag, multiple = struct.unpack_from(">QB", payload, 4)
                    settled = {t for t in open_tags if t <= tag} if multiple else {tag}
                    open_tags -= settled
                    confirmed += len(settled)

    def publish_confirmed_on_channels(
        self, queue: str, body: bytes, *, count: int, channels: int, properties: bytes = PERSISTENT_JSON
    ) -> None:
        """Publish mandatory messages with one unconfirmed on each of the first channels, which are open."""
        one = {channel: publish(queue, body, properties, channel=channel) for channel in range(1, channels + 1)}
        sent, confirmed = channels, 0
        self.socket.sendall(b"".join(one.values()))
        while confirmed < count:
            free = []
            for kind, channel, payload in self.frames():
                if kind != METHOD:
                    continue
                name = struct.unpack_from(">HH", payload)
                assert name != NACK, "the broker refused a publish"
                if name == ACK:
                    free.append(channel)
            confirmed += len(free)
            free = free[: count - sent]
            sent += len(free)
            self.socket.sendall(b"".join(one[channel] for channel in free))

    def consume_and_ack(self, queue: str, *, count: int, prefetch: int) -> None:
        """Consume with a prefetch and ack each message singly."""
        self.call(method(60, 10, struct.pack(">IHB", 0, prefetch, 0)), 60, 11)
        self.socket.sendall(method(60, 20, b"\0\0" + short(queue) + short("bare") + b"\0" + b"\0\0\0\0"))
        taken = 0
        while taken < count:
            acks = []
            for kind, _, payload in self.frames():
                if kind == METHOD and struct.unpack_from(">HH", payload) == DELIVER:
                    at = 5 + payload[4]
                    acks.append(method(60, 80, payload[at : at + 8] + b"\0"))
            if acks:
                taken += len(acks)
                self.socket.sendall(b"".join(acks))

    def republish_and_ack(
        self, queue: str, to: str, body: bytes, *, count: int, prefetch: int, properties: bytes = PERSISTENT_JSON
    ) -> None:
        """Consume, publish a mandatory message to another queue for each, and ack it singly when that is confirmed.

        On one channel, in confirm mode, which must be new: publishes and deliveries are both counted from 1.
        """
        one = publish(to, body, properties)
        self.call(method(60, 10, struct.pack(">IHB", 0, prefetch, 0)), 60, 11)
        self.socket.sendall(method(60, 20, b"\0\0" + short(queue) + short("bare") + b"\0" + b"\0\0\0\0"))
        acked = 0
        open_tags: dict[int, bytes] = {}
        published = 0
        while acked < count:
            out = []
            for kind, _, payload in self.frames():
                if kind != METHOD:
                    continue
                name = struct.unpack_from(">HH", payload)
                if name == DELIVER:
                    at = 5 + payload[4]
                    published += 1
                    open_tags[published] = payload[at : at + 8]
                    out.append(one)
                elif name == ACK:
                    tag, multiple = struct.unpack_from(">QB", payload, 4)
                    settled = [t for t in open_tags if t <= tag] if multiple else [tag]
                    out += [method(60, 80, open_tags.pop(t) + b"\0") for t in settled]
                    acked += len(settled)
            if out:
                self.socket.sendall(b"".join(out))
