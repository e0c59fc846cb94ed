"""Every way of waiting for sockets tells the same of them."""

import select
import socket
from collections.abc import Iterator

import pytest

from queuey_fake.watching import EpollWatcher, SelectorWatcher, Watcher, watcher

WATCHERS = [SelectorWatcher, *([EpollWatcher] if hasattr(select, "epoll") else [])]


@pytest.fixture(params=WATCHERS)
def watching(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    watching = request.param()
    yield watching
    watching.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    yield near, far
    near.close()
    far.close()


def is_to_be_read(watching: Watcher) -> bool:
    return any(can & ~watching.write for _, can in watching.wait(0))


def is_to_be_written(watching: Watcher) -> bool:
    return any(can & ~watching.read for _, can in watching.wait(0))


def test_a_socket_with_octets_is_told_by_its_number(
    watching: Watcher, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    watching.watch(near.fileno(), before=0, wanted=watching.read)
    assert not list(watching.wait(0))
    far.send(b"octets")
    assert list(watching.wait(10)) == [(near.fileno(), watching.read)]


def test_a_socket_is_watched_for_what_is_wanted_last(
    watching: Watcher, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    far.send(b"octets")
    watching.watch(near.fileno(), before=0, wanted=watching.read)
    assert (is_to_be_read(watching), is_to_be_written(watching)) == (True, False)
    watching.watch(near.fileno(), before=watching.read, wanted=watching.write)
    assert (is_to_be_read(watching), is_to_be_written(watching)) == (False, True)
    watching.watch(near.fileno(), before=watching.write, wanted=0)
    assert not list(watching.wait(0))


def test_an_end_is_to_be_read(watching: Watcher, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    watching.watch(near.fileno(), before=0, wanted=watching.read)
    far.close()
    assert is_to_be_read(watching)


def test_linux_has_epoll() -> None:
    assert isinstance(watcher(), EpollWatcher if hasattr(select, "epoll") else SelectorWatcher)
