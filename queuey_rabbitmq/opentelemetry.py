"""Hooks that show OpenTelemetry what happens to jobs, as spans. Needs the extra `opentelemetry`: opentelemetry-api.

`Producer(backend, Emails, hooks=[OpenTelemetryHooks()])`, and the same for a `Worker`; where spans go is the
application's, by an SDK. Names and attributes are those of OpenTelemetry's semantic conventions for messaging, with
queuey's own under `queuey.`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from queuey_rabbitmq.core.hooks import Hooks

if TYPE_CHECKING:
    import uuid
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.job_context import JobContext

SYSTEM = "rabbitmq"


class OpenTelemetryHooks(Hooks):
    """Make a span "send" for each job that is enqueued, and a span "process" for each attempt at it.

    The context of "send" travels in the message's headers (traceparent, tracestate, baggage), through holds, retries,
    dead letters and requeueing: each "process" is its child and links to it, and is the current span while the
    handler runs. A failed attempt is an error with its exception, a deferral is none. Provider and propagator are
    OpenTelemetry's global ones unless they are given.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer = trace.get_tracer("queuey_rabbitmq", tracer_provider=tracer_provider)
        self._propagator = propagate.get_global_textmap() if propagator is None else propagator
        self._lock = threading.Lock()
        self._sending: dict[uuid.UUID, Span] = {}
        self._processing: dict[int, tuple[JobContext, Span]] = {}
        self._attached: dict[int, Token[Context]] = {}

    def enqueuing(self, envelope: Envelope, delay: timedelta | None) -> Mapping[str, str]:
        """Start a span, and let its context travel with the job."""
        attributes: dict[str, AttributeValue] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": envelope.queue,
            "messaging.rabbitmq.destination.routing_key": envelope.queue,
            "messaging.message.id": str(envelope.job_id),
            "queuey.job.type": envelope.job_type,
            "queuey.job.priority": envelope.priority,
        }
        if envelope.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = envelope.correlation_id
        if delay is not None:
            attributes["queuey.job.delay"] = delay.total_seconds()
        span = self._tracer.start_span(f"send {envelope.queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        with self._lock:
            self._sending[envelope.job_id] = span
        headers: dict[str, str] = {}
        self._propagator.inject(headers, trace.set_span_in_context(span))
        return headers

    def enqueued(self, envelope: Envelope, delay: timedelta | None) -> None:
        """End the span of a job that the broker has confirmed."""
        del delay
        with self._lock:
            span = self._sending.pop(envelope.job_id, None)
        if span is not None:
            span.end()

    def enqueue_failed(self, envelope: Envelope, error: BaseException) -> None:
        """End the span of a job that was not confirmed as an error."""
        with self._lock:
            span = self._sending.pop(envelope.job_id, None)
        if span is not None:
            _fail(span, error)
            span.end()

    def started(self, context: JobContext) -> None:
        """Start a span that belongs to the one with which the job was sent, and make it the current one."""
        span, carried = self._start(context)
        with self._lock:
            self._processing[id(context)] = context, span
            self._attached[id(context)] = contexts.attach(trace.set_span_in_context(span, carried))

    def handler_ended(self, context: JobContext) -> None:
        """Make the span the current one no more."""
        with self._lock:
            token = self._attached.pop(id(context), None)
        if token is not None:
            contexts.detach(token)

    def succeeded(self, context: JobContext, took: float) -> None:
        """End the span of an attempt that did the job."""
        del took
        self._end(context, "succeeded")

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """End the span of an attempt that failed and is followed by another."""
        del took
        self._end(context, "retried", error, {"queuey.job.delay": delay.total_seconds()})

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """End the span of an attempt that was too early."""
        del took
        self._end(context, "deferred", None, {"queuey.job.delay": delay.total_seconds(), "queuey.reason": reason})

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """End the span of a job that goes to the dead queue; it has one, whether it had a handler or not."""
        del took
        with self._lock:
            is_new = id(context) not in self._processing
        if is_new:
            span, _ = self._start(context)
            with self._lock:
                self._processing[id(context)] = context, span
        self._end(context, "dead_lettered", error, {"queuey.reason": reason}, description=reason)

    def settle_failed(self, context: JobContext, error: BaseException) -> None:
        """End the span of an attempt whose outcome the broker was not told."""
        self._end(context, "settle_failed", error)

    def given_back(self, context: JobContext) -> None:
        """End the span of an attempt that its worker did not wait for."""
        self._end(context, "given_back")

    def _start(self, context: JobContext) -> tuple[Span, Context]:
        headers = {name: value for name, value in context.headers.items() if isinstance(value, str)}
        carried = self._propagator.extract(headers, contexts.Context())
        sent = trace.get_current_span(carried).get_span_context()
        attributes: dict[str, AttributeValue] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": context.queue,
            "messaging.message.id": str(context.job_id),
            "queuey.job.type": context.job_type,
            "queuey.job.attempt": context.attempt,
            "queuey.job.max_attempts": context.max_attempts,
            "queuey.job.deferrals": context.deferrals,
            "queuey.job.priority": context.priority,
            "queuey.job.age": context.age_ms / 1000,
        }
        if context.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = context.correlation_id
        span = self._tracer.start_span(
            f"process {context.queue}",
            context=carried,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(sent)] if sent.is_valid else (),
        )
        return span, carried

    def _end(
        self,
        context: JobContext,
        outcome: str,
        error: BaseException | None = None,
        more: Mapping[str, Any] | None = None,
        *,
        description: str | None = None,
    ) -> None:
        with self._lock:
            found = self._processing.pop(id(context), None)
        if found is None:
            return
        span = found[1]
        span.set_attribute("queuey.outcome", outcome)
        span.set_attributes(more or {})
        if error is not None:
            _fail(span, error)
        elif description is not None:
            span.set_status(Status(StatusCode.ERROR, description))
            span.set_attribute("error.type", outcome)
        span.end()


def _fail(span: Span, error: BaseException) -> None:
    kind = type(error)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{kind.__name__}: {error}"))
    span.set_attribute("error.type", kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind))


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
