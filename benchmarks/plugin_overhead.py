"""What the plugin costs: a suite that does not use it, and a test that does.

    python benchmarks/plugin_overhead.py

Everything is CPU time of this thread, so that other work on the machine does not count. For a suite without: importing
the plugin after pytest, and the time inside each of its hooks over a run of 1000 tests. For a test with: the phases
set-up and tear-down of tests that ask for `queuey_broker`, less those of tests that ask for nothing, each a median.
"""

import contextlib
import functools
import io
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

WITHOUT = "import pytest\n@pytest.mark.parametrize('n', range(1000))\ndef test_it(n): pass\n"
WITH = """
import pytest
@pytest.mark.parametrize("n", range(300))
class Test:
    def test_nothing(self, n): pass
    def test_broker(self, queuey_broker, n): pass
    def test_backend(self, queuey_backend, n): pass
"""


def run(source: str, plugin: object = None) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        Path(folder, f"test_of_{len(sys.modules)}.py").write_text(source)  # a name of its own
        ended = pytest.main(["-q", "-p", "no:cacheprovider", folder], plugins=[plugin] if plugin else [])
    assert ended == 0


class Phases:
    """Times the phases of each test."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = defaultdict(list)
        self._spent = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._spent = time.thread_time() - began

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.ms[item.name.partition("[")[0]].append(1000 * (self._spent + time.thread_time() - began))


def time_hooks() -> tuple[float, Counter[str]]:
    """Import the plugin, and have each of its hooks count its time; return the import's, and the counter."""
    began = time.thread_time()
    from pytest_queuey import plugin

    imported = 1000 * (time.thread_time() - began)
    spent: Counter[str] = Counter()

    def timed(name: str, hook: object) -> object:
        @functools.wraps(hook)
        def call(*args: object, **kwargs: object) -> object:
            began = time.thread_time()
            try:
                return hook(*args, **kwargs)
            finally:
                spent[name] += 1_000_000 * (time.thread_time() - began)

        return call

    for name, hook in list(vars(plugin).items()):
        if name.startswith("pytest_"):
            setattr(plugin, name, timed(name, hook))
    return imported, spent


def main() -> None:
    assert "pytest_queuey" not in sys.modules, "the plugin is loaded already"
    imported, spent = time_hooks()
    run(WITHOUT)
    in_hooks = sum(spent.values()) / 1000
    print(f"a suite of 1000 tests that does not use it: import {imported:.2f} ms, hooks {in_hooks:.2f} ms, ", end="")
    print(f"together {imported + in_hooks:.2f} ms")
    for name, microseconds in spent.most_common(5):
        print(f"    {name}: {microseconds / 1000:.2f} ms")
    phases = Phases()
    run(WITH, phases)
    nothing = median(phases.ms["test_nothing"])
    for name in ("broker", "backend"):
        with_it = median(phases.ms[f"test_{name}"])
        print(f"queuey_{name} on the fake, set-up and tear-down: {with_it - nothing:.3f} ms (median of 300)")


if __name__ == "__main__":
    main()
