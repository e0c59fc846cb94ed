"""A RabbitMQ for development: `python -m queuey_fake --port 5672`.

Owns the command line and the life of the process. The broker lives on real time, or with `--clock virtual` on a time
that somebody moves over HTTP (`control`).
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Sequence
from typing import NoReturn

from queuey_fake.clock import ManualClock, SystemClock
from queuey_fake.control import ControlServer
from queuey_fake.model.versions import VERSIONS, version_named
from queuey_fake.service import Service

DEFAULT_PORT = 5672
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
    with Service(options.version, permit=options.permit, clock=clock, host=options.host, port=options.port) as service:
        print(f"RabbitMQ {version_named(options.version).release} (imitated) at {service.url}", flush=True)  # noqa: T201  a program for people
        if options.control is None:
            for_ever.wait()
        with ControlServer(service, port=options.control) as control:
            print(f"control at {control.url}", flush=True)  # noqa: T201  a program for people
            for_ever.wait()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m queuey_fake", description="A faithful RabbitMQ in memory.")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="AMQP port, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--version", choices=tuple(VERSIONS), default="4.3", help="which RabbitMQ to imitate (default: %(default)s)"
    )
    parser.add_argument(
        "--permit",
        action="append",
        default=[],
        metavar="FEATURE",
        help="a deprecated feature to permit, as in rabbitmq.conf: transient_nonexcl_queues",
    )
    parser.add_argument(
        "--clock", choices=("real", "virtual"), default="real", help="what time it lives by (default: %(default)s)"
    )
    parser.add_argument(
        "--control", type=int, metavar="PORT", help="HTTP port for control on 127.0.0.1, 0 for a free one"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
