"""Owns what became of a test, as pytest's reports of its three phases tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BAD: Final = ("failed", "error")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a test: passed, failed, error, skipped, xfailed, xpassed."""

    test: str
    outcome: str
    why: str = ""
    """What pytest says of its failure."""

    @property
    def sign(self) -> str:
        """Return a sign for the outcome."""
        return "✔" if self.outcome == "passed" else "✖" if self.outcome in BAD else "-"

    @property
    def kind(self) -> str:
        """Return the class by which it is shown."""
        return self.outcome if self.outcome == "passed" or self.outcome in BAD else "other"
