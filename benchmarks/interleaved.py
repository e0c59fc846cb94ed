"""Running contestants in turns on a noisy machine, and comparing medians of what one run measured."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(contestants: Mapping[str, Callable[[], float]], *, repetitions: int) -> dict[str, float]:
    """Return the median rate of each contestant, which answers with a rate of its own timing.

    They take turns, so that noise hits all of them alike; the first turn warms up and does not count.
    """
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repetitions + 1):
        for name, contestant in contestants.items():
            gc.collect()
            rate = contestant()
            if turn:
                rates[name].append(rate)
    return {name: statistics.median(measured) for name, measured in rates.items()}


def rate_of(count: int, work: Callable[[], object]) -> float:
    """Do the work, and return how many a second that were."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def cpu_rate_of(count: int, work: Callable[[], object]) -> float:
    """Do the work, and return how many a second of this process's processor time that were."""
    start = time.process_time()
    work()
    return count / (time.process_time() - start)


def report(title: str, medians: Mapping[str, float], *, against: str) -> None:
    """Print rates, and ratios to one of the contestants."""
    print(f"\n{title}")
    for name, rate in medians.items():
        print(f"  {name:32} {rate:10.0f}/s   {rate / medians[against]:6.2f} of {against}")
