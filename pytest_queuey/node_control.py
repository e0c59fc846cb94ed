"""Owns the ways to have Erlang expressions evaluated inside a RabbitMQ node: a private server's socket, or rabbitmqctl.

Refuses to know what is evaluated; `broker_node` says that.
"""

from __future__ import annotations

import base64
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ANSWER_WITHIN = 30.0
"""Seconds that one evaluation may take."""


class ControlError(Exception):
    """The node could not be asked, or failed to evaluate; the message has its words."""


class NodeControl(Protocol):
    """A way into one node."""

    def evaluate(self, expressions: str) -> bytes:
        """Return the value of Erlang expressions, which must be iodata; raises ControlError."""

    @property
    def batch(self) -> int:
        """Return how many virtual hosts to make with one call: many where a call is slow."""


@dataclass(frozen=True, slots=True)
class SocketControl:
    """The socket file that `sources/control.erl` listens on; a call takes a fraction of a millisecond."""

    path: Path
    batch: int = 8

    def evaluate(self, expressions: str) -> bytes:
        """Return the value of Erlang expressions; any thread, any process."""
        request = f"{expressions}.".encode()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_WITHIN)
                connection.connect(str(self.path))
                connection.sendall(len(request).to_bytes(4, "big") + request)
                with connection.makefile("rb") as stream:
                    answer = stream.read(int.from_bytes(stream.read(4), "big"))
        except OSError as error:
            raise ControlError(f"the private server does not answer on {self.path}: {error}") from error
        if answer[:1] != b"+":  # "-", or nothing where the server has just died
            raise ControlError(f"the private server failed to evaluate {expressions}: {answer[1:].decode()}")
        return answer[1:]


@dataclass(frozen=True, slots=True)
class CommandControl:
    """A command line that runs rabbitmqctl; a call takes half a second and more."""

    command: tuple[str, ...]
    batch: int = 24

    def evaluate(self, expressions: str) -> bytes:
        """Return the value of Erlang expressions."""
        try:
            done = subprocess.run(  # noqa: S603 -- the command is the option's, given by whoever runs the tests
                [*self.command, "eval", as_base64(expressions)],
                check=True,
                capture_output=True,
                timeout=ANSWER_WITHIN,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.CalledProcessError as error:
            said = (error.stderr + error.stdout).decode(errors="replace").strip()
            raise ControlError(f"'{' '.join(self.command)} eval' ended with {error.returncode}: {said}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ControlError(f"'{' '.join(self.command)} eval' could not be run: {error}") from error
        if (value := from_base64(done.stdout)) is None:
            raise ControlError(f"'{' '.join(self.command)} eval' printed no value as rabbitmqctl does: {done.stdout!r}")
        return value


def as_base64(expressions: str) -> str:
    """Return expressions for `rabbitmqctl eval`, which prints values: theirs in base64."""
    # It prints an Erlang term; in base64 nothing in it needs to be escaped.
    return f"base64:encode(iolist_to_binary(begin {expressions} end))."


def from_base64(printed: bytes) -> bytes | None:
    """Return the value from what `rabbitmqctl eval` printed; None where there is none in it."""
    # A long binary is printed over several lines: <<"..."\n  "...">>.
    pieces = re.findall(rb'"([A-Za-z0-9+/=]*)"', printed)
    return base64.b64decode(b"".join(pieces)) if pieces else None
