"""The command line is an extra: without it everything else works, and asking for it says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules[{name!r}] = None; from queuey_rabbitmq.cli import main; main()"


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 -- our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["click", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(name: str) -> None:
    done = python(WITHOUT.format(name=name))
    assert done.returncode == 1
    assert done.stderr == f"Error: the command line needs {name}: pip install 'queuey-rabbitmq[cli]'\n"


def test_importing_the_packages_loads_neither_click_nor_rich() -> None:
    done = python(
        "import sys, queuey_rabbitmq, queuey_rabbitmq.cli, queuey_fake, pytest_queuey.plugin\n"
        "from queuey_rabbitmq import DeadLetters, RabbitMqBackend, Worker\n"
        "print(*{'click', 'rich'} & sys.modules.keys())"
    )
    assert done.stdout == "\n"


def test_the_help_names_the_commands() -> None:
    done = python("import sys; sys.argv = ['queuey', '--help']; from queuey_rabbitmq.cli import main; main()")
    assert done.returncode == 0
    assert "worker" in done.stdout
    assert "dead" in done.stdout
