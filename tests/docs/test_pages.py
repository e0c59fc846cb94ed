"""Every page of the documentation does what it says: its files are written, its code is run, its commands are typed.

Runs where it is asked for, by `tox -e docs` (QUEUEY_DOCS=1), for it starts many programs. QUEUEY_DOCS_HAS names what
there is of what some blocks need: `rabbitmq`, `docker`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_queuey
import queuey_fake
import queuey_rabbitmq
from tests.docs.page import Block, blocks, is_printed

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TIMEOUT_S = 120

pytestmark = pytest.mark.skipif(os.environ.get("QUEUEY_DOCS") != "1", reason="runs by itself: tox -e docs")


def can_be_had(need: str) -> bool:
    return need in os.environ.get("QUEUEY_DOCS_HAS", "").split()


def run_command(command: str, printed: list[str], *, exit_code: int, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("QUEUEY_RABBITMQ_URL", None)
    environment |= {"QUEUEY": str(ROOT), "PATH": path}
    done = subprocess.run(  # noqa: S603 -- our own pages
        ["bash", "-euo", "pipefail", "-c", command],  # noqa: S607 -- the shell of this machine
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    told = f"$ {command}\n{done.stdout}\nexit code {done.returncode}"
    assert done.returncode == exit_code, told
    assert is_printed(printed, done.stdout), f"{told}, and not the lines:\n" + "\n".join(printed)


def run_block(block: Block, folder: Path, namespace: dict[str, Any]) -> None:
    if block.title is not None:
        (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.title).write_text(block.body)
    elif block.language == "python":
        exec(compile("\n" * block.line + block.body, "the page", "exec"), namespace)  # noqa: S102 -- our own pages
    elif block.language == "console":
        *before, (last, printed) = block.commands
        for command, lines in before:
            run_command(command, lines, exit_code=0, folder=folder)
        run_command(last, printed, exit_code=block.exit_code, folder=folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if not block.is_shown_only and all(can_be_had(need) for need in block.needs):
            run_block(block, tmp_path, namespace)


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = {line.rpartition(".")[2] for line in pages.splitlines() if line.startswith("::: ")}
    public = {*queuey_rabbitmq.__all__, *queuey_fake.__all__, *pytest_queuey.__all__} - {"pika"}
    assert public - shown == set()


def test_few_blocks_are_only_shown() -> None:
    shown = [f"{page.name}:{block.line}" for page in PAGES for block in blocks(page) if block.is_shown_only]
    assert len(shown) <= 4, shown
