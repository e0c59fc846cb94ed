"""Owns the parts that every page has: style, script, marks and templates, as files beside this one."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def part(name: str) -> str:
    """Return a part by its file's name."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
