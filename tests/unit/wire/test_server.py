"""The port serves many clients, keeps its memory whatever they do, and moves with time without waiting for anybody."""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from queuey_fake import FakeBroker
from queuey_fake.clock import SystemClock
from queuey_fake.wire import codec, server
from queuey_fake.wire import methods as m
from queuey_fake.wire.channel import CALLS
from queuey_fake.wire.methods import Method
from queuey_fake.wire.server import Server
from tests.unit.wire.amqp_client import CONSUME, DECLARE, PROTOCOL_HEADER, PUBLISH

TIMEOUT_S = 10.0


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


class SocketClient:
    """A client on a socket, that reads only when a test says so."""

    def __init__(self, broker: FakeBroker, *, heartbeat: int = 0, small_buffers: bool = False) -> None:
        host, _, port = broker.url.removeprefix("amqp://guest:guest@").removesuffix("/%2f").partition(":")
        self.socket = socket.socket()
        if small_buffers:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))
        self.received = b""
        self.socket.sendall(PROTOCOL_HEADER)
        answer = {"client_properties": {}, "mechanism": "PLAIN", "response": b"\x00guest\x00guest", "locale": "en_US"}
        self.say(0, m.CONNECTION_START_OK, **answer)
        self.say(0, m.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131_072, heartbeat=heartbeat)
        self.say(0, m.CONNECTION_OPEN, virtual_host="/", capabilities="", insist=False)
        self.say(1, m.CHANNEL_OPEN, out_of_band="")
        self.until("channel.open-ok")

    def say(self, channel: int, method: Method, **fields: Any) -> None:
        self.socket.sendall(codec.method_frame(channel, method, **fields))

    def publish(self, body: bytes = b"", properties: bytes = b"\x00\x00", **fields: Any) -> None:
        self.say(1, m.BASIC_PUBLISH, **(PUBLISH | fields))
        self.socket.sendall(codec.content_frames(1, properties, body, 131_072))

    def declare(self, **fields: Any) -> None:
        self.say(1, m.QUEUE_DECLARE, **(DECLARE | fields))
        self.until("queue.declare-ok")

    def read(self) -> tuple[str, bytes]:
        """Return the name of the next method, or the type of another frame, and its payload."""
        while True:
            if len(self.received) >= 7:
                type_, _, size = codec.FRAME_HEADER.unpack_from(self.received)
                if len(self.received) >= size + 8:
                    payload, self.received = self.received[7 : 7 + size], self.received[size + 8 :]
                    return (codec.method_of(payload).name if type_ == codec.METHOD else f"frame {type_}"), payload
            try:
                octets = self.socket.recv(65_536)
            except ConnectionResetError:
                return "the end", b""
            assert octets, "RabbitMQ resets connections (linger in rabbit's tcp_listen_options)"
            self.received += octets

    def until(self, name: str) -> bytes:
        """Read until this comes, and return its payload."""
        while True:
            told, payload = self.read()
            assert told != "the end" or name == told, f"the connection ended before {name}"
            if told == name:
                return payload


Connect = Callable[..., SocketClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect clients that are closed when the test is over."""
    clients: list[SocketClient] = []

    def connected(broker: FakeBroker, **options: Any) -> SocketClient:
        clients.append(SocketClient(broker, **options))
        return clients[-1]

    yield connected
    for client in clients:
        client.socket.close()


def server_of(broker: FakeBroker) -> Server:
    assert broker.url
    assert broker._server is not None
    return broker._server


def test_the_port_is_on_the_loopback_interface_only(broker: FakeBroker) -> None:
    assert server_of(broker)._listener.getsockname()[0] == "127.0.0.1"


def test_the_broker_that_speaks_is_the_broker_that_is_held(broker: FakeBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"job")
    connection.close()
    view = broker.queue("q")
    assert view is not None
    assert view.ready == 1


def test_what_was_sent_takes_effect_before_time_moves(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(arguments={})
    client.publish(properties=b"\x01\x00\x03100")
    broker.advance(0.099)
    view = broker.queue("q")
    assert view is not None
    assert view.ready == 1
    broker.advance(0.001)
    view = broker.queue("q")
    assert view is not None
    assert view.ready == 0


def test_a_turn_of_another_thread_is_written_to_the_sockets(broker: FakeBroker, connect: Connect) -> None:
    from queuey_fake.model.fields import Field, longstr

    client = connect(broker)
    hold = {
        "x-message-ttl": Field("signedint", 100),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("q"),
    }
    client.declare(queue="hold", arguments=hold)
    client.declare()
    client.say(1, m.BASIC_CONSUME, **CONSUME)
    client.publish(b"job", routing_key="hold")
    broker.advance(0.1)
    client.until("basic.deliver")
    client.until("frame 2")
    assert client.until("frame 3") == b"job"


def test_a_broker_on_real_time_expires_messages_without_being_asked(connect: Connect) -> None:
    from queuey_fake.model.fields import longstr

    with FakeBroker(clock=SystemClock()) as broker:
        client = connect(broker)
        dead = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("q")}
        client.declare(queue="hold", arguments=dead)
        client.declare()
        client.say(1, m.BASIC_CONSUME, **CONSUME)
        client.publish(b"job", properties=b"\x01\x00\x0230", routing_key="hold")
        client.until("basic.deliver")


def test_a_broker_on_real_time_serves_on_while_a_message_has_a_month_to_live(connect: Connect) -> None:
    with FakeBroker(clock=SystemClock()) as broker:
        client = connect(broker)
        client.declare()
        client.publish(b"job", properties=b"\x01\x00\x0a2592000000")
        client.say(0, m.CONNECTION_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
        client.until("connection.close-ok")
        client.socket.close()  # nobody is left, so the thread waits for the message alone
        port = broker._server
        assert port is not None
        port._thread.join(0.2)
        assert port._thread.is_alive()
        connect(broker).declare()


# Clients that are many, slow or hostile


def test_hundreds_of_clients_are_served_at_once(broker: FakeBroker, connect: Connect) -> None:
    clients = [connect(broker) for _ in range(200)]
    clients[0].declare()
    for client in clients:
        client.publish(b"x")
    for client in clients:
        client.say(1, m.TX_SELECT)
    for client in clients:
        client.until("tx.select-ok")
    view = broker.queue("q")
    assert view is not None
    assert view.ready == 200


def test_all_2047_channels_of_a_connection_can_be_opened(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker)
    client.socket.sendall(
        b"".join(codec.method_frame(number, m.CHANNEL_OPEN, out_of_band="") for number in range(2, 2048))
    )
    for _ in range(2, 2048):
        client.until("channel.open-ok")
    client.say(2048, m.CHANNEL_OPEN, out_of_band="")
    assert b"channel_max (2047)" in client.until("connection.close")


def test_a_client_that_does_not_read_costs_a_bounded_buffer_and_nobody_else_waits(
    broker: FakeBroker, connect: Connect
) -> None:
    slow = connect(broker, small_buffers=True)
    slow.declare()
    slow.say(1, m.BASIC_CONSUME, **(CONSUME | {"no_ack": True}))
    slow.until("basic.consume-ok")
    quick = connect(broker)
    for _ in range(300):
        quick.publish(b"x" * 100_000)
    quick.say(1, m.TX_SELECT)
    quick.until("tx.select-ok")
    unsent = [len(client.unsent) for client in server_of(broker)._clients.values()]
    assert 0 < max(unsent) < server.WRITE_ROOM + 200_000
    for _ in range(300):
        slow.until("basic.deliver")


def test_the_rest_follows_as_soon_as_there_is_room_for_it(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_EVERY_S", 3600.0)
    slow, quick = connect(broker, small_buffers=True), connect(broker)
    slow.declare()
    slow.say(1, m.BASIC_CONSUME, **(CONSUME | {"no_ack": True}))
    slow.until("basic.consume-ok")
    quick.say(1, m.CONFIRM_SELECT, nowait=True)
    quick.publish(b"x" * 6_000_000)
    quick.until("basic.ack")
    size = 0
    while size < 6_000_000:
        size += len(slow.until("frame 3"))


def test_a_client_whose_publish_had_begun_is_read_on_when_the_alarm_ends(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_EVERY_S", 3600.0)
    client, other = connect(broker), connect(broker)
    client.say(1, m.CONFIRM_SELECT, nowait=True)
    broker.faults.block()
    client.say(1, m.BASIC_PUBLISH, **PUBLISH)
    broker.advance(0)
    other.declare()  # so the port has had the time to look at the client in another way
    broker.faults.unblock()
    client.socket.sendall(codec.content_frames(1, b"\x00\x00", b"job", 131_072))
    client.until("basic.ack")


def test_a_client_that_does_not_read_is_not_read_either(broker: FakeBroker, connect: Connect) -> None:
    flood = connect(broker, small_buffers=True)
    flood.declare()
    flood.publish(b"x" * 1_000_000)
    get = codec.method_frame(1, m.BASIC_GET, ticket=0, queue="q", no_ack=False)
    nack = codec.method_frame(1, m.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
    flood.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        flood.socket.sendall((get + nack) * 300_000)
    client = next(iter(server_of(broker)._clients.values()))
    assert len(client.connection._input) <= 131_072 + 8
    assert len(client.connection.waiting) < 2 * server.READ_SIZE // len(get + nack)


@pytest.mark.parametrize(
    "octets",
    [b"\x00" * 100, b"GET / HTTP/1.1\r\n\r\n", PROTOCOL_HEADER + b"\xff" * 100, b"AMQP", b""],
    ids=["zeros", "http", "garbage after the header", "half a header", "nothing"],
)
def test_a_client_that_makes_no_sense_harms_nobody(broker: FakeBroker, connect: Connect, octets: bytes) -> None:
    host, port = server_of(broker).host, server_of(broker).port
    with socket.create_connection((host, port), TIMEOUT_S) as hostile:
        hostile.sendall(octets)
        client = connect(broker)
        client.declare()
        view = broker.queue("q")
    assert view is not None


def test_the_end_of_a_connection_follows_the_last_word(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker)
    client.socket.sendall(b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xff")
    assert client.read()[0] == "connection.close"
    assert client.read()[0] == "the end"


def test_a_client_that_vanishes_gives_everything_back(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker)
    client.declare()
    client.publish(b"job")
    client.say(1, m.BASIC_GET, ticket=0, queue="q", no_ack=False)
    client.until("frame 3")
    client.socket.close()
    other = connect(broker)
    other.say(1, m.BASIC_CONSUME, **CONSUME)
    other.until("basic.deliver")


def test_a_fault_of_ours_ends_one_connection_with_internal_error(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setitem(CALLS, m.TX_SELECT, fail)
    unlucky, other = connect(broker), connect(broker)
    unlucky.say(1, m.TX_SELECT)
    assert b"INTERNAL_ERROR" in unlucky.until("connection.close")
    assert unlucky.read()[0] == "the end"
    other.declare()
    assert "a fault" in caplog.text


# Silence


def look_after(broker: FakeBroker, seconds_later: float) -> None:
    serving = server_of(broker)
    broker._engine.run(lambda: serving._look_after_silent_clients(time.monotonic() + seconds_later))


def test_heartbeats_go_out_at_half_the_interval(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker, heartbeat=60)
    look_after(broker, 29.0)
    client.say(1, m.TX_SELECT)
    assert client.read()[0] == "tx.select-ok"
    look_after(broker, 31.0)
    assert client.read()[0] == "frame 8"


def test_a_silent_client_is_dropped_on_real_time_only(connect: Connect) -> None:
    for clock, told in ((SystemClock(), "the end"), (None, "frame 8")):
        with FakeBroker(clock=clock) as broker:
            client = connect(broker, heartbeat=60)
            look_after(broker, 179.0)
            assert client.read()[0] == "frame 8"
            look_after(broker, 181.0)
            assert client.read()[0] == told


@pytest.mark.parametrize(("heartbeat", "patience_s"), [(0, 30.0), (60, 30.0), (20, 20.0)])
def test_the_socket_of_a_closed_connection_is_dropped_on_real_time(
    connect: Connect, heartbeat: int, patience_s: float
) -> None:
    with FakeBroker(clock=SystemClock()) as broker:
        client = connect(broker, heartbeat=heartbeat)
        client.say(0, m.CONNECTION_CLOSE, reply_code=200, reply_text="bye", class_id=0, method_id=0)
        assert client.read()[0] == "connection.close-ok"
        look_after(broker, 0.0)
        look_after(broker, patience_s / 2)
        assert len(server_of(broker)._clients) == 1
        look_after(broker, patience_s + 1)
        assert len(server_of(broker)._clients) == 0


def test_a_client_that_an_alarm_keeps_from_being_read_is_not_taken_for_silent(connect: Connect) -> None:
    with FakeBroker(clock=SystemClock()) as broker:
        client = connect(broker, heartbeat=60)
        client.declare()
        broker.faults.block()
        client.publish(b"job")
        server_of(broker).take_in()
        look_after(broker, 181.0)
        assert client.read()[0] == "frame 8"
        broker.faults.unblock()
        client.say(1, m.TX_SELECT)
        assert client.read()[0] == "tx.select-ok"


def test_a_client_that_never_finishes_the_handshake_is_dropped(broker: FakeBroker, connect: Connect) -> None:
    serving = server_of(broker)
    with socket.create_connection((serving.host, serving.port), TIMEOUT_S) as mute:
        connect(broker)  # when it is served, the other is accepted
        look_after(broker, 9.0)
        assert len(serving._clients) == 2
        look_after(broker, 11.0)
        with pytest.raises(ConnectionResetError):
            mute.recv(1)


def test_the_rest_of_a_frame_too_large_is_read_so_that_its_client_can_read_why(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DISTRUST_S", 3600.0)
    client = connect(broker)
    client.socket.sendall(codec.FRAME_HEADER.pack(2, 1, 200_000))
    client.until("connection.close")
    connect(broker)  # by when the port would have ended the connection
    for _ in range(4):
        client.socket.sendall(b"x" * 50_000)
    client.say(0, m.CONNECTION_CLOSE_OK)


def test_a_client_that_is_not_trusted_sees_the_end_three_seconds_later_on_real_time(connect: Connect) -> None:
    with FakeBroker(clock=SystemClock()) as broker:
        serving = server_of(broker)
        with socket.create_connection((serving.host, serving.port), TIMEOUT_S) as wrong:
            wrong.sendall(PROTOCOL_HEADER + codec.frame(codec.HEARTBEAT, 1, b""))
            assert wrong.recv(65_536).startswith(b"\x01\x00\x00")
            connect(broker)
            look_after(broker, 2.5)
            assert len(serving._clients) == 2
            look_after(broker, 3.5)
            with pytest.raises(ConnectionResetError):
                wrong.recv(1)


# The end


def test_clients_in_the_handshake_are_dropped_with_all_others(broker: FakeBroker, connect: Connect) -> None:
    serving = server_of(broker)
    with socket.create_connection((serving.host, serving.port), TIMEOUT_S) as early:
        early.sendall(PROTOCOL_HEADER)
        assert early.recv(65_536)
        client = connect(broker)
        broker.faults.drop_connections()
        assert client.read()[0] == "the end"
        with pytest.raises(ConnectionResetError):
            early.recv(1)
    connect(broker).declare()


def test_a_closed_broker_closes_its_port_and_its_clients(connect: Connect) -> None:
    broker = FakeBroker()
    client = connect(broker)
    serving = server_of(broker)
    broker.close()
    broker.close()
    assert client.read()[0] == "the end"
    assert not serving._thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((serving.host, serving.port), TIMEOUT_S)


def test_a_closed_broker_opens_no_port() -> None:
    broker = FakeBroker()
    broker.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = broker.url


def test_a_client_that_is_gone_before_it_is_served_harms_nobody(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, works = [OSError(errno.EINVAL, "what macOS says of a socket whose peer is gone")], socket.socket.setsockopt

    def set_option(self: socket.socket, *option: Any) -> None:
        if option[1] == socket.TCP_NODELAY and failing:
            raise failing.pop()
        works(self, *option)

    monkeypatch.setattr(socket.socket, "setsockopt", set_option)
    with socket.create_connection(("127.0.0.1", server_of(broker).port), TIMEOUT_S) as gone:
        assert gone.recv(1) == b""
    connect(broker).declare()


def test_dropped_clients_may_come_again(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker)
    server_of(broker).drop_clients()
    assert client.read()[0] == "the end"
    connect(broker).declare()
