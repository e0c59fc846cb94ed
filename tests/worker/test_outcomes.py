"""What becomes of a job, by how its handler ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
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


class Mail(QueueSet, prefix="outcomes"):
    patient = Queue(prefetch=1, retry=RetryPolicy.fixed(3, 0.1))
    strict = Queue(prefetch=1)


@job(Mail.patient)
class Send(Job[Mail]):
    to: str


@job(Mail.strict)
class SendOnce(Job[Mail]):
    to: str


class Answers:
    """A handler that raises what it was given, one for each call, and keeps the contexts it was called with."""

    def __init__(self, *answers: BaseException | None) -> None:
        self.answers = list(answers)
        self.seen: list[JobContext] = []

    def handle(self, _job: Send | SendOnce, context: JobContext) -> None:
        self.seen.append(context)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


DeadLetters = Callable[[Any], list[tuple[Envelope, str]]]
MakeWorker = Callable[..., Worker[Mail]]


@pytest.fixture
def producer(backend: RabbitMqBackend) -> Producer[Mail]:
    return Producer(backend, Mail)


@pytest.fixture
def make_worker(backend: RabbitMqBackend) -> MakeWorker:
    def make(handler: Answers, **how: Any) -> Worker[Mail]:
        worker = Worker(backend, Mail, **how)
        worker.register(Send, handler)
        worker.register(SendOnce, handler)
        return worker

    return make


def is_empty(door: BrokerDoor, queue: Any) -> bool:
    return door.depth(queue.name) == 0 and door.depth(f"{queue.name}.dead") == 0


def test_success_acks(producer: Producer[Mail], make_worker: MakeWorker, door: BrokerDoor) -> None:
    job_id = producer.enqueue(Send("ada"))
    handler = Answers()
    make_worker(handler).run(burst=True)
    assert [(c.job_id, c.attempt, c.queue) for c in handler.seen] == [(job_id, 1, Mail.patient.name)]
    assert is_empty(door, Mail.patient)


@pytest.mark.parametrize("failure", [Retryable("503"), ValueError("any other"), Retryable("503", delay=0.1)])
def test_a_failure_comes_back_as_attempt_2_and_then_succeeds(
    producer: Producer[Mail],
    make_worker: MakeWorker,
    door: BrokerDoor,
    queuey_clock: QueueyClock,
    failure: Exception,
) -> None:
    producer.enqueue(Send("ada"))
    handler = Answers(failure)
    worker = make_worker(handler)
    worker.run(burst=True)
    assert [c.attempt for c in handler.seen] == [1]
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert [(c.attempt, c.max_attempts, c.is_last_attempt) for c in handler.seen] == [(1, 3, False), (2, 3, False)]
    assert is_empty(door, Mail.patient)


def test_a_job_comes_back_with_its_id_and_correlation_unchanged(
    producer: Producer[Mail], make_worker: MakeWorker, queuey_clock: QueueyClock
) -> None:
    job_id = producer.enqueue(Send("ada"), correlation_id="request 7")
    handler = Answers(Retryable("503"))
    worker = make_worker(handler)
    worker.run(burst=True)
    queuey_clock.advance(0.15)
    worker.run(burst=True)
    assert [(c.job_id, c.correlation_id) for c in handler.seen] == [(job_id, "request 7")] * 2
    assert handler.seen[1].age_ms >= 100


def test_exhausted_attempts_dead_letter_with_a_reason_that_says_so_and_the_last_error(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters, queuey_clock: QueueyClock
) -> None:
    producer.enqueue(Send("ada"))
    handler = Answers(Retryable("first"), Retryable("second"), ValueError("third"))
    worker = make_worker(handler)
    for _ in range(3):
        worker.run(burst=True)
        queuey_clock.advance(0.15)
    [(envelope, reason)] = dead_letters(Mail.patient)
    assert (envelope.attempt, reason) == (3, "gave up after attempt 3 of 3: ValueError: third")
    assert [c.is_last_attempt for c in handler.seen] == [False, False, True]


def test_fatal_dead_letters_at_attempt_1_whatever_the_policy(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    producer.enqueue(Send("nobody"))
    make_worker(Answers(Fatal("no such mailbox"))).run(burst=True)
    [(envelope, reason)] = dead_letters(Mail.patient)
    assert (envelope.attempt, reason) == (1, "fatal: no such mailbox")


def test_one_attempt_means_a_dead_letter_on_the_first_failure(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    producer.enqueue(SendOnce("ada"))
    make_worker(Answers(Retryable("503"))).run(burst=True)
    [(_, reason)] = dead_letters(Mail.strict)
    assert reason == "gave up after attempt 1 of 1: Retryable: 503"


def test_a_job_without_a_handler_is_dead_lettered_with_that_reason(
    producer: Producer[Mail], backend: RabbitMqBackend, dead_letters: DeadLetters
) -> None:
    producer.enqueue(Send("ada"))
    Worker(backend, Mail).run(burst=True)
    [(envelope, reason)] = dead_letters(Mail.patient)
    assert (envelope.decode(Send), reason) == (Send("ada"), "no handler for job type 'send'")


def test_an_undecodable_payload_is_dead_lettered_and_its_handler_never_called(
    producer: Producer[Mail], backend: RabbitMqBackend, make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    handler = Answers()
    worker = make_worker(handler)
    job_id = producer.enqueue(Send("ada"))
    backend.publish(
        Envelope(job_id=job_id, job_type="send", queue=Mail.patient.name, enqueued_at_ms=0, payload={"too": "ada"})
    )
    worker.run(burst=True)
    [(envelope, reason)] = dead_letters(Mail.patient)
    assert envelope.payload == {"too": "ada"}
    assert reason == "undecodable payload: msgspec.ValidationError: Object missing required field `to`"
    assert len(handler.seen) == 1


@pytest.mark.parametrize(
    "raised", [SystemExit(3), GeneratorExit(), BaseException("bare"), MemoryError(), RecursionError("deep")]
)
def test_whatever_a_handler_raises_fails_its_attempt_and_the_worker_lives(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters, raised: BaseException
) -> None:
    producer.enqueue(SendOnce("ada"))
    producer.enqueue(SendOnce("grace"))
    handler = Answers(raised)
    make_worker(handler).run(burst=True)
    assert len(handler.seen) == 2
    [(envelope, reason)] = dead_letters(Mail.strict)
    assert envelope.decode(SendOnce) == SendOnce("ada")
    assert type(raised).__name__ in reason


def test_a_keyboard_interrupt_in_the_main_thread_ends_the_burst_and_the_job_goes_back(
    producer: Producer[Mail], make_worker: MakeWorker, door: BrokerDoor
) -> None:
    producer.enqueue(SendOnce("ada"))
    with pytest.raises(KeyboardInterrupt):
        make_worker(Answers(KeyboardInterrupt())).run(burst=True)
    assert door.comes_to(Mail.strict.name, 1)
    handler = Answers()
    make_worker(handler).run(burst=True)
    assert [c.attempt for c in handler.seen] == [1]


@job(Mail.strict)
class Checked(msgspec.Struct, Job[Mail], frozen=True):
    raises: str = ""

    def __post_init__(self) -> None:
        if self.raises:
            raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[self.raises]


def test_a_payload_whose_own_code_exits_is_undecodable_and_the_worker_lives(
    backend: RabbitMqBackend, dead_letters: DeadLetters
) -> None:
    worker = Worker(backend, Mail)
    called: list[Checked] = []
    worker.register(Checked, called.append)
    Producer(backend, Mail).enqueue(Checked())
    backend.publish(checked(backend, "exit"))
    worker.run(burst=True)
    assert called == [Checked()]
    assert [reason for _, reason in dead_letters(Mail.strict)] == ["undecodable payload: SystemExit: 3"]


def test_a_keyboard_interrupt_while_a_payload_is_decoded_ends_the_burst_and_the_job_goes_back(
    backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    worker = Worker(backend, Mail)
    worker.register(Checked, print)
    backend.publish(checked(backend, "interrupt"))
    with pytest.raises(KeyboardInterrupt):
        worker.run(burst=True)
    assert door.comes_to(Mail.strict.name, 1)


def checked(backend: RabbitMqBackend, raises: str) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(),
        job_type="checked",
        queue=Mail.strict.name,
        enqueued_at_ms=backend.now_ms(),
        payload={"raises": raises},
    )


def test_an_error_that_cannot_be_written_as_text_is_settled_all_the_same(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    producer.enqueue(SendOnce("ada"))
    make_worker(Answers(UnspeakableError())).run(burst=True)
    [(_, reason)] = dead_letters(Mail.strict)
    assert "UnspeakableError: (its text cannot be had: RuntimeError)" in reason


class DeferredWithoutDelay(Deferred):
    def __init__(self) -> None:  # as somebody writes who forgets super().__init__
        pass


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("raised", [DeferredWithoutDelay(), Fatal(Unspeakable())])
def test_an_error_that_does_not_say_what_it_should_is_dead_lettered_and_the_worker_lives(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters, raised: Exception
) -> None:
    producer.enqueue_many([SendOnce("ada"), SendOnce("grace")])
    handler = Answers(raised)
    make_worker(handler).run(burst=True)
    assert len(handler.seen) == 2
    [(_, reason)] = dead_letters(Mail.strict)
    assert reason.startswith(f"what follows from {type(raised).__name__} cannot be decided: ")


def test_a_deferral_that_no_hold_queue_can_wait_fails_the_attempt(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    producer.enqueue(SendOnce("ada"))
    worker = make_worker(Answers(Deferred(30 * 86_400)))
    worker.run(burst=True)
    [(_, reason)] = dead_letters(Mail.strict)
    assert "longer than a hold queue can wait" in reason
    assert worker.settle_failures == 0


def test_a_retry_that_no_hold_queue_can_wait_is_dead_lettered_with_both_reasons(
    producer: Producer[Mail], make_worker: MakeWorker, dead_letters: DeadLetters
) -> None:
    producer.enqueue(Send("ada"))
    make_worker(Answers(Retryable("503", delay=30 * 86_400))).run(burst=True)
    [(_, reason)] = dead_letters(Mail.patient)
    assert reason.startswith("cannot be tried again: ")
    assert "longer than a hold queue can wait" in reason
    assert reason.endswith("the last error was Retryable: 503")


def test_a_failed_settle_is_counted_and_the_job_delivered_again_after_a_backoff(
    producer: Producer[Mail],
    make_worker: MakeWorker,
    door: BrokerDoor,
    queuey_clock: QueueyClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer.enqueue(SendOnce("ada"))
    handler = Answers(Fatal("no such mailbox"))
    with make_worker(handler, settle_backoff=0.2) as worker:
        door.delete(f"{Mail.strict.name}.dead")
        assert worker.step(timeout=5)
        assert worker.settle_failures == 1
        assert "could not be told what became of job" in caplog.text
        assert not worker.step()  # it neither comes round at once ...
        queuey_clock.advance(0.25)
        assert worker.step(timeout=5)  # ... nor keeps its place in the prefetch, which is 1
        assert not worker.step()
    assert [c.attempt for c in handler.seen] == [1, 1]
    assert worker.settle_failures == 1
