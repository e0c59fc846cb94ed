"""What time travel costs: 10,000 deferrals of 1 ms to 24.8 days delivered by stepping, and freezes with the bridge.

    python benchmarks/time_travel.py

The deferrals have a granularity of 1 ms, so each waits in a hold queue of its own. The limit for them is 5 s; starting
and stopping a freeze may cost at most 10 % over freezegun's own.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from freezegun import api, freeze_time

from queuey_fake import FakeBroker, ManualClock, frozen_time
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqOptions

COUNT = 10_000
LONGEST_MS = 2_142_720_000  # 24.8 days
STEP_MS = LONGEST_MS // COUNT
EMAILS = QueueConfig("emails", prefetch=100)
FREEZES = 200


def delays_ms() -> list[int]:
    """Spread over the whole range, in an order that is not the one in which they are due."""
    return [1 + (number * 7919 % COUNT) * STEP_MS for number in range(COUNT)]


def deliver_by_waiting() -> float:
    with FakeBroker(clock=ManualClock(datetime(2030, 1, 1, tzinfo=UTC))) as broker:
        backend = broker.backend(RabbitMqOptions(deferred_granularity=0.001))
        backend.declare([EMAILS])
        began = time.perf_counter()
        for delay_ms in delays_ms():
            backend.defer(job(backend, backend.now_ms() + delay_ms), delay_ms / 1000)
        deferred = time.perf_counter()
        with backend.consume(EMAILS) as deliveries:
            for due_ms in sorted(delays_ms()):
                delivery = deliveries.get(timeout=30 * 86_400)
                assert delivery is not None
                now_ms = broker.now_ms()
                assert delivery.envelope.payload == now_ms, f"due at {delivery.envelope.payload}, came at {now_ms}"
                assert now_ms - 1_893_456_000_000 == due_ms
                delivery.ack()
        ended = time.perf_counter()
    print(f"  deferred in {deferred - began:.2f} s, delivered in {ended - deferred:.2f} s")
    return ended - began


def deliver_by_advancing() -> float:
    with FakeBroker(clock=ManualClock(datetime(2030, 1, 1, tzinfo=UTC))) as broker:
        backend = broker.backend(RabbitMqOptions(deferred_granularity=0.001))
        backend.declare([EMAILS])
        began = time.perf_counter()
        for delay_ms in delays_ms():
            backend.defer(job(backend, backend.now_ms() + delay_ms), delay_ms / 1000)
        with backend.consume(EMAILS) as deliveries:
            before_ms = 0
            for due_ms in sorted(delays_ms()):
                broker.advance((due_ms - before_ms) / 1000)
                before_ms = due_ms
                delivery = deliveries.get(timeout=0)
                assert delivery is not None
                assert delivery.envelope.payload == broker.now_ms()
                delivery.ack()
        return time.perf_counter() - began


def job(backend: Any, payload: int) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=payload
    )


def freezes() -> tuple[float, float]:
    """Return the median of starting and stopping a freeze, in ms, without the bridge and with it."""
    methods = [(api._freeze_time, "start"), (api._freeze_time, "stop")]  # noqa: SLF001 -- what the bridge wraps
    own = [getattr(owner, name) for owner, name in methods]
    frozen_time.bridge()
    bridged = [getattr(owner, name) for owner, name in methods]
    medians = []
    for functions in (own, bridged):
        for (owner, name), function in zip(methods, functions, strict=True):
            setattr(owner, name, function)
        freeze_once()
        medians.append(statistics.median(took(freeze_once) for _ in range(FREEZES)) * 1000)
    return medians[0], medians[1]


def freeze_once() -> None:
    freeze = freeze_time("2030-01-01")
    freeze.start()
    freeze.stop()


def took(call: Callable[[], object]) -> float:
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    call()
    return time.clock_gettime(time.CLOCK_MONOTONIC) - began


def main() -> None:
    own, bridged = freezes()
    print(f"start and stop of a freeze: {own:.2f} ms by itself, {bridged:.2f} ms bridged ({bridged / own - 1:+.1%})")
    print(f"{COUNT} deferrals, by waiting for each: {deliver_by_waiting():.2f} s")
    print(f"{COUNT} deferrals, by advancing to each: {deliver_by_advancing():.2f} s")


if __name__ == "__main__":
    main()
