"""Finding and starting a rabbitmq-server, with shell scripts in its place."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_queuey.sources import local
from pytest_queuey.sources.local import LocalProgress, LocalServer, find_server
from pytest_queuey.sources.server import SourceError, wait_until_ready


def executable(path: Path, script: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def started() -> Iterator[Callable[[Path], LocalServer]]:
    servers = []

    def start(path: Path) -> LocalServer:
        server = LocalServer.start(path)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def progress(server: LocalServer) -> LocalProgress:
    assert server.server.folder is not None
    return LocalProgress(Path(server.server.folder))


def test_the_newest_installation_is_found_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server")
    newest = executable(tmp_path / "lib/rabbitmq_server-4.0.5/sbin/rabbitmq-server")
    executable(tmp_path / "bin/rabbitmq-server")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(local, "SEARCHED", (f"{tmp_path}/lib/rabbitmq_server-*/sbin/rabbitmq-server",))
    assert find_server(None) == newest


def test_debians_wrapper_on_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = executable(tmp_path / "lib/rabbitmq-script-wrapper")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rabbitmq-server").symlink_to(wrapper)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(local, "SEARCHED", ())
    with pytest.raises(SourceError, match=r"no rabbitmq-server is installed.*--queuey-rabbitmq-server=PATH"):
        find_server(None)


def test_debians_wrapper_when_given_is_refused_with_what_to_give(tmp_path: Path) -> None:
    wrapper = executable(tmp_path / "rabbitmq-script-wrapper")
    with pytest.raises(SourceError, match=r"Debian's wrapper.*give the script behind it, /usr/lib/rabbitmq/bin"):
        find_server(str(wrapper))


def test_a_given_path_that_is_no_executable_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"{tmp_path}/nowhere is not an executable file"):
        find_server(str(tmp_path / "nowhere"))


def test_a_server_that_gives_up_says_why_at_once(tmp_path: Path, started: Callable[[Path], LocalServer]) -> None:
    path = executable(tmp_path / "rabbitmq-server", "echo 'ERROR: could not bind to distribution port'; exit 70")
    server = started(path)
    with pytest.raises(SourceError) as error:
        wait_until_ready(server.server, progress(server), within=30)
    assert "exited with status 70 while it was starting" in str(error.value)
    assert "    ERROR: could not bind to distribution port" in str(error.value)


def test_a_server_that_never_listens_is_given_up_with_the_stage(
    tmp_path: Path, started: Callable[[Path], LocalServer]
) -> None:
    server = started(executable(tmp_path / "rabbitmq-server", "echo 'Waiting for Mnesia tables'; exec sleep 1000"))
    with pytest.raises(
        SourceError, match=r"was not ready within 0\.5 s: connecting to 127\.0\.0\.1:.* failed"
    ) as error:
        wait_until_ready(server.server, progress(server), within=0.5)
    assert "    Waiting for Mnesia tables" in str(error.value)


def test_a_file_that_is_no_program_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq-server"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o755)
    with pytest.raises(SourceError, match=rf"{path} could not be started: .*Exec format error"):
        LocalServer.start(path)


def test_closing_ends_the_server_and_deletes_its_folder(tmp_path: Path, started: Callable[[Path], LocalServer]) -> None:
    server = started(executable(tmp_path / "rabbitmq-server", "exec sleep 1000"))
    folder = Path(str(server.server.folder))
    assert (folder / ".erlang.cookie").stat().st_mode & 0o777 == 0o400
    server.close()
    assert not folder.exists()
    server.close()
    assert progress(server).ended() == "was ended by the process that owns it"


def test_the_environment_of_the_user_does_not_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[Path], LocalServer]
) -> None:
    monkeypatch.setenv("RABBITMQ_NODE_PORT", "1")
    monkeypatch.setenv("RABBITMQ_LOGS", "/var/log/rabbitmq/theirs.log")
    server = started(executable(tmp_path / "rabbitmq-server", "env; exit 1"))
    with pytest.raises(SourceError):
        wait_until_ready(server.server, progress(server), within=30)
    said = Path(str(server.server.folder), "output").read_text()
    assert "RABBITMQ_NODE_PORT=1\n" not in said
    assert "RABBITMQ_LOGS" not in said
    assert f"HOME={server.server.folder}\n" in said


def test_a_long_folder_for_temporary_files_does_not_break_the_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[Path], LocalServer]
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(local.tempfile, "tempdir", str(long))
    server = started(executable(tmp_path / "rabbitmq-server", "exec sleep 1000"))
    assert len(os.fsencode(str(server.server.folder))) < 100
    assert list(long.iterdir()) == []


def test_its_folder_is_in_memory_where_there_is_room_unless_tmpdir_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[Path], LocalServer]
) -> None:
    path = executable(tmp_path / "rabbitmq-server", "exec sleep 1000")
    memory, disk = tmp_path / "m", tmp_path / "d"
    for folder in (memory, disk):
        folder.mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(local.tempfile, "tempdir", str(disk))
    monkeypatch.setattr(local, "_SOCKET_PATH_LIMIT", 1000)
    monkeypatch.setattr(local, "_ROOM_IN_MEMORY", 0)
    monkeypatch.setattr(local, "_SHARED_MEMORY", str(memory))
    assert Path(str(started(path).server.folder)).parent == memory
    monkeypatch.setattr(local, "_ROOM_IN_MEMORY", 1 << 60)
    assert Path(str(started(path).server.folder)).parent == disk
    monkeypatch.setattr(local, "_ROOM_IN_MEMORY", 0)
    monkeypatch.setenv("TMPDIR", str(disk))
    assert Path(str(started(path).server.folder)).parent == disk
