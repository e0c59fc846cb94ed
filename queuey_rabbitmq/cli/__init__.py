"""The command line, `queuey`: runs workers, and looks after dead letters. Needs the extra `cli`: click and rich.

Owns no rule of queues and jobs; each command is a few calls of the public API, and what people read about them.
Importing this package loads neither click nor rich.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    try:
        from queuey_rabbitmq.cli.program import program
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        sys.exit(f"Error: the command line needs {missing}: pip install 'queuey-rabbitmq[cli]'")
    program(prog_name="queuey")
