"""Owns the folder that pages are written into, and their names there."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path
from typing import Final

INDEX: Final = "index.html"
_MAX_READABLE: Final = 80
_UNPRINTABLE: Final = "backslashreplace"
"""How what is no text is shown: names of files and queues may hold octets that are no UTF-8."""


def opened(folder: Path) -> Path:
    """Return a folder that can be written to, made where it is missing; raises OSError where it cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder


def page_name(test: str) -> str:
    """Return the name of a test's page: safe on every file system, readable, and no other test's."""
    path, _, name = test.partition("::")
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{Path(path).stem}-{name}").strip("-")[:_MAX_READABLE]
    return f"{readable}-{hashlib.sha256(test.encode(errors=_UNPRINTABLE)).hexdigest()[:10]}.html"


def write(file: Path, html: str) -> None:
    """Write a page."""
    file.write_text(html, encoding="utf-8", errors=_UNPRINTABLE)
