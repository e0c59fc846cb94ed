"""What Prometheus is told about the jobs of producers and workers."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    BackendError,
    Deferred,
    Fatal,
    Job,
    JobContext,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    RetryPolicy,
    Worker,
    job,
)
from queuey_rabbitmq.prometheus import PrometheusHooks


class Counted(QueueSet, prefix="prometheus"):
    jobs = Queue(retry=RetryPolicy.exponential(2, base=60))


@job(Counted.jobs)
class Do(Job[Counted]):
    what: str


LABELS = {"queue": "prometheus.jobs", "job_type": "do"}


def count(registry: CollectorRegistry, name: str, **more: str) -> float | None:
    return registry.get_sample_value(name, LABELS | more)


def test_jobs_are_counted_by_queue_type_and_outcome(queuey_backend: RabbitMqBackend, queuey_clock: QueueyClock) -> None:
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    Producer(queuey_backend, Counted, hooks=[hooks]).enqueue_many([Do(what) for what in ("ok", "again", "wait", "die")])
    queuey_clock.advance(0.2)
    worker = Worker(queuey_backend, Counted, hooks=[hooks])

    @worker.handler(Do)
    def do(job: Do) -> None:
        raises = {"ok": None, "again": ValueError("again"), "wait": Deferred(60), "die": Fatal("die")}[job.what]
        for error in filter(None, [raises]):
            raise error

    worker.run(burst=True)
    assert count(registry, "queuey_jobs_enqueued_total") == 4
    outcomes = ("succeeded", "retried", "deferred", "dead_lettered")
    counts = [count(registry, "queuey_job_attempt_seconds_count", outcome=outcome) for outcome in outcomes]
    assert counts == [1, 1, 1, 1]
    assert count(registry, "queuey_job_age_seconds_count") == 4
    assert (count(registry, "queuey_job_age_seconds_sum") or 0) >= 0.8
    assert count(registry, "queuey_job_settle_failures_total") is None


def test_an_outcome_that_the_broker_was_not_told_is_counted() -> None:
    registry = CollectorRegistry()
    context = JobContext(queue="prometheus.jobs", job_type="do")
    PrometheusHooks(registry).settle_failed(context, BackendError("gone"))
    assert count(registry, "queuey_job_settle_failures_total") == 1


def test_two_in_one_registry_are_refused() -> None:
    registry = CollectorRegistry()
    PrometheusHooks(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusHooks(registry)


def test_nothing_else_loads_prometheus() -> None:
    program = (
        "import sys\nfrom queuey_rabbitmq import Hooks, Producer, Worker\nprint('prometheus_client' in sys.modules)"
    )
    done = subprocess.run(  # noqa: S603 -- our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
