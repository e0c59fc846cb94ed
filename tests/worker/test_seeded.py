"""Many jobs whose handlers answer at random, worked off in virtual time: each takes exactly the path it was given."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import (
    Deferred,
    Envelope,
    Fatal,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    Worker,
    job,
)

JOBS = 120
ATTEMPTS = 4


class Work(QueueSet, prefix="seeded"):
    some = Queue(prefetch=7, retry=RetryPolicy.exponential(ATTEMPTS, base=2))


@job(Work.some)
class Do(Job[Work]):
    number: int


def answers(dice: random.Random) -> list[Exception | None]:
    """Return what a handler answers, one call after the other, and fine from then on."""
    kinds: list[Callable[[], Exception | None]] = [
        lambda: Deferred(dice.uniform(0.1, 90)),
        lambda: Retryable("503"),
        lambda: Retryable("503", delay=dice.uniform(0.1, 30)),
        lambda: ValueError("broken"),
        lambda: Fatal("never"),
        lambda: None,
    ]
    return [kind() for kind in dice.choices(kinds, weights=[4, 3, 1, 2, 1, 3], k=8)]


def path(given: list[Exception | None]) -> tuple[list[tuple[int, int]], bool]:
    """Return the (attempt, deferrals) of each call that a job's answers lead to, and whether it ends well."""
    attempt, deferrals, calls = 1, 0, []
    for answer in [*given, None]:
        calls.append((attempt, deferrals))
        if answer is None:
            return calls, True
        if isinstance(answer, Deferred):
            deferrals += 1
        elif isinstance(answer, Fatal) or attempt == ATTEMPTS:
            return calls, False
        else:
            attempt += 1
    raise AssertionError("the last answer is None")


@pytest.mark.queuey_broker("fake")  # it takes minutes of virtual time
@pytest.mark.parametrize("seed", range(4))
def test_every_job_takes_the_path_that_its_answers_lead_to(
    backend: RabbitMqBackend,
    seed: int,
    dead_letters: Callable[[Any], list[tuple[Envelope, str]]],
    door: BrokerDoor,
) -> None:
    dice = random.Random(seed)  # noqa: S311 -- repeatable, not secret
    given = {number: answers(dice) for number in range(JOBS)}
    left = {number: list(reversed(of_one)) for number, of_one in given.items()}
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    worker = Worker(backend, Work, random_source=dice.random)

    @worker.handler(Do)
    def do(job: Do, context: JobContext) -> None:
        calls[job.number].append((context.attempt, context.deferrals))
        answer = left[job.number].pop() if left[job.number] else None
        if answer is not None:
            raise answer

    Producer(backend, Work).enqueue_many([Do(number) for number in range(JOBS)])
    with worker:
        while worker.step(timeout=3600):
            pass

    paths = {number: path(of_one) for number, of_one in given.items()}
    assert dict(calls) == {number: expected for number, (expected, _) in paths.items()}
    dead = sorted(envelope.decode(Do).number for envelope, _ in dead_letters(Work.some))
    assert dead == [number for number, (_, ends_well) in paths.items() if not ends_well]
    assert door.depth(Work.some.name) == 0
    assert worker.settle_failures == 0
