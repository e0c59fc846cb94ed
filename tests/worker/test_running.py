"""A worker that runs in threads: how many jobs at a time, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pytest

from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    BackendError,
    ConsumerCancelledError,
    Envelope,
    InvalidConfigError,
    Job,
    Producer,
    Queue,
    QueueSet,
    RabbitMqBackend,
    Worker,
    handles,
    job,
)
from queuey_rabbitmq.core import worker as running_worker

TIMEOUT_S = 10


class Work(QueueSet, prefix="running"):
    some = Queue(prefetch=4)
    other = Queue(prefetch=2)


@job(Work.some)
class Do(Job[Work]):
    number: int


@job(Work.other)
class DoOther(Job[Work]):
    number: int


class Leisure(QueueSet):
    time = Queue()


@job(Leisure.time)
class Play(Job[Leisure]):
    number: int


class Gate:
    """A handler whose jobs wait until they are let go."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.most = 0
        self.done: list[int] = []
        self.changed = threading.Condition()
        self.is_open = False

    def handle(self, job: Do) -> None:
        with self.changed:
            self.running.append(job.number)
            self.most = max(self.most, len(self.running))
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.is_open, TIMEOUT_S)
            self.running.remove(job.number)
            self.done.append(job.number)
            self.changed.notify_all()

    def open(self) -> None:
        with self.changed:
            self.is_open = True
            self.changed.notify_all()

    def wait_for_running(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.running) == count, TIMEOUT_S), self.running

    def wait_for_done(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.done) == count, TIMEOUT_S), self.done


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait, a little at a time, until something has happened."""
    never = threading.Event()
    for _ in range(1000):
        if happened():
            return
        never.wait(TIMEOUT_S / 1000)
    raise AssertionError(f"it did not happen within {TIMEOUT_S} s")


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make_worker(backend: RabbitMqBackend, gate: Gate) -> Callable[..., Worker[Work]]:
    def make(**how: Any) -> Worker[Work]:
        worker = Worker(backend, Work, **how)
        worker.register(Do, gate)
        return worker

    return make


@pytest.fixture
def producer(backend: RabbitMqBackend) -> Producer[Work]:
    return Producer(backend, Work)


MakeWorker = Callable[..., Worker[Work]]
Start = Callable[..., Any]


def test_no_more_jobs_run_at_a_time_than_the_concurrency_says(
    producer: Producer[Work], make_worker: MakeWorker, gate: Gate, start: Start
) -> None:
    producer.enqueue_many([Do(n) for n in range(12)])
    running = start(make_worker(concurrency=3))
    gate.wait_for_running(3)
    gate.open()
    gate.wait_for_done(12)
    running.shut_down()
    assert gate.most == 3
    assert sorted(gate.done) == list(range(12))


def test_timeouts_and_a_grace_longer_than_any_wait_are_no_limit(
    backend: RabbitMqBackend, producer: Producer[Work], gate: Gate, start: Start
) -> None:
    worker = Worker(backend, Work)
    worker.register(Do, gate, timeout=timedelta.max)
    played: list[int] = []

    @worker.handler(DoOther, timeout=timedelta.max)
    async def play(other: DoOther) -> None:
        played.append(other.number)

    producer.enqueue(Do(1))
    producer.enqueue(DoOther(2))
    running = start(worker)
    gate.wait_for_running(1)
    gate.open()
    wait_until(lambda: played == [2])
    running.shut_down(grace=timedelta.max)
    assert gate.done == [1]


def test_the_concurrency_is_the_sum_of_the_prefetches_unless_it_is_given(
    producer: Producer[Work], make_worker: MakeWorker, gate: Gate, start: Start
) -> None:
    producer.enqueue_many([Do(n) for n in range(12)])
    start(make_worker(only=[Work.some]))
    gate.wait_for_running(4)
    gate.open()
    gate.wait_for_done(12)
    assert gate.most == 4


def test_shutdown_waits_for_what_runs_and_runs_what_was_pulled_and_nothing_is_lost(
    producer: Producer[Work],
    make_worker: MakeWorker,
    gate: Gate,
    start: Start,
    door: BrokerDoor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "queuey_rabbitmq.worker")
    producer.enqueue_many([Do(n) for n in range(10)])
    running = start(make_worker(concurrency=2))
    gate.wait_for_running(2)
    running.worker.shutdown()
    wait_until(lambda: "it takes no more jobs" in caplog.text)
    assert not running.ended.done()
    gate.open()
    running.ended.result(TIMEOUT_S)
    assert sorted(gate.done) == [0, 1, 2, 3]  # the prefetch is 4: two ran, two were pulled
    assert door.comes_to(Work.some.name, 6)
    assert running.worker.settle_failures == 0


def test_after_the_grace_what_still_runs_goes_back_to_the_broker(
    producer: Producer[Work], make_worker: MakeWorker, gate: Gate, start: Start, door: BrokerDoor
) -> None:
    producer.enqueue_many([Do(n) for n in range(6)])
    running = start(make_worker(concurrency=2))
    gate.wait_for_running(2)
    running.shut_down(grace=0)
    assert sorted(gate.running) == [0, 1]  # whichever thread came first
    assert door.comes_to(Work.some.name, 6)
    gate.open()
    gate.wait_for_done(2)


def test_an_outcome_that_comes_after_the_grace_is_counted_as_untold(
    producer: Producer[Work], make_worker: MakeWorker, gate: Gate, start: Start
) -> None:
    producer.enqueue(Do(1))
    running = start(make_worker(concurrency=1))
    gate.wait_for_running(1)
    thread = next(thread for thread in threading.enumerate() if thread.name == "queuey worker 1")
    running.shut_down(grace=0)
    gate.open()
    thread.join(TIMEOUT_S)
    assert running.worker.settle_failures == 1


def test_shutdown_before_run_makes_run_return_at_once(
    producer: Producer[Work], make_worker: MakeWorker, gate: Gate, door: BrokerDoor
) -> None:
    producer.enqueue(Do(1))
    worker = make_worker()
    worker.shutdown()
    worker.run()
    worker.run(burst=True)
    assert gate.running == gate.done == []
    assert door.comes_to(Work.some.name, 1)


def test_shutdown_ends_an_idle_worker_and_leaves_the_backend_open_unless_asked(
    make_worker: MakeWorker, start: Start, producer: Producer[Work], backend: RabbitMqBackend
) -> None:
    start(make_worker()).shut_down()
    producer.enqueue(Do(1))
    start(make_worker(only=[Work.other]), close_backend=True).shut_down()
    with pytest.raises(Exception, match="closed"):
        producer.enqueue(Do(2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_shuts_down_a_worker_that_runs_in_the_main_thread(
    producer: Producer[Work], backend: RabbitMqBackend, number: signal.Signals, door: BrokerDoor
) -> None:
    before = signal.getsignal(number)
    done = []
    worker = Worker(backend, Work, concurrency=1)

    @worker.handler(Do)
    def do(job: Do) -> None:
        os.kill(os.getpid(), number)
        done.append(job.number)

    producer.enqueue(Do(1))
    worker.run()
    assert done == [1]
    assert door.depth(Work.some.name) == 0
    assert signal.getsignal(number) == before


def test_a_signal_that_comes_to_another_thread_shuts_the_worker_down_all_the_same(
    producer: Producer[Work], backend: RabbitMqBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_worker, "LOOKS_EVERY_S", 0.01)
    worker = Worker(backend, Work, concurrency=1)
    looks_after, waited_in_vain = threading.Event(), threading.Event()

    class Events(SimpleQueue[str]):
        def get(self, *how: Any, **more: Any) -> str:
            looks_after.set()
            return super().get(*how, **more)

    monkeypatch.setattr(worker, "_events", Events())
    guard = threading.Timer(TIMEOUT_S, lambda: (waited_in_vain.set(), worker.shutdown()))

    @worker.handler(Do)
    def do(job: Do) -> None:
        assert looks_after.wait(TIMEOUT_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    producer.enqueue(Do(1))
    guard.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # of this thread, and of those of the worker
    try:
        worker.run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        guard.cancel()
    assert not waited_in_vain.is_set()


def test_a_second_signal_ends_the_grace(producer: Producer[Work], make_worker: MakeWorker, gate: Gate) -> None:
    producer.enqueue(Do(1))

    def interrupt() -> None:
        gate.wait_for_running(1)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # two of one kind may come as one

    interrupting = threading.Thread(target=interrupt, daemon=True)
    interrupting.start()
    make_worker(concurrency=1).run()
    interrupting.join()
    assert gate.running == [1]
    gate.open()


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt()])
def test_a_handler_that_wants_the_process_to_end_fails_its_attempt_and_the_worker_lives(
    producer: Producer[Work], backend: RabbitMqBackend, start: Start, raised: BaseException, dead_letters: Any
) -> None:
    done = threading.Event()
    worker = Worker(backend, Work, concurrency=1)

    @worker.handler(Do)
    def do(job: Do) -> None:
        if job.number == 1:
            raise raised
        done.set()

    producer.enqueue_many([Do(1), Do(2)])
    running = start(worker)
    assert done.wait(TIMEOUT_S)
    running.shut_down()
    [(envelope, reason)] = dead_letters(Work.some)
    assert envelope.decode(Do) == Do(1)
    assert type(raised).__name__ in reason


def test_a_worker_that_runs_does_not_run_once_more(
    make_worker: MakeWorker, gate: Gate, producer: Any, start: Start
) -> None:
    producer.enqueue(Do(1))
    running = start(make_worker())
    gate.wait_for_running(1)
    with pytest.raises(RuntimeError, match="runs already"):
        running.worker.run(burst=True)
    gate.open()
    running.shut_down()
    assert gate.done == [1]


def test_a_queue_given_twice_is_consumed_once_and_others_stay_untouched(
    producer: Producer[Work], backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    done = []
    producer.enqueue_many([Do(1), Do(2)])
    producer.enqueue(DoOther(3))
    worker = Worker(backend, Work, only=[Work.some, Work.some])
    worker.register(Do, done.append)
    worker.register(DoOther, done.append)
    with worker:
        assert worker.step(timeout=5)
        look = door.depth(Work.other.name)
        worker.run(burst=True)
    assert done == [Do(1), Do(2)]
    assert look == door.depth(Work.other.name) == 1


@pytest.mark.queuey_broker("fake")
def test_a_queue_given_twice_has_one_consumer(
    backend: RabbitMqBackend, queuey_broker: Any, producer: Producer[Work]
) -> None:
    with Worker(backend, Work, only=[Work.some, Work.some]) as worker:
        worker.step()
        assert {view.name: view.consumers for view in queuey_broker.queues() if "dead" not in view.name} == {
            Work.some.name: 1,
            Work.other.name: 0,
        }


def test_a_queue_that_goes_away_under_its_consumer_is_an_error_that_names_it(
    queuey_broker: Any, make_worker: MakeWorker, gate: Gate, start: Start, door: BrokerDoor
) -> None:
    from queuey_rabbitmq import RabbitMqOptions

    backend = queuey_broker.backend(RabbitMqOptions(reconnect=None))
    producer = Producer(backend, Work)
    producer.enqueue(DoOther(1))
    worker = Worker(backend, Work)
    handled = threading.Event()
    worker.register(DoOther, lambda _: handled.set())
    running = start(worker)
    assert handled.wait(TIMEOUT_S)
    door.delete(Work.some.name)
    with pytest.raises(ConsumerCancelledError, match=f"queue '{Work.some.name}'"):
        running.ended.result(TIMEOUT_S)


def test_a_backend_that_is_closed_under_its_worker_is_an_error(
    backend: RabbitMqBackend, make_worker: MakeWorker, start: Start, producer: Producer[Work], gate: Gate
) -> None:
    producer.enqueue(Do(1))
    running = start(make_worker(concurrency=2))
    gate.wait_for_running(1)
    gate.open()
    gate.wait_for_done(1)
    backend.close()
    with pytest.raises(Exception, match="queue 'running"):
        running.ended.result(TIMEOUT_S)


def test_a_worker_says_which_jobs_it_has_no_handler_for(
    make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    make_worker().run(burst=True)
    assert "no handler for do_other; such jobs will be dead-lettered" in caplog.text
    caplog.clear()
    make_worker(only=[Work.some]).run(burst=True)
    assert "no handler" not in caplog.text


def test_a_worker_that_could_not_read_its_jobs_takes_none(backend: RabbitMqBackend, door: BrokerDoor) -> None:
    class Letters(QueueSet, prefix="running"):
        letters = Queue()

    @job(Letters.letters)
    class Letter(Job[Letters]):
        to: OnlyForTheTypeChecker  # type: ignore[name-defined]  # that is the test  # noqa: F821

    backend.declare([Letters.letters.config])
    door.publish(Letters.letters.name, b"whatever comes")
    worker = Worker(backend, Letters)
    worker.register(Letter, print)
    with pytest.raises(InvalidConfigError, match="Letter: cannot be read from JSON: name 'OnlyForTheTypeChecker'"):
        worker.run(burst=True)
    assert door.get(Letters.letters.name) is not None


def test_a_job_type_has_one_handler_in_a_worker_and_a_job_of_another_set_has_none(backend: RabbitMqBackend) -> None:
    worker = Worker(backend, Work)
    worker.register(Do, print)
    with pytest.raises(InvalidConfigError, match="handler of Do: print is its handler already"):
        worker.handler(Do)(lambda _: None)
    with pytest.raises(InvalidConfigError, match="of Play: it is a job of Leisure, and this is for Work"):
        worker.handler(Play)  # type: ignore[arg-type] -- that is the test


def test_a_handler_that_every_worker_has_gives_way_to_a_workers_own(
    backend: RabbitMqBackend, caplog: pytest.LogCaptureFixture
) -> None:
    class Shared(QueueSet):
        queue = Queue()

    @job(Shared.queue)
    class DoShared(Job[Shared]):
        number: int

    done: list[str] = []
    handles(DoShared)(lambda job: done.append(f"every worker: {job.number}"))
    own = Worker(backend, Shared)
    own.register(DoShared, lambda job: done.append(f"its own: {job.number}"))
    producer = Producer(backend, Shared)
    for worker in (own, Worker(backend, Shared)):
        producer.enqueue(DoShared(1))
        worker.run(burst=True)
    assert done == ["its own: 1", "every worker: 1"]
    assert "no handler" not in caplog.text


def test_an_idle_worker_waits_longer_than_any_guard_of_virtual_time(start: Start) -> None:
    with FakeBroker(wait_guard=0.02) as broker:
        backend = broker.backend()
        worker = Worker(backend, Work, concurrency=2)
        done = threading.Event()
        worker.register(Do, lambda _: done.set())
        running = start(worker)
        assert not done.wait(0.2)
        Producer(backend, Work).enqueue(Do(1))
        assert done.wait(TIMEOUT_S)
        running.shut_down()


def test_a_burst_handles_everything_that_is_ready_and_what_its_jobs_enqueue(
    producer: Producer[Work], backend: RabbitMqBackend
) -> None:
    done = []
    worker = Worker(backend, Work)

    @worker.handler(Do)
    def do(job: Do) -> None:
        done.append(job.number)
        if job.number < 20:
            producer.enqueue(Do(job.number + 10))

    producer.enqueue_many([Do(n) for n in range(10)])
    worker.run(burst=True)
    assert sorted(done) == list(range(30))


def test_a_job_of_another_program_that_knows_more_fields_is_handled(
    backend: RabbitMqBackend, producer: Producer[Work]
) -> None:
    done = []
    worker = Worker(backend, Work)
    worker.register(Do, done.append)
    backend.publish(
        Envelope(
            job_id=uuid.uuid4(), job_type="do", queue=Work.some.name, enqueued_at_ms=0, payload={"number": 1, "new": 2}
        )
    )
    worker.run(burst=True)
    assert done == [Do(1)]


def test_errors_of_a_lost_backend_are_backend_errors() -> None:
    assert issubclass(ConsumerCancelledError, BackendError)
