"""The commands, put together."""

from __future__ import annotations

import click

from queuey_rabbitmq.cli.dead import dead
from queuey_rabbitmq.cli.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="queuey-rabbitmq", prog_name="queuey")
def program() -> None:
    """Job queues on RabbitMQ: run workers, look after dead letters."""


program.add_command(worker)
program.add_command(dead)
