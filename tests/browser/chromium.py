"""Chromium, headless, as a test uses it: looks at one page, from a file, and says what it made of it.

Everything but this machine is out of its reach, and it has a profile of its own for each look.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

TIMEOUT_S = 120
EXECUTABLE = shutil.which("chromium")
DARK = ("--blink-settings=preferredColorScheme=0",)
"""What a person asks for in the settings of their system; the number is that of Blink's enumeration."""


def _run(page: Path, profile: Path, *options: str, fragment: str = "") -> subprocess.CompletedProcess[str]:
    assert EXECUTABLE is not None, "Debian's package chromium is not installed"
    return subprocess.run(  # noqa: S603 -- found above, and our own pages
        [
            EXECUTABLE,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"),
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
            *options,
            f"{page.as_uri()}{fragment}",
        ],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )


def dom_of(page: Path, profile: Path, *, fragment: str = "") -> tuple[str, list[str]]:
    """Return the page as it is when its script has run, and what stands on the console."""
    done = _run(page, profile, "--dump-dom", fragment=fragment)
    return done.stdout, re.findall(r"CONSOLE:\d+\] (.*)", done.stderr)


def screenshot_of(page: Path, profile: Path, *options: str, size: str = "1400,900") -> bytes:
    """Return what a person sees, as PNG."""
    picture = profile.with_suffix(".png")
    _run(page, profile, f"--window-size={size}", f"--screenshot={picture}", *options)
    return picture.read_bytes()
