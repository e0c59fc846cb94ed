"""What OpenTelemetry is shown of jobs: one trace from the request that enqueues to the last attempt."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    DeadLetters,
    Deferred,
    Envelope,
    Fatal,
    Job,
    JobsNotConfirmedError,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    UnroutableError,
    Worker,
    job,
)
from queuey_rabbitmq.opentelemetry import OpenTelemetryHooks


class Traced(QueueSet, prefix="traced"):
    jobs = Queue(prefetch=1, retry=RetryPolicy.fixed(2, 0.1))
    gone = Queue()


@job(Traced.jobs)
class Do(Job[Traced]):
    what: str


@job(Traced.gone)
class DoNothing(Job[Traced]):
    what: str


class Traces:
    """Spans as an SDK exports them, and the hooks that make them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("the application")
        self.hooks = OpenTelemetryHooks(tracer_provider=provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def outcomes(self) -> list[Any]:
        return [dict(span.attributes or {})["queuey.outcome"] for span in self.spans("process")]


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def producer(backend: RabbitMqBackend, traces: Traces) -> Producer[Traced]:
    return Producer(backend, Traced, hooks=[traces.hooks])


@pytest.fixture
def worker(backend: RabbitMqBackend, traces: Traces) -> Worker[Traced]:
    return Worker(backend, Traced, hooks=[traces.hooks])


def run(worker: Worker[Traced], clock: QueueyClock, *, times: int) -> None:
    for _ in range(times):
        worker.run(burst=True)
        clock.advance(0.15)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_one_trace_goes_through_deferral_retry_dead_letter_and_requeue(
    backend: RabbitMqBackend,
    traces: Traces,
    producer: Producer[Traced],
    worker: Worker[Traced],
    queuey_clock: QueueyClock,
) -> None:
    answers = [Deferred(0.1, "429"), Retryable("503"), ValueError("broken"), None]

    @worker.handler(Do)
    def do(_job: Do) -> None:
        with traces.tracer.start_as_current_span("inside"):
            answer = answers.pop(0)
        if answer is not None:
            raise answer

    with traces.tracer.start_as_current_span("request") as request:
        producer.enqueue(Do("it"), correlation_id="request 7")
    run(worker, queuey_clock, times=3)
    assert DeadLetters(backend, Traced.jobs).requeue().done == 1
    run(worker, queuey_clock, times=1)

    [sent] = traces.spans("send")
    assert parent_of(sent) == request.get_span_context().span_id
    assert traces.outcomes() == ["deferred", "retried", "dead_lettered", "succeeded"]
    processed = traces.spans("process")
    assert {span.context.trace_id for span in (*processed, *traces.spans("inside"))} == {sent.context.trace_id}
    assert [parent_of(span) for span in processed] == [sent.context.span_id] * 4
    assert [[link.context.span_id for link in span.links] for span in processed] == [[sent.context.span_id]] * 4
    assert [parent_of(span) for span in traces.spans("inside")] == [span.context.span_id for span in processed]
    unset, error = StatusCode.UNSET, StatusCode.ERROR
    assert [span.status.status_code for span in processed] == [unset, error, error, unset]
    assert [[event.name for event in span.events] for span in processed] == [[], ["exception"], ["exception"], []]


def test_spans_have_the_attributes_of_the_conventions(
    traces: Traces, producer: Producer[Traced], worker: Worker[Traced], queuey_clock: QueueyClock
) -> None:
    worker.register(Do, lambda _: 1 // 0)
    job_id = producer.enqueue(Do("it"), correlation_id="request 7", priority=3)
    run(worker, queuey_clock, times=1)
    [sent], [processed] = traces.spans("send"), traces.spans("process")
    assert (sent.name, sent.kind) == ("send traced.jobs", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("process traced.jobs", SpanKind.CONSUMER)
    common = {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": "traced.jobs",
        "messaging.message.id": str(job_id),
        "messaging.message.conversation_id": "request 7",
        "queuey.job.type": "do",
        "queuey.job.priority": 3,
    }
    assert dict(sent.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rabbitmq.destination.routing_key": "traced.jobs",
    }
    known = dict(processed.attributes or {})
    assert known.pop("queuey.job.age") is not None
    assert known == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "queuey.job.attempt": 1,
        "queuey.job.max_attempts": 2,
        "queuey.job.deferrals": 0,
        "queuey.outcome": "retried",
        "queuey.job.delay": 0.1,
        "error.type": "ZeroDivisionError",
    }


def test_baggage_and_trace_state_reach_the_handler_and_the_jobs_that_it_enqueues(
    traces: Traces, producer: Producer[Traced], worker: Worker[Traced], queuey_clock: QueueyClock
) -> None:
    seen = []

    @worker.handler(Do)
    async def do(job: Do) -> None:
        seen.append((job.what, baggage.get_baggage("tenant")))
        if job.what == "first":
            await producer.enqueue_async(Do("second"))

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        producer.enqueue(Do("first"))
    finally:
        context.detach(token)
    run(worker, queuey_clock, times=1)
    assert seen == [("first", "acme"), ("second", "acme")]
    first_sent, second_sent = traces.spans("send")
    first_processed, _ = traces.spans("process")
    assert parent_of(second_sent) == first_processed.context.span_id
    assert second_sent.context.trace_id == first_sent.context.trace_id


def test_a_job_that_came_without_a_trace_begins_one(
    backend: RabbitMqBackend, traces: Traces, worker: Worker[Traced], queuey_clock: QueueyClock
) -> None:
    worker.register(Do, lambda _: None)
    with traces.tracer.start_as_current_span("whoever runs the burst"):
        Producer(backend, Traced).enqueue(Do("it"))
        run(worker, queuey_clock, times=1)
    [processed] = traces.spans("process")
    assert (processed.parent, list(processed.links)) == (None, [])
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.parametrize("payload", [{"what": "it"}, {"that": "it"}])
def test_a_job_without_a_handler_and_one_that_cannot_be_decoded_have_a_span_too(
    backend: RabbitMqBackend, traces: Traces, queuey_clock: QueueyClock, payload: dict[str, str]
) -> None:
    worker = Worker(backend, Traced, hooks=[traces.hooks])
    handlers: dict[str, Callable[[Any], None]] = {"that": print}
    for _ in handlers.keys() & payload.keys():
        worker.register(Do, print)
    given = Envelope(
        job_id=Producer(backend, Traced)._new_job_id(),
        job_type="do",
        queue=Traced.jobs.name,
        enqueued_at_ms=0,
        payload=payload,
    )
    backend.publish(given)
    run(worker, queuey_clock, times=1)
    [processed] = traces.spans("process")
    assert traces.outcomes() == ["dead_lettered"]
    assert processed.status.status_code == StatusCode.ERROR
    assert str(dict(processed.attributes or {})["queuey.reason"]).startswith(("no handler", "undecodable payload"))


def test_jobs_that_were_not_confirmed_are_errors(traces: Traces, producer: Producer[Traced], door: BrokerDoor) -> None:
    door.delete(Traced.gone.name)
    with pytest.raises(UnroutableError):
        producer.enqueue(DoNothing("it"))
    with pytest.raises(JobsNotConfirmedError):
        producer.enqueue_many([Do("it"), DoNothing("it")])
    with pytest.raises(UnroutableError):
        asyncio.run(producer.enqueue_async(DoNothing("it")))
    ended = [(span.name, span.status.status_code.name) for span in traces.spans("send")]
    error, fine = ("send traced.gone", "ERROR"), ("send traced.jobs", "UNSET")
    assert ended == [error, fine, error, error]
    kinds = {dict(span.attributes or {}).get("error.type") for span in traces.spans("send traced.gone")}
    assert kinds == {"queuey_rabbitmq.core.errors.UnroutableError"}


def test_an_outcome_that_the_broker_was_not_told_is_an_error_and_nothing_is_left_open(
    traces: Traces, producer: Producer[Traced], worker: Worker[Traced], door: BrokerDoor
) -> None:
    @worker.handler(Do)
    def do(job: Do) -> None:
        door.delete(f"{Traced.jobs.name}.dead")
        raise Fatal(job.what)

    producer.enqueue(Do("it"))
    with worker:
        assert worker.step(timeout=5)
    assert worker.settle_failures == 1
    assert traces.outcomes() == ["dead_lettered"]
    hooks = traces.hooks
    assert (hooks._sending, hooks._processing, hooks._attached) == ({}, {}, {})


def test_nothing_else_loads_opentelemetry() -> None:
    program = "import sys\nfrom queuey_rabbitmq import Hooks, Producer, Worker\nprint('opentelemetry' in sys.modules)"
    done = subprocess.run(  # noqa: S603 -- our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
