"""What every command needs: the broker's URL, a backend for a while, and errors as one readable text.

The URL may hold a password: it is never printed, only where it leads to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click

from queuey_rabbitmq import broker_urls
from queuey_rabbitmq.backend import RabbitMqBackend
from queuey_rabbitmq.core.errors import ChannelClosedError, QueueyError
from queuey_rabbitmq.options import RabbitMqOptions

URL_VARIABLE = "QUEUEY_BROKER_URL"
"""Not the one of the pytest plugin: no test may run on the broker that an operator looks after."""
NOT_FOUND = 404

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --url."""
    return click.option(
        "--url",
        envvar=URL_VARIABLE,
        show_envvar=True,
        required=True,
        help="The broker: amqp://user:password@host:port/vhost, or amqps://... for TLS; the nodes of a cluster as "
        "host1:port1,host2:port2. Better in the environment, as everybody on a machine can read command lines.",
    )(command)


def duration(value: str) -> timedelta:
    """Read a length of time: 90 (seconds), 15m, 2h, 3d, 1h30m."""
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text += "s"
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise click.BadParameter(f"{value!r} is no length of time; give seconds, or for example 15m, 2h, 3d, 1h30m")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise click.BadParameter(f"{value!r} is longer than time can be told") from error


@contextmanager
def connected(url: str, options: RabbitMqOptions) -> Iterator[RabbitMqBackend]:
    """Give a backend for a while; what goes wrong ends the command with exit code 1 and what happened."""
    try:
        with RabbitMqBackend.with_options(url, options) as backend:
            yield backend
    except QueueyError as error:
        hint = ""
        if isinstance(error, ChannelClosedError) and error.code == NOT_FOUND:
            hint = (
                "\nThere is no such queue in this virtual host. Name the work queue, 'emails' for 'emails.dead'; is "
                f"it another virtual host than that of {where(url)}?"
            )
        raise click.ClickException(f"{error}{hint}") from error


def where(url: str) -> str:
    """Return where a URL leads to, without credentials."""
    nodes = broker_urls.parse(url)
    return f"{', '.join(map(str, nodes))}, virtual host '{nodes[0].virtual_host}'"
