"""Headers travel beside a job, wherever it goes: trace context, and what other programs have said of the message."""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    DeadLetters,
    Deferred,
    Envelope,
    Job,
    JobContext,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Retryable,
    RetryPolicy,
    SerializationError,
    Worker,
    codec,
    job,
)
from queuey_rabbitmq.amqp import Properties

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Work(QueueSet, prefix="headers"):
    some = Queue(prefetch=1, retry=RetryPolicy.fixed(2, 0.1))


@job(Work.some)
class Do(Job[Work]):
    number: int


def envelope(**headers: Any) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(),
        job_type="do",
        queue=Work.some.name,
        enqueued_at_ms=0,
        payload={"number": 1},
        headers=headers,
    )


class Answers:
    """A handler that raises what it was given, one after the other, and keeps the headers that it saw."""

    def __init__(self, *answers: Exception) -> None:
        self.answers = list(answers)
        self.seen: list[dict[str, Any]] = []

    def handle(self, _job: Do, context: JobContext) -> None:
        self.seen.append(dict(context.headers))
        if self.answers:
            raise self.answers.pop(0)


def run(backend: RabbitMqBackend, clock: QueueyClock, handler: Answers, *, times: int) -> None:
    worker = Worker(backend, Work)
    worker.register(Do, handler)
    for _ in range(times):
        worker.run(burst=True)
        clock.advance(0.15)


def test_headers_go_through_holds_retries_a_dead_letter_and_a_requeue(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    handler = Answers(Deferred(0.1), Retryable("503"), Retryable("503"))
    backend.declare([Work.some.config])
    backend.publish(envelope(traceparent=TRACEPARENT, tenant=7), delay=0.1)
    queuey_clock.advance(0.15)
    run(backend, queuey_clock, handler, times=3)
    [letter] = DeadLetters(backend, Work.some)
    assert letter.envelope is not None
    assert letter.envelope.headers["traceparent"] == TRACEPARENT
    assert DeadLetters(backend, Work.some).requeue(attempt="first").done == 1
    run(backend, queuey_clock, handler, times=1)
    assert [(seen["traceparent"], seen["tenant"]) for seen in handler.seen] == [(TRACEPARENT, 7)] * 4
    assert [(seen["x-attempt"], seen["x-deferrals"]) for seen in handler.seen] == [(1, 0), (1, 1), (2, 1), (1, 0)]


def test_headers_of_another_program_go_on_and_what_was_true_of_one_message_does_not(
    backend: RabbitMqBackend, queuey_clock: QueueyClock, door: BrokerDoor
) -> None:
    backend.declare([Work.some.config])
    door.declare("headers.elsewhere", arguments={})
    foreign = {"table": {"list": [1, "two", True, b"\xff"]}, "x-attempts": 9, "x-death-reason": "long ago"}
    foreign |= {"CC": ["headers.elsewhere"], "x-delivery-count": 3}
    door.publish(Work.some.name, envelope().to_bytes(), Properties(headers=foreign))
    assert door.depth("headers.elsewhere") == 1  # the broker sent what it was told to
    run(backend, queuey_clock, Answers(Retryable("503")), times=1)
    message = door.get(Work.some.name)
    assert message is not None
    own = {name: value for name, value in message.headers.items() if not name.startswith(("x-first", "x-last"))}
    assert [death["count"] for death in own.pop("x-death")] == [1]
    assert own == {"table": foreign["table"], "x-attempt": 2, "x-deferrals": 0}
    assert door.depth("headers.elsewhere") == 1


def test_headers_that_fill_a_frame_do_not_keep_a_job_from_its_dead_queue(
    backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    backend.declare([Work.some.config])
    headers = {"first": "kept", "huge": ["x" * 100] * 900, "last": "kept"}
    door.publish(Work.some.name, envelope().to_bytes(), Properties(headers=headers))
    with backend.consume(Work.some.config) as deliveries:
        delivery = deliveries.get(timeout=5)
        assert delivery is not None
        delivery.dead_letter("é" * 100_000)
    message = door.get(f"{Work.some.name}.dead")
    assert message is not None
    assert message.headers.keys() & headers.keys() == {"first", "last"}


def test_headers_that_cannot_be_decoded_do_not_keep_a_job_from_being_settled() -> None:
    class NotANumber(Mapping[str, Any]):  # as pika finds it in a header that is a double
        def __len__(self) -> int:
            raise ValueError("cannot convert float NaN to integer")

        __iter__ = __getitem__ = __len__  # type: ignore[assignment] -- none of them says anything

    job = Envelope.from_bytes(envelope().to_bytes(), NotANumber())
    assert codec.message_properties(job.next_attempt()).headers == {"x-attempt": 2, "x-deferrals": 0}


def test_an_envelope_keeps_its_headers_and_is_equal_without_them() -> None:
    plain = envelope()
    job = plain.with_headers({"a": 1, "b": 2}).with_headers({"b": 3})
    assert job == plain
    for other in (job.next_attempt(), job.first_attempt(), job.deferred(3), copy.deepcopy(job)):
        assert other.headers == {"a": 1, "b": 3}
    assert pickle.loads(pickle.dumps(job)).headers == {"a": 1, "b": 3}  # noqa: S301 -- our own bytes
    assert plain.headers == {}
    assert Envelope.with_payload_json(
        b"1", job_id=job.job_id, job_type="do", queue="q", enqueued_at_ms=0, headers={"a": 1}
    ).headers == {"a": 1}
    with pytest.raises(TypeError):
        job.headers["a"] = 2  # type: ignore[index] -- that is the test


@pytest.mark.parametrize("make", [lambda names: envelope().with_headers(names), lambda names: envelope(**names)])
def test_a_header_whose_name_is_no_text_is_refused(make: Callable[[Any], Envelope]) -> None:
    with pytest.raises(SerializationError, match="`headers`"):
        make({"\ud800": 1})


def test_a_header_whose_name_no_short_string_holds_is_refused_before_anything_is_sent() -> None:
    assert envelope(**{"é" * 127: 1}).headers
    with pytest.raises(
        SerializationError, match=r"^envelope field `headers`: a name has at most 255 .* not 256: 'ééé+'"
    ):
        envelope(**{"é" * 128: 1})
    with pytest.raises(SerializationError, match="at most 255 bytes"):
        envelope().with_headers({"x" * 256: 1})


def test_the_size_of_carried_headers_is_never_estimated_too_small() -> None:
    pika_data = pytest.importorskip("pika.data")
    for value in ("é" * 9, b"\xff" * 9, 7, 2**40, None, True, {"a": [1, {"b": "c"}]}, [None] * 9):
        pieces: list[bytes] = []
        pika_data.encode_table(pieces, {"name": value})
        assert codec._size({"name": value}) >= len(b"".join(pieces))
