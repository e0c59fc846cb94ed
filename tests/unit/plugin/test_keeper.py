"""The keeper of a private server's processes, with shell scripts in the server's place."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_queuey.sources import keeper

KEEPER = str(keeper.__file__)
PATIENCE = 10.0
OWNER = """
import os, subprocess, sys, time
script, folder, *command = sys.argv[1:]
keeper = subprocess.Popen(
    [sys.executable, "-I", "-S", script, folder, str(os.getpid()), *command],
    stdin=subprocess.PIPE,
    start_new_session=True,
)
if os.fork() == 0:
    time.sleep(20)
    os._exit(0)
time.sleep(1000)
"""


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between the opening and the reading
        return False
    return state != "Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "private"
    made.mkdir()
    return made


@pytest.fixture
def started(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    keepers = []

    def start(*command: str, owner: int | None = None) -> subprocess.Popen[bytes]:
        kept = subprocess.Popen(  # noqa: S603 -- our own script
            [sys.executable, "-I", "-S", KEEPER, str(folder), str(owner or os.getpid()), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        keepers.append(kept)
        return kept

    yield start
    for kept in keepers:
        kept.communicate(timeout=PATIENCE)


def first_line(kept: subprocess.Popen[bytes]) -> str:
    assert kept.stdout is not None
    return kept.stdout.readline().decode().strip()


def end(kept: subprocess.Popen[bytes]) -> int:
    assert kept.stdin is not None
    kept.stdin.close()
    kept.stdin = None
    return kept.wait(PATIENCE)


def test_the_end_of_its_input_ends_the_command_and_deletes_the_folder(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    kept = started("/bin/sleep", "1000")
    word, pid = first_line(kept).split()
    assert word == "started"
    assert is_running(int(pid))
    assert end(kept) == 0
    assert not is_running(int(pid))
    assert not folder.exists()


def test_what_the_command_started_in_sessions_of_its_own_ends_too(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    daemon_pid = folder / "daemon"
    script = f"setsid sh -c 'echo $$ >{daemon_pid}; exec sleep 1000' & exec sleep 1000"
    kept = started("/bin/sh", "-c", script)
    first_line(kept)
    assert wait_for(lambda: daemon_pid.exists() and daemon_pid.read_text() != "")
    pid = int(daemon_pid.read_text())
    assert is_running(pid)
    assert end(kept) == 0
    assert not is_running(pid)


def test_a_killed_owner_leaves_nothing(folder: Path) -> None:
    # The owner holds the keeper's input, and says what the keeper says; another process holds that input too, as a
    # forked child of a test run would.
    owner = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
        [sys.executable, "-c", OWNER, KEEPER, str(folder), "/bin/sleep", "1000"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        pid = int(first_line(owner).split()[1])
        owner.kill()
        owner.wait(PATIENCE)
        assert wait_for(lambda: not is_running(pid))
        assert wait_for(lambda: not folder.exists())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)
        assert owner.stdout is not None
        owner.stdout.close()


def test_an_owner_that_was_gone_before_the_keeper_ran_leaves_nothing(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    # Our end of its input stays open, as a forked child of the owner would hold it.
    gone = subprocess.Popen(["/bin/true"])
    gone.wait(PATIENCE)
    kept = started("/bin/sleep", "1000", owner=gone.pid)
    pid = int(first_line(kept).split()[1])
    assert kept.wait(PATIENCE) == 0
    assert not is_running(pid)
    assert not folder.exists()


def test_a_command_that_ends_by_itself_leaves_its_status_and_its_words(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    kept = started("/bin/sh", "-c", "echo boom; exit 3")
    assert wait_for((folder / "exited").exists)
    assert (folder / "exited").read_text() == "3"
    assert (folder / "output").read_text() == "boom\n"
    assert end(kept) == 0


def test_a_command_that_cannot_be_run_is_reported(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    kept = started("/nonexistent/rabbitmq-server")
    assert first_line(kept).startswith("failed [Errno 2]")
    assert kept.wait(PATIENCE) == 0
    assert not folder.exists()


def test_a_command_is_started_again_in_place_of_the_one_that_runs(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    kept = started("/bin/sleep", "1000")
    first = int(first_line(kept).split()[1])
    (folder / "control").write_text("a socket file that the first has left")
    assert kept.stdin is not None
    kept.stdin.write(b"again\n")
    kept.stdin.flush()
    word, second = first_line(kept).split()
    assert word == "started"
    assert not is_running(first)
    assert is_running(int(second))
    assert not (folder / "control").exists()
    assert end(kept) == 0
    assert not is_running(int(second))


def test_a_command_that_was_killed_is_started_again(
    started: Callable[..., subprocess.Popen[bytes]], folder: Path
) -> None:
    kept = started("/bin/sleep", "1000")
    os.killpg(int(first_line(kept).split()[1]), signal.SIGKILL)
    assert wait_for((folder / "exited").exists)
    assert kept.stdin is not None
    kept.stdin.write(b"again\n")
    kept.stdin.flush()
    assert is_running(int(first_line(kept).split()[1]))
    assert not (folder / "exited").exists()
