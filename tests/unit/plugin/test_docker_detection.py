import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_queuey.sources.docker import find_docker
from pytest_queuey.sources.server import SourceError


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[bytes], str]]:
    """Opens a socket file that answers one request with what it is given; returns its DOCKER_HOST."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "d"))
    listener.listen()

    def serve(answer: bytes) -> None:
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(answer)
        connection.close()

    def opened(answer: bytes) -> str:
        threading.Thread(target=serve, args=(answer,), daemon=True).start()
        return f"unix://{tmp_path}/d"

    yield opened
    listener.close()


def test_no_socket_is_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere")
    with pytest.raises(SourceError, match=f"no Docker answers at unix://{tmp_path}/nowhere: .*No such file"):
        find_docker()


def test_a_port_that_nobody_listens_on_is_no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SourceError, match=f"no Docker answers at {host}: .*refused"):
        find_docker()


def test_a_daemon_that_answers_the_ping_is_found(
    daemon: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = daemon(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
    monkeypatch.setenv("DOCKER_HOST", host)
    assert find_docker() == host


def test_what_answers_in_another_way_is_no_docker(
    daemon: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
    with pytest.raises(SourceError, match="is no Docker: /_ping gave HTTP status 404"):
        find_docker()
    monkeypatch.setenv("DOCKER_HOST", daemon(b"220 mail ready\r\n"))
    with pytest.raises(SourceError, match="no Docker answers"):
        find_docker()
