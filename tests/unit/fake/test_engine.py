"""The engine keeps user code out of its lock, and lets threads wait in virtual time."""

import threading
import uuid
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest

from queuey_fake import FakeBroker, ManualClock
from queuey_fake.clock import SystemClock
from queuey_fake.engine import BlockingInCallbackError, Engine, WaitGuardError, WaitsForever
from queuey_fake.model.broker import Broker
from queuey_fake.model.fields import Field
from queuey_rabbitmq import BackendError, Envelope, QueueConfig

START = datetime(2030, 1, 1, tzinfo=UTC)


def engine(*, wait_guard_s: float = 5.0) -> Engine:
    clock = ManualClock(START)
    return Engine(Broker(now_ms=clock.now_ms()), clock, wait_guard_s=wait_guard_s)


def declare_queue_that_expires(engine: Engine, *, after_ms: int) -> None:
    def declare() -> None:
        channel = engine.model.connect().open_channel(1)
        channel.queue_declare("q", durable=True, arguments={"x-expires": Field("signedint", after_ms)})

    engine.run(declare)


def test_the_driving_thread_moves_time_to_what_is_due_while_it_waits() -> None:
    driven = engine()
    declare_queue_that_expires(driven, after_ms=400)
    assert driven.wait(lambda: not driven.model.queue_snapshots(), timeout_ms=1000)
    assert driven.elapsed_ms() == 400


def test_a_wait_ends_at_its_deadline_in_virtual_time() -> None:
    driven = engine()
    declare_queue_that_expires(driven, after_ms=400)
    assert not driven.wait(lambda: False, timeout_ms=300)
    assert driven.elapsed_ms() == 300


def test_a_wait_that_nothing_can_end_is_refused() -> None:
    with pytest.raises(WaitsForever):
        engine().wait(lambda: False, timeout_ms=None)


def test_another_thread_waits_until_virtual_time_passes_its_deadline() -> None:
    driven = engine()
    answers: list[bool] = []
    ready = threading.Event()

    def wait() -> None:
        ready.set()
        answers.append(driven.wait(lambda: False, timeout_ms=300))

    waiter = threading.Thread(target=wait)
    waiter.start()
    ready.wait(5)
    driven.clock.advance(0.2)  # type: ignore[attr-defined]  # the clock of this engine is a manual one
    while not answers:
        driven.clock.advance(0.2)  # type: ignore[attr-defined]  # as above
    waiter.join(5)
    assert answers == [False]


def test_another_thread_that_is_forgotten_gets_an_error_after_the_guard() -> None:
    driven = engine(wait_guard_s=0.05)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            driven.wait(lambda: False, timeout_ms=300)
        except WaitGuardError as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(5)
    assert len(errors) == 1


def test_a_blocking_wait_in_a_callback_is_refused() -> None:
    driven = engine()
    future: Future[None] = Future()
    refused: list[bool] = []

    def block(_future: Future[None]) -> None:
        try:
            driven.wait(lambda: False, timeout_ms=1)
        except BlockingInCallbackError:
            refused.append(True)

    future.add_done_callback(block)
    driven.run(lambda: driven.complete(future))
    assert refused == [True]


def test_futures_are_completed_in_order_and_without_the_lock() -> None:
    driven = engine()
    seen: list[int] = []
    futures: list[Future[int]] = [Future() for _ in range(3)]
    for future in futures:
        future.add_done_callback(lambda done: seen.append(done.result()))
    # Taking the lock again in a callback would hang if it were held.
    futures[0].add_done_callback(lambda _: driven.run(lambda: driven.complete(futures[2], 2)))
    driven.run(lambda: [driven.complete(futures[0], 0), driven.complete(futures[1], 1)])
    assert seen == [0, 1, 2]


def test_a_callback_that_fails_the_test_holds_up_neither_other_futures_nor_time() -> None:
    driven = engine()
    fails, other = Future[None](), Future[None]()
    fails.add_done_callback(lambda _: pytest.fail("said in a callback"))
    with pytest.raises(pytest.fail.Exception, match="said in a callback"):
        driven.run(lambda: [driven.complete(fails), driven.complete(other)])
    threading.Thread(target=lambda: driven.run(lambda: None)).start()
    assert driven.wait(other.done, 1000)
    assert not driven.is_anybody_at_work()


def test_a_chain_of_callbacks_costs_no_stack() -> None:
    driven = engine()
    left = [5000]

    def again(_future: Future[None]) -> None:
        if left[0]:
            left[0] -= 1
            start()

    def start() -> None:
        future: Future[None] = Future()
        future.add_done_callback(again)
        driven.run(lambda: driven.complete(future))

    start()
    assert left == [0]


def test_a_clock_that_moves_by_itself_is_waited_for_really() -> None:
    broker = Engine(Broker(now_ms=SystemClock().now_ms()), SystemClock())
    declare_queue_that_expires(broker, after_ms=30)
    assert broker.wait(lambda: not broker.model.queue_snapshots(), timeout_ms=5000)


def test_who_does_not_wait_finds_what_a_turn_brings_that_is_going_on() -> None:
    broker = Engine(Broker(now_ms=SystemClock().now_ms()), SystemClock())
    begun, asked = threading.Event(), threading.Event()
    brought: list[str] = []

    def bring() -> None:
        begun.set()
        asked.wait(10)
        brought.append("a delivery")

    def is_there() -> bool:
        found = bool(brought)
        asked.set()
        return found

    turn = threading.Thread(target=broker.run, args=(bring,))
    turn.start()
    assert begun.wait(10)
    assert broker.wait(is_there, timeout_ms=0)
    turn.join()


def test_a_broker_on_a_clock_that_moves_by_itself_cannot_be_advanced() -> None:
    with FakeBroker(clock=SystemClock()) as broker, pytest.raises(ValueError, match="moves by itself"):
        broker.advance(1)


def test_a_blocking_publish_in_a_callback_is_refused_before_anything_is_sent() -> None:
    with FakeBroker() as broker:
        backend = broker.backend()
        backend.declare([QueueConfig("emails")])
        job = Envelope(job_id=uuid.UUID(int=1), job_type="send", queue="emails", enqueued_at_ms=0, payload=None)
        refused: list[BackendError] = []

        def publish(_future: Future[None]) -> None:
            try:
                backend.publish(job)
            except BackendError as error:
                refused.append(error)

        future: Future[None] = Future()
        future.add_done_callback(publish)
        broker._engine.run(lambda: broker._engine.complete(future))
        queue = broker.queue("emails")
    assert ["callback" in str(error) for error in refused] == [True]
    assert queue is not None
    assert queue.ready == 0
