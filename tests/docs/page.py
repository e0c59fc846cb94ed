"""A page of the documentation as a program: what of it is run, and in which order.

Owns the reading of a page's fenced blocks. Refuses a block in a language that it knows no way to run, so that nothing
on a page goes unproved.

- A block with a `title` is written into the page's folder under that name.
- A `python` block without one is run, one after the other, in one namespace.
- A `console` block is typed: each line that begins with `$ `. What stands beneath a command has to be printed by it,
  line by line; `...` stands for anything. Without such lines only the exit code counts.
- A `text` block without a title is no code.
- `<!-- exit 1 -->` right before a block says that its last command ends so; `<!-- needs docker -->` that it is run only
  where that can be had; `<!-- shown -->` that it is not run at all, which the test counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?:^<!-- (?P<remarks>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: +(?P<attributes>[^\n]*))?\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_WRITTEN = {"python", "toml", "ini", "yaml", "js", "sh", "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str | None
    body: str
    exit_code: int
    needs: frozenset[str]
    is_shown_only: bool

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Return each command of a console block with the lines that it has to print."""
        found: list[tuple[str, list[str]]] = []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (found[-1][0] + "\n" + line, [])
            elif line.strip():
                found[-1][1].append(line)
        return found


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order. Raises ValueError for one that there is no way to run."""
    text = page.read_text()
    return [_block(page, text, match) for match in _BLOCK.finditer(text)]


def _block(page: Path, text: str, match: re.Match[str]) -> Block:
    line = text[: match.start("language")].count("\n") + 1
    remarks = (match["remarks"] or "").split(", ")
    title = re.search(r'title="([^"]+)"', match["attributes"] or "")
    indent = len(match["indent"])
    block = Block(
        line=line,
        language=match["language"],
        title=title[1] if title else None,
        body="".join(each[indent:] if each.strip() else "\n" for each in match["body"].splitlines(keepends=True)),
        exit_code=next((int(remark.removeprefix("exit ")) for remark in remarks if remark.startswith("exit ")), 0),
        needs=frozenset(remark.removeprefix("needs ") for remark in remarks if remark.startswith("needs ")),
        is_shown_only="shown" in remarks,
    )
    written = block.title is not None and block.language in _WRITTEN
    if not (written or block.language in {"python", "console", "text"}):
        raise ValueError(f"{page.name}, line {line}: a block of {block.language or 'no language'} without a title")
    return block


def is_printed(expected: list[str], output: str) -> bool:
    """Return whether lines were printed in this order; `...` stands for anything."""
    lines = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
    pattern = "".join(_pattern(line.rstrip()) for line in expected)
    return re.search(f"^{pattern}", lines, re.MULTILINE) is not None


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    return re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
