"""What every application does alike: counts the jobs that it has handled, and enqueues when it is told to.

The broker's URL, the number of jobs and the prefetch come from the environment, as each worker is started by its own
command.
"""

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

URL = os.environ.get("BENCHMARK_URL", "")
REPORT = Path(os.environ.get("BENCHMARK_REPORT", "/dev/null"))
"""Where the measurement goes: workers do as they like with what is printed."""
JOBS = int(os.environ.get("BENCHMARK_JOBS", "1"))
THREADS = 8
PREFETCH = 64
"""The same for all; each has a default of its own."""

PACE_S = 0.01
_numbers = itertools.count(1)
_times_ns: list[int] = []
_cpu_s: list[float] = []
_latencies_ms: list[float] = []


def handled(sent_ns: int) -> None:
    """Count a job; with the last say how long all took, in real time and of the processor, and how long each."""
    now_ns = time.monotonic_ns()
    _times_ns.append(now_ns)
    _cpu_s.append(time.process_time())
    _latencies_ms.append((now_ns - sent_ns) / 1e6)
    if next(_numbers) == JOBS:
        rate = (JOBS - 1) / (max(_times_ns) - min(_times_ns)) * 1e9
        rate_by_cpu = (JOBS - 1) / (max(_cpu_s) - min(_cpu_s))
        text = json.dumps({"rate": rate, "rate_by_cpu": rate_by_cpu, "p50_ms": statistics.median(_latencies_ms)})
        REPORT.with_suffix(".unfinished").write_text(text)
        REPORT.with_suffix(".unfinished").rename(REPORT)


def enqueue(many: Callable[[list[int]], object], one: Callable[[int], object]) -> None:
    """Enqueue as many jobs as there are to be: all at once and timed, or at a pace."""
    if sys.argv[1] == "many":
        start = time.perf_counter()
        many([time.monotonic_ns()] * JOBS)
        REPORT.write_text(json.dumps({"rate": JOBS / (time.perf_counter() - start)}))
        return
    due_s = time.perf_counter()
    for _ in range(JOBS):
        due_s += PACE_S
        time.sleep(max(0.0, due_s - time.perf_counter()))
        one(time.monotonic_ns())
