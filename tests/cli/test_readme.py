"""README's commands are what they are said to be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from queuey_rabbitmq import QueueConfig, RabbitMqBackend
from queuey_rabbitmq.cli.program import program

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
COMMANDS = [shlex.split(line, comments=True) for line in re.findall(r"^\$ queuey (.*)$", README, flags=re.MULTILINE)]


def test_readme_shows_every_command() -> None:
    assert {" ".join(command[:2]) for command in COMMANDS if command[0] == "dead"} == {
        "dead list",
        "dead show",
        "dead requeue",
        "dead purge",
    }
    assert [command[0] for command in COMMANDS].count("worker") == 1


@pytest.mark.parametrize("command", [command for command in COMMANDS if command[0] == "dead"], ids=" ".join)
def test_readmes_commands_for_dead_letters_run(
    run: Callable[..., Result], queuey_backend: RabbitMqBackend, command: list[str]
) -> None:
    queuey_backend.declare([QueueConfig("myapp.emails")])
    assert run(*command).exit_code == 0


def test_readmes_command_for_a_worker_has_options_that_exist() -> None:
    [command] = [command for command in COMMANDS if command[0] == "worker"]
    worker = program.commands["worker"]
    context = worker.make_context("worker", [*command[1:], "--url", "amqp://localhost"])
    assert (context.params["target"], context.params["concurrency"]) == ("myapp.jobs:Emails", 8)
