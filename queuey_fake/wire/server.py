"""The AMQP port: the only sockets of the fake.

Owns the listening socket, the clients' sockets, and the thread that waits for them. Knows no frame. All of its state is
touched under the driver's lock only; that thread alone waits, and it waits without the lock.

What bounds it. Each socket is read by at most `READ_SIZE` at a time. Of what a connection has to say, octets are made
only up to `WRITE_ROOM`, the rest waits as the model's own events; while anything waits, nothing is read from that
client. A client that says nothing is dropped when the handshake takes too long, or when heartbeats stay away.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from queuey_fake import real_time
from queuey_fake.watching import watcher
from queuey_fake.wire import codec
from queuey_fake.wire.connection import DEFAULT_USERS, ServerConnection

if TYPE_CHECKING:
    from queuey_fake.model.broker import Broker
    from queuey_fake.model.connection import Connection
    from queuey_fake.traffic import Traffic

_log = logging.getLogger(__name__)

READ_SIZE = 65_536  # what malloc has at hand: larger buffers are mapped and unmapped for each read
READS_AT_ONCE = 1024  # before time moves: what a client sent is read so often at most, so that a flood ends
WRITE_ROOM = 262_144
BACKLOG = 1024
HANDSHAKE_TIMEOUT_S = 10.0  # rabbit.handshake_timeout
LOOK_EVERY_S = 0.5  # after clients that say nothing
DISTRUST_S = 3.0  # rabbit_reader: SILENT_CLOSE_DELAY
CLOSING_TIMEOUT_S = 30.0  # rabbit_reader's
CLOSE_TIMEOUT_S = 5.0
LONGEST_WAIT_S = 3600.0  # a poll takes 31 bits of milliseconds, and a message may have 32
MS_PER_SECOND = 1000
MAX_LATE = 64  # reads of a client that may be on their way at a time, when a fault makes them late
_NOTHING = memoryview(b"")
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Clock(Protocol):
    """The time that the model lives by."""

    @property
    def is_virtual(self) -> bool:
        """Whether somebody moves it; if not, it moves by itself."""

    def now_ms(self) -> int:
        """Return the present."""


class Driver(Protocol):
    """Who owns the model, its lock and its time."""

    model: Broker
    traffic: Traffic

    @property
    def clock(self) -> Clock:
        """Return the model's clock."""

    def run(self, step: Callable[[], object]) -> None:
        """Run a step under the lock, with the model caught up to now, and hand on what the model says after it."""

    def add(self, front_end: Server) -> None:
        """Call the front end's `take_output` and `end_of_turn` in each turn from now on."""

    def remove(self, front_end: Server) -> None:
        """Call it no more."""

    def own(self, connection: Connection, front_end: Server) -> None:
        """Hand what the model says on the connection to the front end."""

    def disown(self, connection: Connection) -> None:
        """Drop what the model still says on the connection."""

    def next_due_ms(self) -> int | None:
        """Return the next instant at which something is due, None where nothing is."""


class Client:
    """One client's socket and the connection behind it."""

    def __init__(self, sock: socket.socket, connection: ServerConnection, traffic: Traffic, now_s: float) -> None:
        self.socket = sock
        self.connection = connection
        self.to_broker = traffic.lane()
        self.to_client = traffic.lane()
        self.unsent = _NOTHING
        self.opened_s = now_s
        self.received_s = now_s
        self.sent_s = now_s
        self.closed_s: float | None = None  # when its connection was first seen closed
        self.ends_s: float | None = None  # when it is closed at the latest, once nothing more is to be said
        self.watched = 0  # what the server's thread waits for: its watcher's `read`, `write` or both


class Server:
    """Serves a driver's model on a port of 127.0.0.1, or of another interface where that is asked for."""

    def __init__(
        self,
        driver: Driver,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] = DEFAULT_USERS,
        listener: socket.socket | None = None,
    ) -> None:
        """Open the port; 0 takes a free one. Raises OSError where it cannot be had.

        A `listener` that is open already is served on, and closed in the end.
        """
        self._driver = driver
        self._traffic = driver.traffic
        self._users = users
        self._listener = listener or socket.create_server((host, port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self._clients: dict[int, Client] = {}
        self._by_model: dict[Connection, Client] = {}
        self._talking: dict[Client, None] = {}
        self._unwatched: dict[Client, None] = {}  # whose sockets the thread must look at in another way from now on
        self._watcher = watcher()
        self._read_event, self._write_event = self._watcher.read, self._watcher.write
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        for sock in (self._listener, self._wake_read):
            self._watcher.watch(sock.fileno(), before=0, wanted=self._read_event)
        self._is_closing = False
        self._is_listening = True
        self._was_hung = False
        self._cuts_seen = driver.model.cuts
        self._reads_again: dict[Client, None] = {}  # what they sent before an alarm ended is to be read
        self._ready: Iterable[tuple[int, int]] = ()
        self._now_s = real_time.monotonic_s()  # as of the thread's last turn
        self._looks_again_s = 0.0
        self._wakes_at_ms: int | None = None
        self._thread_ident = 0
        driver.add(self)
        self._thread = threading.Thread(target=self._serve, name="queuey_fake AMQP port", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the port, for the first user on the default virtual host."""
        user, password = next(iter(self._users.items()))
        return f"amqp://{user}:{password}@{self.host}:{self.port}/%2f"

    def threads_with_deliveries(self) -> Iterator[threading.Thread]:
        """Yield none: whether a client has a thread that is at work nobody knows."""
        return iter(())

    def mailboxes_to_empty(self) -> Iterator[Any]:
        """Yield none, as above."""
        return iter(())

    def take_in(self) -> None:
        """Let what clients have already sent take effect: read until nothing is there; wait for nobody."""
        self._driver.run(self._read_everything)

    def same_listener(self) -> socket.socket:
        """Return another descriptor of the listening socket, by which the port stays open when this is closed."""
        return self._listener.dup()

    def drop_clients(self) -> None:
        """End every client's socket without a word."""
        self._driver.run(self._end_all)

    def close(self) -> None:
        """Close the port and every client's socket. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        self._thread.join(CLOSE_TIMEOUT_S)
        self.drop_clients()
        self._driver.remove(self)
        self._watcher.close()
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()

    # ------------------------------------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        self._thread_ident = threading.get_ident()
        while not self._is_closing:
            self._ready = self._watcher.wait(self._patience_s())
            if self._is_closing:
                return
            self._driver.run(self._attend)

    def _patience_s(self) -> float | None:
        """Return how long to wait for sockets: until something is due on the wire, or in a model on real time."""
        patience_s = LOOK_EVERY_S if self._clients or not self._is_listening else None
        if self._driver.clock.is_virtual:
            return patience_s
        self._wakes_at_ms = self._driver.next_due_ms()
        if self._wakes_at_ms is None:
            return patience_s
        due_s = min(max(0, self._wakes_at_ms - self._driver.clock.now_ms()) / MS_PER_SECOND, LONGEST_WAIT_S)
        return due_s if patience_s is None else min(due_s, patience_s)

    def _attend(self) -> None:
        """Do what the sockets that are ready want, and what is due. Under the lock."""
        self._now_s = real_time.monotonic_s()
        for fileno, can in self._ready:
            client = self._clients.get(fileno)
            if client is not None:
                if can & ~self._read_event:
                    self._send(client)
                if can & ~self._write_event:
                    self._read(client)
            elif fileno == self._listener.fileno():
                self._accept()
            elif fileno == self._wake_read.fileno():
                self._wake_read.recv(4096)
        if self._now_s >= self._looks_again_s:
            self._looks_again_s = self._now_s + LOOK_EVERY_S
            self._look_after_silent_clients(self._now_s)
            self._listen_again()

    def _wake(self) -> None:
        # Where the socket is full, so many wakes are waiting that one more says nothing.
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\x00")

    def _watch_anew(self) -> None:
        for client in self._unwatched:
            self._watch(client)
        self._unwatched.clear()

    def _watch(self, client: Client) -> None:
        """Wait for what the client's socket can do next: be written where octets are left, else be read."""
        wanted = self._wanted(client)
        if wanted != client.watched and (fileno := client.socket.fileno()) >= 0:
            self._watcher.watch(fileno, before=client.watched, wanted=wanted)
            client.watched = wanted

    def _wanted(self, client: Client) -> int:
        connection = client.connection
        if not self._traffic.is_calm and (self._traffic.is_hung or len(client.to_broker) > MAX_LATE):
            return 0
        if client.unsent or connection.waiting:
            return self._write_event
        return 0 if (model := connection.model) is not None and model.is_blocked else self._read_event

    # ------------------------------------------------------------------------------------------------ sockets

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._listen_again_later(error)
                return  # else the one who was there is gone already
            if not _is_set_up(sock) or self._traffic.refuses_connections:
                sock.close()
                continue
            connection = self._new_connection(sock.fileno())
            client = Client(sock, connection, self._traffic, real_time.monotonic_s())
            self._clients[sock.fileno()] = client
            self._unwatched[client] = None

    def _listen_again_later(self, reason: OSError) -> None:
        """Let new clients wait in the kernel until a socket may be free again."""
        if self._is_listening:
            _log.warning("the AMQP port %s takes no more clients for the time being: %s", self.port, reason)
            self._watcher.watch(self._listener.fileno(), before=self._read_event, wanted=0)
            self._is_listening = False

    def _listen_again(self) -> None:
        if not self._is_listening:
            self._watcher.watch(self._listener.fileno(), before=0, wanted=self._read_event)
            self._is_listening = True

    def _new_connection(self, fileno: int) -> ServerConnection:
        def opened(model: Connection) -> None:
            self._by_model[model] = self._clients[fileno]
            self._driver.own(model, self)

        return ServerConnection(self._driver.model, users=self._users, on_open=opened)

    def _read(self, client: Client) -> bool:
        """Read once; return whether there may be more."""
        if self._wanted(client) != self._read_event:
            return False
        try:
            octets = client.socket.recv(READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            octets = b""
        if not octets:
            self._end(client)
            return False
        client.received_s = self._now_s
        if self._traffic.is_calm:
            self._take(client, octets)
            self._send(client)  # before the turn goes on: there may be a client waiting for it
        else:
            client.to_broker.put(partial(self._receive, client, octets))
        return True

    def _receive(self, client: Client, octets: bytes) -> None:
        self._take(client, octets)
        self._talking[client] = None

    def _take(self, client: Client, octets: bytes) -> None:
        try:
            client.connection.receive(octets)
        except Exception:  # noqa: BLE001  the boundary between one client and all others; it is logged
            self._fail(client)

    def _fail(self, client: Client) -> None:
        """Let a fault of ours end this client's connection and nobody else's, as a crash does in RabbitMQ."""
        _log.exception("serving the client at %s failed; its connection is closed", client.socket)
        client.connection.fail()

    def _read_everything(self) -> None:
        self._accept()
        for client in list(self._clients.values()):
            for _ in range(READS_AT_ONCE):
                _acknowledge(client.socket)
                if not self._read(client):
                    break
                self._send(client)

    def _send(self, client: Client) -> None:
        """Send what there is, as far as the socket takes it."""
        connection = client.connection
        traffic = self._traffic
        if not traffic.is_calm:
            self._send_later(client)
        while (client.unsent or connection.waiting) and traffic.hung_since_ms is None:
            octets: bytes | memoryview = client.unsent
            if not octets:
                try:
                    octets = connection.take_output(WRITE_ROOM)
                except Exception:  # noqa: BLE001  as where its words are read
                    self._fail(client)
            client.sent_s = self._now_s
            try:
                sent = client.socket.send(octets)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._end(client)
                return
            client.unsent = memoryview(octets)[sent:] if sent < len(octets) else _NOTHING
            if not sent:
                break
        if (connection.is_finished or connection.ends_late) and not (client.unsent or client.to_client):
            self._finish(client)
        if self._wanted(client) != client.watched:
            self._unwatched[client] = None

    def _send_later(self, client: Client) -> None:
        """Put what there is on its way, unless nothing moves at all: then it waits where it is."""
        while client.connection.waiting and not self._traffic.is_hung:
            client.to_client.put(partial(self._arrived, client, client.connection.take_output(WRITE_ROOM)))

    def _arrived(self, client: Client, octets: bytes) -> None:
        client.unsent = memoryview(bytes(client.unsent) + octets)
        self._talking[client] = None

    def _finish(self, client: Client) -> None:
        """End the connection, for everything is said; where RabbitMQ waits before it does, not in virtual time."""
        connection = client.connection
        if not connection.ends_late:
            self._end(client)
        elif self._driver.clock.is_virtual and not connection.is_amid_frame:
            if connection.is_finished:
                self._end(client)
        elif client.ends_s is None:
            client.ends_s = self._now_s + DISTRUST_S

    def _end_all(self) -> None:
        for client in list(self._clients.values()):
            self._end(client)

    def _end(self, client: Client) -> None:
        if self._clients.pop(client.socket.fileno(), None) is None:
            return
        if client.watched:
            self._watcher.watch(client.socket.fileno(), before=client.watched, wanted=0)
        client.socket.close()
        client.to_client.clear()
        client.to_broker.put(client.connection.lose)  # behind what it sent before
        self._reads_again.pop(client, None)
        self._talking.pop(client, None)
        self._unwatched.pop(client, None)
        model = client.connection.model
        if model is not None:
            self._by_model.pop(model, None)
            self._driver.disown(model)

    def _look_after_silent_clients(self, now_s: float) -> None:
        """Send heartbeats, and drop clients that say nothing for too long; in the wire's time, which is real."""
        if self._traffic.is_hung:
            return
        for client in list(self._clients.values()):
            heartbeat_s = client.connection.heartbeat_s
            if client.connection.is_blocked:  # what it sends is not read (rabbit_reader:maybe_block pauses the monitor)
                client.received_s = now_s
            is_late = client.connection.model is None and now_s - client.opened_s > HANDSHAKE_TIMEOUT_S
            # Nobody is timed out in virtual time, where a test may stand still for as long as it likes.
            is_mute = (
                heartbeat_s > 0
                and not self._driver.clock.is_virtual
                and now_s > _mute_at_s(client, heartbeat_s)
                and not client.unsent
            )
            if (
                is_late
                or is_mute
                or self._lingers(client, now_s)
                or (client.ends_s is not None and now_s > client.ends_s)
            ):
                self._end(client)
            elif heartbeat_s and now_s - client.sent_s > heartbeat_s / 2 - LOOK_EVERY_S and client.ends_s is None:
                client.connection.say(codec.HEARTBEAT_FRAME)
                self._talking[client] = None

    def _lingers(self, client: Client, now_s: float) -> bool:
        """Return whether a client has kept the socket of a closed connection for too long, heartbeats or none.

        It has as long as heartbeats may take, at most 30 s (rabbit_reader:close_connection).
        """
        if not client.connection.is_closed or self._driver.clock.is_virtual:
            return False
        if client.closed_s is None:
            client.closed_s = now_s
        return now_s - client.closed_s > min(client.connection.heartbeat_s or CLOSING_TIMEOUT_S, CLOSING_TIMEOUT_S)

    # ------------------------------------------------------------------------------------------------ turns

    def take_output(self, connection: Connection) -> None:
        """Take what the model has to say on a connection. Under the lock."""
        client = self._by_model.get(connection)
        if client is None:
            connection.outbox.clear()
            return
        if client.connection.waiting:
            self._talking[client] = None
        elif not client.watched:  # an alarm that kept it from being read may be over
            self._unwatched[client] = None
        if client.connection.has_unread and not client.connection.is_blocked:
            self._reads_again[client] = None

    def drop(self, connection: Connection) -> None:
        """End a client's socket without a word, behind what was said before. Under the lock."""
        client = self._by_model.get(connection)
        if client is not None:
            client.to_broker.clear()
            self._send(client)
            self._end(client)

    def end_of_turn(self) -> None:
        """Send what the turn made the model say, and read what an alarm kept from being read. Under the lock."""
        if (self._was_hung or not self._traffic.is_calm) and self._was_hung is not self._traffic.is_hung:
            self._was_hung = self._traffic.is_hung
            everyone = dict.fromkeys(self._clients.values())
            self._unwatched.update(everyone)
            self._talking.update(everyone)
        if self._cuts_seen != self._driver.model.cuts:
            self._cuts_seen = self._driver.model.cuts
            for client in [client for client in self._clients.values() if client.connection.model is None]:
                self._end(client)
        while self._reads_again:
            client, _ = self._reads_again.popitem()
            self._receive(client, b"")
        while self._talking:
            client, _ = self._talking.popitem()
            self._send(client)
        if threading.get_ident() == self._thread_ident:
            if self._unwatched:
                self._watch_anew()
        elif self._unwatched or self._is_due_earlier():
            self._wake()

    def _is_due_earlier(self) -> bool:
        """Return whether the model, living by itself, has something due before the thread would look."""
        if self._driver.clock.is_virtual:
            return False
        due_ms = self._driver.model.next_due_ms()
        if (arrives_in_ms := self._traffic.next_due_in_ms()) is not None:
            arrives_ms = self._driver.clock.now_ms() + arrives_in_ms
            due_ms = arrives_ms if due_ms is None else min(due_ms, arrives_ms)
        return due_ms is not None and (self._wakes_at_ms is None or due_ms < self._wakes_at_ms)

    def next_deadline_ms(self) -> int | None:
        """Return None: nothing of the wire is due in the model's time."""
        return None

    def on_time(self) -> None:
        """Do nothing: nothing of the wire is due in the model's time."""


def _mute_at_s(client: Client, heartbeat_s: int) -> float:
    """Return when the client counts as gone if it says nothing more.

    RabbitMQ looks once an interval, and goes when it finds nothing new for the second time (rabbit_heartbeat).
    """
    looked = (client.received_s - client.opened_s) // heartbeat_s + 1
    return client.opened_s + (looked + 2) * heartbeat_s


def _is_set_up(sock: socket.socket) -> bool:
    """Make a client's socket one as RabbitMQ has them; tell whether the client is still there."""
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A socket that is closed resets its connection: rabbit's tcp_listen_options have {linger, {true, 0}}.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:  # macOS says so where the peer is gone already
        return False
    return True


def _acknowledge(sock: socket.socket) -> None:
    """Have the kernel acknowledge what it received.

    Without TCP_NODELAY a client's kernel keeps a second small segment back until the first one is acknowledged, which
    takes up to 40 ms otherwise.
    """
    if hasattr(socket, "TCP_QUICKACK"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
