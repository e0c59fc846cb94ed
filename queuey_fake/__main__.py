"""A RabbitMQ for development: `python -m queuey_fake --port 5672`.

Owns the command line and the life of the process. The broker lives on real time, or with `--clock virtual` on a time
that somebody moves over HTTP (`control`).
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from queuey_fake.clock import ManualClock, SystemClock
from queuey_fake.control import ControlServer
from queuey_fake.model.versions import DEPRECATED_FEATURES, VERSIONS, version_named
from queuey_fake.service import Service

DEFAULT_PORT = 5672
_HIGHEST_PORT = 65_535
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM."""
    options = _parse(arguments)
    for number in _SIGNALS:
        signal.signal(number, _end)
    with contextlib.suppress(_ToldToEndError):
        _serve(options)
    return 0


class _ToldToEndError(Exception):
    """The process was told to end."""


def _end(_number: int, _frame: object) -> NoReturn:
    # An event cannot be set here: the signal may come while this very thread holds the event's lock.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # once is enough, and closing is not to be interrupted
    raise _ToldToEndError


def _serve(options: argparse.Namespace) -> None:
    for_ever = threading.Event()
    clock = ManualClock() if options.clock == "virtual" else SystemClock()
    with _opening(f"port {options.port} of {options.host}"):
        service = Service(options.version, permit=options.permit, clock=clock, host=options.host, port=options.port)
    with service:
        print(f"RabbitMQ {version_named(options.version).release} (imitated) at {service.url}", flush=True)  # noqa: T201  a program for people
        if options.control is None:
            for_ever.wait()
        with _opening(f"port {options.control} of 127.0.0.1, for the control,"):
            control = ControlServer(service, port=options.control)
        with control:
            print(f"control at {control.url}", flush=True)  # noqa: T201  a program for people
            for_ever.wait()


@contextlib.contextmanager
def _opening(what: str) -> Iterator[None]:
    """End the process with a sentence where a port cannot be had: it is the first thing that goes wrong for people."""
    try:
        yield
    except OSError as error:
        raise SystemExit(f"python -m queuey_fake: {what} cannot be opened: {error.strerror or error}") from error


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= _HIGHEST_PORT):
        raise argparse.ArgumentTypeError(f"expected a port, 0 to {_HIGHEST_PORT}, got {text!r}")
    return int(text)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m queuey_fake", description="A faithful RabbitMQ in memory.")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="AMQP port, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--version", choices=tuple(VERSIONS), default="4.3", help="which RabbitMQ to imitate (default: %(default)s)"
    )
    parser.add_argument(
        "--permit",
        action="append",
        default=[],
        choices=sorted(DEPRECATED_FEATURES),
        metavar="FEATURE",
        help=f"a deprecated feature to permit, as in rabbitmq.conf: {', '.join(sorted(DEPRECATED_FEATURES))}",
    )
    parser.add_argument(
        "--clock", choices=("real", "virtual"), default="real", help="what time it lives by (default: %(default)s)"
    )
    parser.add_argument(
        "--control", type=_port, metavar="PORT", help="HTTP port for control on 127.0.0.1, 0 for a free one"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
