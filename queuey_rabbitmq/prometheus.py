"""Hooks that count for Prometheus what happens to jobs. Needs the extra `prometheus`: prometheus_client.

`Worker(backend, Emails, hooks=[PrometheusHooks()])`, and the same for a `Producer`; to serve the numbers is the
application's (`prometheus_client.start_http_server(9100)`). Labels are the queue, the job type and the outcome, never a
job's id.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from queuey_rabbitmq.core.hooks import Hooks

if TYPE_CHECKING:
    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.job_context import JobContext

LABELS = ("queue", "job_type")

TOOK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
AGE_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)


class PrometheusHooks(Hooks):
    """Count jobs in `registry`; one of these for a process, as a name stands in a registry once.

    `queuey_jobs_enqueued_total`; `queuey_job_age_seconds`, since a job was first enqueued, when an attempt starts;
    `queuey_job_attempt_seconds`, what handlers took, with the outcome (succeeded, retried, deferred, dead_lettered),
    whose `_count` is how many; `queuey_job_settle_failures_total`, outcomes that the broker was not told.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._enqueued = Counter(
            "queuey_jobs_enqueued", "Jobs that the broker has confirmed.", LABELS, registry=registry
        )
        self._age = Histogram(
            "queuey_job_age_seconds",
            "Since a job was first enqueued, when an attempt starts.",
            LABELS,
            buckets=AGE_S,
            registry=registry,
        )
        self._attempts = Histogram(
            "queuey_job_attempt_seconds",
            "What handlers took, by what became of the job.",
            (*LABELS, "outcome"),
            buckets=TOOK_S,
            registry=registry,
        )
        self._settle_failures = Counter(
            "queuey_job_settle_failures", "Outcomes that the broker was not told.", LABELS, registry=registry
        )

    def enqueued(self, envelope: Envelope, delay: timedelta | None) -> None:
        """Count a job that the broker has confirmed."""
        del delay
        self._enqueued.labels(envelope.queue, envelope.job_type).inc()

    def started(self, context: JobContext) -> None:
        """Observe how old a job is."""
        self._age.labels(context.queue, context.job_type).observe(context.age_ms / 1000)

    def succeeded(self, context: JobContext, took: float) -> None:
        """Observe a job that is done."""
        self._observe(context, "succeeded", took)

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """Observe an attempt that failed and is followed by another."""
        del error, delay
        self._observe(context, "retried", took)

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """Observe a job that is held."""
        del reason, delay
        self._observe(context, "deferred", took)

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """Observe a job that goes to the dead queue."""
        del reason, error
        self._observe(context, "dead_lettered", took)

    def settle_failed(self, context: JobContext, error: BaseException) -> None:
        """Count an outcome that the broker was not told."""
        del error
        self._settle_failures.labels(context.queue, context.job_type).inc()

    def _observe(self, context: JobContext, outcome: str, took: float) -> None:
        self._attempts.labels(context.queue, context.job_type, outcome).observe(took)
