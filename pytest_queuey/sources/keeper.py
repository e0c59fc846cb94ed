"""Owns the processes and the folder of one private server, and outlives its owner just long enough to end them.

Run as a script, in a session of its own: `python keeper.py FOLDER OWNER COMMAND...`. It starts the command with the
environment it was given, and waits. When its standard input ends, or its parent is not the process OWNER any more (a
killed test run cannot clean up), it kills the command and everything the command ever started, deletes FOLDER and
exits. The normal end of a test run takes the same way, so it is the way that is always tested.

It says one line on standard output, `started PID` or `failed REASON`, and writes the command's status to FOLDER/exited
should it end by itself; what the command says goes to FOLDER/output. A line `again` on its standard input starts the
command once more, after killing the one that runs, and is answered in the same way.
It imports nothing of ours and nothing but the standard library: it starts in a few milliseconds, isolated.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LOOK_EVERY_SECONDS = 0.1
_STAT_FIELDS_BEFORE_PARENT = 1  # after the command's name in /proc/PID/stat come the state and the parent's id


def main(folder: str, owner: str, *command: str) -> None:
    """Start the command, wait for the owner to go, end everything."""
    _adopt_orphans()
    server = _start(folder, command)
    while server is not None and _is_asked_again(int(owner), Path(folder, "exited"), server):
        _kill_group(server.pid)
        server.wait()
        for left in ("exited", "control"):  # a server refuses to listen on a socket file that is there
            Path(folder, left).unlink(missing_ok=True)
        server = _start(folder, command)
    if server is not None:
        _kill(server.pid)
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: str, command: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    try:
        with Path(folder, "output").open("ab") as output:
            # In a group of its own, so that one signal reaches it where /proc cannot be read.
            server = subprocess.Popen(  # noqa: S603 -- the command is what the option or the search named
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
            )
    except OSError as error:
        _say(f"failed {error}")
        return None
    _say(f"started {server.pid}")
    return server


def _say(line: str) -> None:
    # An owner that is gone reads nothing: that must not keep the keeper from its work.
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _adopt_orphans() -> None:
    # A daemon that the server starts (epmd) leaves its parents; on Linux it then becomes ours, and can be found.
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _is_asked_again(owner: int, exited: Path, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the owner goes, or asks for the command to be started once more."""
    # The end of the pipe is the fast sign; a forked child of the owner may hold it open, so the parent is asked too.
    # Which process that is has to be told: one that is gone by now has left us to another.
    while os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_EVERY_SECONDS)
        if readable:
            return os.read(sys.stdin.fileno(), 1024) == b"again\n"
        if server.poll() is not None and not exited.exists():
            written = exited.with_name("exiting")
            written.write_text(str(server.returncode))
            written.replace(exited)  # whole, for who reads it the moment it is there
    return False


def _kill(group: int) -> None:
    _kill_group(group)
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)  # what it had started is ours now, and in the next round


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _children() -> list[int]:
    """Return the ids of our children; empty where there is no /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            _, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[_STAT_FIELDS_BEFORE_PARENT]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
