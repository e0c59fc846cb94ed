import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pytest_queuey.sources.handshake import HandshakeError, greet

GREETING = (
    b"\x01\x00\x00\x00\x00\x00\x2f"  # a method of 47 bytes, on channel 0
    b"\x00\x0a\x00\x0a\x00\x09"  # connection.start, AMQP 0-9
    b"\x00\x00\x00\x13\x07versionS\x00\x00\x00\x063.13.7"
    b"\x00\x00\x00\x05PLAIN"
    b"\x00\x00\x00\x05en_US"
    b"\xce"
)


@pytest.fixture
def answering() -> Iterator[Callable[[bytes | None], str]]:
    """Opens a port that answers the first bytes it gets: with bytes, or with silence for None; returns its URL."""
    listeners = []
    held = []

    def serve(listener: socket.socket, answer: bytes | None) -> None:
        connection, _ = listener.accept()
        connection.recv(64)
        held.append(connection)
        if answer is not None:
            connection.sendall(answer)
            connection.close()

    def opened(answer: bytes | None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        return f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/%2f"

    yield opened
    for opened_socket in [*listeners, *held]:
        opened_socket.close()


def test_a_port_that_nobody_listens_on_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(HandshakeError, match=rf"connecting to 127\.0\.0\.1:{port} failed: .*refused"):
        greet(f"amqp://127.0.0.1:{port}", within=1)


def test_a_port_that_says_nothing_is_an_error_within_the_time(answering: Callable[[bytes | None], str]) -> None:
    with pytest.raises(HandshakeError, match="accepts connections but does not answer AMQP: timed out"):
        greet(answering(None), within=0.1)


def test_a_port_that_closes_is_told_from_one_that_speaks_something_else(
    answering: Callable[[bytes | None], str],
) -> None:
    with pytest.raises(HandshakeError, match="does not answer AMQP: it closed the connection"):
        greet(answering(b""), within=1)
    with pytest.raises(HandshakeError, match=r"does not answer AMQP: it said b'HTTP/1\.'"):
        greet(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), within=1)


def test_of_several_nodes_the_first_that_answers_is_taken(answering: Callable[[bytes | None], str]) -> None:
    def nodes(*answers: bytes) -> str:
        return ",".join(answering(answer).rpartition("@")[2].removesuffix("/%2f") for answer in answers)

    assert greet(f"amqp://{nodes(b'', b'HTTP', GREETING)}", within=30) == "3.13.7"
    with pytest.raises(HandshakeError, match=r"it closed the connection; 127.* it said b'HTTP'"):
        greet(f"amqp://{nodes(b'', b'HTTP')}", within=30)


def test_another_amqp_method_than_start_is_refused(answering: Callable[[bytes | None], str]) -> None:
    connection_tune = b"\x01\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x1e\x00\x00\x00\x00\x00\x00\x00\x3c\xce"
    with pytest.raises(HandshakeError, match=r"not with connection\.start"):
        greet(answering(connection_tune), within=1)


def test_the_version_comes_from_the_greeting(answering: Callable[[bytes | None], str]) -> None:
    assert greet(answering(GREETING), within=1) == "3.13.7"
