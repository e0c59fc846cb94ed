"""Owns the private server: finding a locally installed rabbitmq-server, starting it for this run alone, ending it.

Its node name, ports, epmd, home and data are its own, so it meets no other node of the machine; it is in the hands of
`keeper`, so nothing of it survives the test run, however that ends. Refuses a server that others use: that is a URL.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from pytest_queuey.asked import AskedBroker
from pytest_queuey.sources.server import RealServer, SourceError, last_lines

SEARCHED: Final = (
    "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
    "/opt/homebrew/sbin/rabbitmq-server",
    "/usr/local/opt/rabbitmq/sbin/rabbitmq-server",
    "/usr/local/sbin/rabbitmq-server",
    "/opt/rabbitmq*/sbin/rabbitmq-server",
)
"""Where installations put the executable; then PATH."""
_VERSION_IN_NAME: Final = re.compile(r"rabbitmq[-_]server[-_](\d+(?:\.\d+)+)")
_WRAPPER: Final = "rabbitmq-script-wrapper"
_SOCKET_PATH_LIMIT: Final = 100
"""Bytes; a socket file's path may have 104 on macOS and 108 on Linux."""
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 -- mkdtemp makes a private folder in it
_ROOM_IN_MEMORY: Final = 1 << 30
"""Bytes; a container's /dev/shm usually has 64 MB, which a broker would fill."""
_PORTS: Final = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: such a one could take the port while the server boots."""
_STARTED_WITHIN: Final = 10.0
_ENDED_WITHIN: Final = 10.0
# A test broker shares its machine with the tests: one scheduler, no busy waiting, a small process table.
_ERLANG_FLAGS: Final = (
    "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1 +P 65536 +MIscs 16 +sbwt none +sbwtdcpu none +sbwtdio none "
    "-kernel inet_dist_use_interface {127,0,0,1}"
)
_CONFIGURATION: Final = """\
# A test broker must not block its clients because the machine's disk is nearly full.
disk_free_limit.absolute = 1MB
"""


def find_server(given: str | None, version: str | None = None) -> Path:
    """Return the rabbitmq-server executable, of a version where one is asked for; raises SourceError that says where.

    A version is read off the names of the executable and of its folder; an executable whose names say none is taken
    where none says the right one.
    """
    if given is not None:
        found = [_usable(path) for path in given.split(os.pathsep)]
    else:
        paths = [path for pattern in SEARCHED for path in sorted(map(str, Path("/").glob(pattern[1:])), reverse=True)]
        if on_path := shutil.which("rabbitmq-server"):
            paths.append(on_path)
        found = []
        for path in paths:
            with contextlib.suppress(SourceError):
                found.append(_usable(path))
    if version is not None:
        found = _of_version(found, version)
    if found:
        return found[0]
    what = "no rabbitmq-server" if version is None else f"no rabbitmq-server {version}"
    if given is not None:
        raise SourceError(f"{what} is among --queuey-rabbitmq-server={given}")
    raise SourceError(
        f"{what} is installed (looked in "
        f"{', '.join(pattern.rpartition('/')[0] for pattern in SEARCHED)} and PATH); "
        "install RabbitMQ or give --queuey-rabbitmq-server=PATH"
    )


def _of_version(found: list[Path], version: str) -> list[Path]:
    """Return the executables of a version, then those that do not say theirs."""
    asked = AskedBroker("rabbitmq", version, "")
    said = {path: _VERSION_IN_NAME.findall(f"{path} {path.resolve()}") for path in found}
    right = [path for path in found if said[path] and asked.is_of(said[path][-1])]
    return [*right, *(path for path in found if not said[path])]


def _usable(path: str) -> Path:
    real = Path(path).resolve()
    if not os.access(real, os.X_OK) or not real.is_file():
        raise SourceError(f"{path} is not an executable file")
    if real.name == _WRAPPER:
        # It changes to the user rabbitmq and loses the environment that makes the server private.
        raise SourceError(
            f"{path} is Debian's wrapper for the system's own broker; "
            "give the script behind it, /usr/lib/rabbitmq/bin/rabbitmq-server"
        )
    return Path(path).absolute()


def _nothing_more(_folder: Path) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Seat:
    """The ports of a node, its epmd's among them, and the cookie by which nodes of a cluster know each other."""

    node: int
    distribution: int
    epmd: int
    cookie: str

    @classmethod
    def of_one(cls) -> Self:
        """Return one with ports that are free, for a node that is to meet no other."""
        node, distribution, epmd = free_ports(3)
        return cls(node, distribution, epmd, secrets.token_hex(16))

    @classmethod
    def of_cluster(cls, size: int) -> list[Self]:
        """Return those of nodes that are to find each other."""
        epmd, *ports = free_ports(1 + 2 * size)
        cookie = secrets.token_hex(16)
        return [cls(ports[place], ports[size + place], epmd, cookie) for place in range(size)]

    @property
    def name(self) -> str:
        """Return the node's name."""
        return f"queuey{self.node}@localhost"


@dataclass(slots=True)
class LocalServer:
    """A private server that this process has started."""

    server: RealServer
    _keeper: subprocess.Popen[bytes]
    _pid: int

    @classmethod
    def start(
        cls, executable: Path, configure: Callable[[Path], str] = _nothing_more, *, seat: Seat | None = None
    ) -> Self:
        """Start a private server and return at once; raises SourceError where it cannot even be started.

        `configure` is given the server's folder, may put files there, and returns further lines of rabbitmq.conf.
        """
        seat = seat or Seat.of_one()
        folder = _make_folder()
        try:
            environment = _write_files(folder, seat, configure(folder))
            control = Path(__file__).with_name("control.erl").read_text()
            keeper = subprocess.Popen(  # noqa: S603 -- our own script, and the executable that the option or search named
                [
                    *(sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))),
                    *(str(folder), str(os.getpid()), str(executable), "-eval", control),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C and a killed process group of the test run must not reach it
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise SourceError(f"{executable} could not be started: {error}") from error
        server = RealServer(
            source="local",
            what=str(executable),
            url=f"amqp://guest:guest@127.0.0.1:{seat.node}/%2f",
            folder=str(folder),
        )
        started = cls(server, keeper, 0)
        started._hear()
        return started

    def kill(self) -> None:
        """End the server as a crash does, by SIGKILL; its data stays."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the server a signal; SIGSTOP makes it hang until SIGCONT."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    def start_again(self) -> None:
        """Start the server once more, with its data; kills it where it runs. Returns at once."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(b"again\n")
        self._keeper.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        word, _, rest = _first_line(self._keeper.stdout).partition(" ")
        if word != "started":
            self.close()
            raise SourceError(
                f"{self.server.what} could not be started: {rest or 'the keeper of its process said nothing'}"
            )
        self._pid = int(rest)

    def close(self) -> None:
        """End the server, everything it started, and its folder; returns when they are gone. Idempotent."""
        if self._keeper.stdin is None or self._keeper.stdin.closed:
            return
        self._keeper.stdin.close()
        try:
            done = self._keeper.wait(_ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            done = self._keeper.wait()
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()
        if done != 0 and self._pid:  # somebody killed the keeper: do what can be done without it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        shutil.rmtree(str(self.server.folder), ignore_errors=True)


@dataclass(frozen=True, slots=True)
class LocalProgress:
    """What any process of this machine can see of a private server that is starting, in its folder."""

    folder: Path

    def ended(self) -> str | None:
        """Return how it ended where it has."""
        if not self.folder.is_dir():
            return "was ended by the process that owns it"
        exited = self.folder / "exited"
        return f"exited with status {exited.read_text()}" if exited.is_file() else None

    def last_lines(self) -> str:
        """Return what it said last, on its output or in its log."""
        return last_lines(self.folder / "output", *sorted((self.folder / "log").glob("*.log")))

    def complete(self) -> bool:
        """Return whether it has booted: the control socket is opened after the last boot step."""
        return (self.folder / "control").exists()


def _make_folder() -> Path:
    for base in (_memory(), None, "/tmp"):  # noqa: S108 -- mkdtemp makes a private folder in it
        folder = Path(tempfile.mkdtemp(prefix="queuey-rabbitmq-", dir=base))
        if len(os.fsencode(folder)) + len("/control") <= _SOCKET_PATH_LIMIT:
            return folder
        folder.rmdir()
    raise SourceError(f"the path of a socket file would be too long in {folder.parent}")


def _memory() -> str | None:
    """Return a folder in memory, if there is one with room: what is thrown away need not wait for a disk's fsync."""
    if "TMPDIR" in os.environ:
        return None
    with contextlib.suppress(OSError):
        if os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_IN_MEMORY:
            return _SHARED_MEMORY
    return None


def _write_files(folder: Path, seat: Seat, further: str) -> dict[str, str]:
    """Write what the server reads and return the environment that makes it read nothing else."""
    for name in ("mnesia", "log"):
        (folder / name).mkdir()
    cookie = folder / ".erlang.cookie"
    cookie.write_text(seat.cookie)
    cookie.chmod(0o400)
    for name, text in (
        ("plugins", "[].\n"),
        ("environment.conf", ""),  # or the system's rabbitmq-env.conf is read
        ("rabbitmq.conf", _CONFIGURATION + further),
        ("advanced.config", "[].\n"),
    ):
        (folder / name).write_text(text)
    inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return inherited | {
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "RABBITMQ_NODENAME": seat.name,
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(seat.node),
        "RABBITMQ_DIST_PORT": str(seat.distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "environment.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG_FLAGS,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(seat.epmd),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the server: no shell stays in between
    }


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nobody listens, of those that systems give to no outgoing connection."""
    ports: list[int] = []
    candidates = secrets.SystemRandom().sample(_PORTS, len(_PORTS))
    while len(ports) < count:
        port = candidates.pop()
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def _first_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    readable, _, _ = select.select([stream], [], [], _STARTED_WITHIN)
    return stream.readline().decode(errors="replace").strip() if readable else ""
