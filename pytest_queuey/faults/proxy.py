"""Owns the sockets between a test's clients and its real broker: one thread that passes on what both sides say.

Silence, delay and refused connections are made here; what stands in the words is `conversation`'s.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from pytest_queuey.faults.conversation import Conversation, Script
from queuey_fake.real_time import monotonic_s
from queuey_fake.watching import watch

T = TypeVar("T")

READ_SIZE: Final = 65_536
UNSENT_LIMIT: Final = 1 << 20
"""Octets that may wait for a side that does not read, before the other is read no more."""
DONE_WITHIN: Final = 10.0
CONNECTED_WITHIN: Final = 5.0


class _Leg:
    """One of the two sockets of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.setblocking(False)
        # Without it a small frame waits for the acknowledgement of the one before: confirms fell to 32 a second.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.late: deque[tuple[float, bytes]] = deque()
        """What was read and is to be passed on at its time; nothing (b"") for the end."""
        self.has_ended = False
        self.watched = 0


class _Pair:
    """A client's socket, the broker's socket, and what they say."""

    def __init__(self, client: _Leg, broker: _Leg, conversation: Conversation) -> None:
        self.client = client
        self.broker = broker
        self.conversation = conversation

    def legs(self) -> tuple[tuple[_Leg, bytearray, bool], ...]:
        """Return each side with what is to be sent to it, and whether it is to be read."""
        said = self.conversation
        return (
            (self.client, said.for_client, said.reads_client and len(said.for_broker) < UNSENT_LIMIT),
            (self.broker, said.for_broker, len(said.for_client) < UNSENT_LIMIT),
        )


class Proxy:
    """A TCP proxy on 127.0.0.1 in front of one broker. State is touched on its thread alone; `do` gets there."""

    def __init__(self, host: str, port: int) -> None:
        self.script = Script()
        self.is_hung = False
        self.delay = 0.0
        self.refused_until = 0.0
        self._address = (host, port)
        self._pairs: set[_Pair] = set()
        self._cut_is_due = False
        self._is_closing = False
        self._steps: deque[Callable[[], None]] = deque()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="queuey faults proxy", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------- any thread

    def do(self, doing: str, step: Callable[[], T]) -> T:
        """Do something on the proxy's thread; return when it is done. Raises TimeoutError that says what was not."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(step())
            except BaseException as error:  # noqa: BLE001 -- whoever asked gets it
                future.set_exception(error)

        self._steps.append(run)
        with contextlib.suppress(OSError):  # where it is full, so many wakes wait that one more says nothing; or closed
            self._wake_write.send(b"\x00")
        try:
            return future.result(DONE_WITHIN if self._thread.is_alive() else 0)
        except TimeoutError as error:
            host, port = self._address
            why = f"is busy and did not get to it within {DONE_WITHIN:g} s" if self._thread.is_alive() else "has ended"
            raise TimeoutError(f"{doing} at the broker {host}:{port}: the proxy before it {why}") from error

    def close(self) -> None:
        """Cut every connection and end the thread. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\x00")
        self._thread.join(DONE_WITHIN)
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()
        self._selector.close()

    # ------------------------------------------------------------------------------------------- on its thread

    def cut(self) -> None:
        """Cut every connection, after what is to be said already has been sent."""
        self.script.is_cutting = False
        for pair in list(self._pairs):
            self._flush(pair)
            self._end(pair)

    def conversations(self) -> list[Conversation]:
        """Return what is being said."""
        return [pair.conversation for pair in self._pairs]

    def _serve(self) -> None:
        while not self._is_closing:
            ready = self._selector.select(self._patience())
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)  # before the steps: a wake that comes later is for steps that come later
            while self._steps:
                self._steps.popleft()()
            self._attend({key.data for key, _ in ready})
        for pair in list(self._pairs):
            self._end(pair)

    def _attend(self, ready: set[_Pair | None]) -> None:
        """Read from those who have said something, and pass on what is due."""
        if None in ready:
            self._accept()
        for pair in list(self._pairs):
            if pair in ready:
                self._read(pair)
            self._pass_on(pair)
        if self._cut_is_due:
            self._cut_is_due = False
            self.cut()
        for pair in list(self._pairs):
            self._watch(pair)

    def _patience(self) -> float | None:
        """Return how long nothing is due."""
        if self.is_hung:
            return None
        due = [leg.late[0][0] for pair in self._pairs for leg in (pair.client, pair.broker) if leg.late]
        return max(0.0, min(due) - monotonic_s()) if due else None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # whoever was there is gone
            client, _ = self._listener.accept()
            if monotonic_s() < self.refused_until:
                _reset(client)
                return
            try:
                broker = socket.create_connection(self._address, CONNECTED_WITHIN)
            except OSError:
                _reset(client)
                return
            self._pairs.add(_Pair(_Leg(client), _Leg(broker), Conversation(self.script, self._want_cut)))

    def _want_cut(self) -> None:
        self._cut_is_due = True

    def _read(self, pair: _Pair) -> None:
        for leg, _, is_wanted in pair.legs():
            if not is_wanted or leg.has_ended or self.is_hung:
                continue
            try:
                octets = leg.socket.recv(READ_SIZE)
            except BlockingIOError:
                continue
            except OSError:
                octets = b""
            leg.has_ended = not octets
            leg.late.append((monotonic_s() + self.delay, octets))

    def _pass_on(self, pair: _Pair) -> None:
        """Hand over what is due, and send what there is."""
        if self.is_hung:
            return
        for leg, hear in (
            (pair.client, pair.conversation.client_says),
            (pair.broker, pair.conversation.broker_says),
        ):
            while leg.late and leg.late[0][0] <= monotonic_s() and not self._cut_is_due:
                _, octets = leg.late.popleft()
                if not octets:
                    self._flush(pair)
                    self._end(pair)
                    return
                hear(octets)
        self._flush(pair)

    def _flush(self, pair: _Pair) -> None:
        for leg, unsent, _ in pair.legs():
            with contextlib.suppress(OSError):  # its end is read, or it takes no more now
                while unsent:
                    del unsent[: leg.socket.send(unsent)]

    def _watch(self, pair: _Pair) -> None:
        for leg, unsent, is_wanted in pair.legs():
            wanted = 0
            if not self.is_hung:
                reads = is_wanted and not leg.has_ended
                wanted = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if unsent else 0)
            watch(self._selector, leg.socket, before=leg.watched, wanted=wanted, data=pair)
            leg.watched = wanted

    def _end(self, pair: _Pair) -> None:
        self._pairs.discard(pair)
        for leg, _, _ in pair.legs():
            if leg.watched:
                self._selector.unregister(leg.socket)
            leg.socket.close()


def _reset(sock: socket.socket) -> None:
    """End a connection by a reset, as an address does at which nobody listens."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
