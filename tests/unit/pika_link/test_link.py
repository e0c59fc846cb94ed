"""The link without a broker: turns, steps, waiting, ending, forking, frozen clocks."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from queue import Empty
from typing import Any

import freezegun
import pytest
from pika.adapters.select_connection import IOLoop

from queuey_fake import FakeBroker
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend
from queuey_rabbitmq.core.errors import BackendError, DeadlineExceededError, ShutDownError
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink

DESCRIPTORS = Path("/proc/self/fd")


def test_steps_run_in_the_order_of_the_calls(recorder: Any) -> None:
    seen = []
    for number in range(100):
        recorder.link.run(lambda number=number: seen.append(number))
    assert recorder.in_turn(list, seen) == list(range(100))


def test_steps_that_wait_together_are_one_turn(recorder: Any) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(5)

    recorder.link.run(hold)
    assert held.wait(5)
    before = recorder.turns
    seen = []
    for number in range(50):
        recorder.link.run(lambda number=number: seen.append(number))
    go_on.set()
    assert recorder.in_turn(lambda: len(seen)) == 50
    assert recorder.in_turn(lambda: recorder.turns) - before <= 3


def test_a_future_is_completed_after_the_end_of_its_turn(recorder: Any) -> None:
    order = []
    future = Future()
    future.add_done_callback(lambda _: order.append("callback"))
    recorder.end_of_turn = lambda: order.append("end of turn")

    def step() -> None:
        recorder.link.resolve(future, None)
        order.append("step")

    recorder.link.run(step)
    recorder.link.wait(future, recorder.link.monotonic_ms() + 5_000)
    assert order[:3] == ["step", "end of turn", "callback"]


def test_a_future_that_was_cancelled_does_not_disturb_the_others(recorder: Any) -> None:
    cancelled, other = Future(), Future()
    assert cancelled.cancel()

    def step() -> None:
        recorder.link.resolve(cancelled, 1)
        recorder.link.fail(other, LookupError("told"))

    recorder.link.run(step)
    with pytest.raises(LookupError, match="told"):
        recorder.link.wait(other, recorder.link.monotonic_ms() + 5_000)
    assert recorder.in_turn(lambda: "alive") == "alive"


def test_a_step_from_a_futures_callback_runs(recorder: Any) -> None:
    future, ran = Future(), Future()
    future.add_done_callback(lambda _: recorder.link.run(lambda: recorder.link.resolve(ran, "ran")))
    recorder.link.run(lambda: recorder.link.resolve(future, None))
    assert ran.result(timeout=5) == "ran"


def test_waiting_on_the_io_thread_is_refused_at_once(recorder: Any) -> None:
    refused = Future()

    def callback(_: Any) -> None:
        try:
            recorder.link.wait(Future(), recorder.link.monotonic_ms() + 60_000)
        except BackendError as error:
            refused.set_result(str(error))

    future = Future()
    future.add_done_callback(callback)
    recorder.link.run(lambda: recorder.link.resolve(future, None))
    assert "I/O thread" in refused.result(timeout=5)


def test_waiting_is_bounded(recorder: Any) -> None:
    with pytest.raises(DeadlineExceededError, match=r"127\.0\.0\.1:1"):
        recorder.link.wait(Future(), recorder.link.monotonic_ms() + 20)


def test_the_deadline_of_a_future_is_not_taken_for_the_bound_of_the_wait(recorder: Any) -> None:
    future = Future()
    recorder.link.run(lambda: recorder.link.fail(future, DeadlineExceededError("the session's own")))
    with pytest.raises(DeadlineExceededError, match="the session's own"):
        recorder.link.wait(future, recorder.link.monotonic_ms() + 5_000)


def test_a_deadline_gets_its_turn(recorder: Any) -> None:
    due_ms = recorder.link.monotonic_ms() + 30

    def step() -> None:
        recorder.deadline_ms = due_ms

    recorder.link.run(step)
    assert due_ms <= recorder.times.get(timeout=5) < due_ms + 2_000


def test_an_earlier_deadline_replaces_a_later_one(recorder: Any) -> None:
    def set_deadline(due_ms: Any) -> None:
        recorder.deadline_ms = due_ms

    recorder.in_turn(set_deadline, recorder.link.monotonic_ms() + 3_600_000)
    recorder.in_turn(set_deadline, recorder.link.monotonic_ms() + 20)
    recorder.times.get(timeout=5)


def test_a_deadline_gets_its_turn_while_clocks_are_frozen(recorder: Any) -> None:
    with freezegun.freeze_time("2030-01-01"):
        start_ms = recorder.link.monotonic_ms()

        def step() -> None:
            recorder.deadline_ms = start_ms + 50

        recorder.link.run(step)
        assert recorder.times.get(timeout=10) >= start_ms + 50


def test_the_timeline_of_deadlines_does_not_freeze(recorder: Any) -> None:
    with freezegun.freeze_time("2030-01-01"):
        start_ms = recorder.link.monotonic_ms()
        assert recorder.link.mailbox().get(20) is None
        assert recorder.link.monotonic_ms() >= start_ms + 20


def test_the_wall_clock_is_the_applications(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_893_456_000.001)
    assert recorder.link.now_ms() == 1_893_456_000_001


def test_a_mailbox_gives_items_in_order_and_none_at_its_timeout(recorder: Any) -> None:
    mailbox = recorder.link.mailbox()
    mailbox.put(1)
    mailbox.put(2)
    assert [mailbox.get(None), mailbox.get(0), mailbox.get(0), mailbox.get(-5), mailbox.get(10)] == [
        1,
        2,
        None,
        None,
        None,
    ]


def test_a_mailbox_takes_a_timeout_of_a_century(recorder: Any) -> None:
    mailbox = recorder.link.mailbox()
    recorder.link.run(lambda: mailbox.put("came"))
    assert mailbox.get(100 * 365 * 24 * 3600 * 1000) == "came"


def test_waiting_for_a_mailbox_on_the_io_thread_is_refused(recorder: Any) -> None:
    def step() -> None:
        with pytest.raises(BackendError, match="I/O thread"):
            recorder.link.mailbox().get(1_000)
        return "refused"

    assert recorder.in_turn(step) == "refused"


def test_an_error_in_a_step_ends_the_link_loudly(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    def step() -> None:
        raise RuntimeError("a bug in a session")

    with caplog.at_level(logging.CRITICAL, "queuey_rabbitmq"):
        recorder.link.run(step)
        error = recorder.abandoned.get(timeout=5)
        recorder.link._thread.join(5)
    assert str(error) == "a bug in a session"
    assert "a bug in a session" in caplog.text
    with pytest.raises(BackendError, match="has died") as refusal:
        recorder.link.run(step)
    assert refusal.value.__cause__ is error


def test_an_error_at_the_end_of_a_turn_ends_the_link(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    def end_of_turn() -> None:
        raise RuntimeError("a bug in a session")

    recorder.end_of_turn = end_of_turn
    recorder.link.run(lambda: None)
    assert str(recorder.abandoned.get(timeout=5)) == "a bug in a session"


def test_an_error_on_a_deadline_ends_the_link(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    def on_time() -> None:
        raise RuntimeError("a bug in a session")

    def step() -> None:
        recorder.on_time = on_time
        recorder.deadline_ms = recorder.link.monotonic_ms()

    recorder.link.run(step)
    assert str(recorder.abandoned.get(timeout=5)) == "a bug in a session"


def test_an_error_in_an_event_ends_the_link(record: Any, closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    recorder = record(closed_port)

    def on_event(event: Any) -> None:
        raise RuntimeError("a bug in a session")

    recorder.link.run(lambda: recorder.link.open("test", on_event))
    assert str(recorder.abandoned.get(timeout=5)) == "a bug in a session"


def test_steps_behind_a_failing_one_wait_until_the_session_is_abandoned(
    recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ran, go_on = [], threading.Event()
    recorder.abandon = lambda _: ran.append("abandoned")

    def step() -> None:
        assert go_on.wait(5)
        raise RuntimeError("a bug in a session")

    recorder.link.run(step)
    recorder.link.run(lambda: ran.append("accepted in the same turn, or before the end was known"))
    go_on.set()
    recorder.link._thread.join(5)
    assert ran == ["abandoned", "accepted in the same turn, or before the end was known"]


def test_what_was_accepted_by_a_link_that_dies_ends_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    emails = QueueConfig("emails")
    job = Envelope(job_id=uuid.uuid4(), job_type="x", queue="emails", enqueued_at_ms=0, payload=None)
    with FakeBroker() as broker, RabbitMqBackend.connect(broker.url) as backend:
        backend.declare([emails])
        go_on = threading.Event()

        def step() -> None:
            assert go_on.wait(5)
            raise RuntimeError("a bug in a session")

        backend._link.run(step)
        published = backend.publish_nowait(job)
        go_on.set()
        assert "the link to the broker has died" in str(published.exception(timeout=5))


def test_an_error_of_pika_that_comes_again_while_closing_keeps_no_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker() as broker, RabbitMqBackend.connect(broker.url) as backend:
        thread = backend._link._thread
        polls = itertools.chain([_trip, _trip], itertools.repeat(IOLoop.poll))

        def poll(loop: IOLoop) -> None:
            next(polls)(loop)

        monkeypatch.setattr(IOLoop, "poll", poll)
        backend._link.run(lambda: None)
        thread.join(5)
        assert not thread.is_alive()
    assert "closing the link to 127.0.0.1" in caplog.text


def _trip(_loop: IOLoop) -> None:
    raise ValueError("pika has tripped")


def test_a_callback_that_exits_keeps_no_other_future_from_its_end(
    recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    exits, other = Future(), Future()
    exits.add_done_callback(lambda _: sys.exit(1))

    def step() -> None:
        recorder.link.resolve(exits, None)
        recorder.link.resolve(other, "told")

    recorder.link.run(step)
    assert other.result(timeout=5) == "told"
    assert recorder.in_turn(lambda: "alive") == "alive"
    assert "SystemExit" in caplog.text


def test_an_error_in_a_futures_callback_leaves_the_link_alone(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    future = Future()
    future.add_done_callback(lambda _: 1 / 0)
    recorder.link.run(lambda: recorder.link.resolve(future, None))
    assert recorder.in_turn(lambda: "alive") == "alive"


def test_a_session_that_cannot_be_abandoned_keeps_no_thread(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    def abandon(error: Any) -> None:
        raise RuntimeError("a second bug")

    recorder.abandon = abandon
    recorder.link.run(lambda: 1 / 0)
    recorder.link._thread.join(5)
    assert not recorder.link._thread.is_alive()
    assert "a second bug" in caplog.text


def test_a_closed_link_refuses_steps(recorder: Any) -> None:
    recorder.link.close(1_000)
    with pytest.raises(ShutDownError, match="closed"):
        recorder.link.run(lambda: None)


def test_closing_runs_what_was_accepted_and_then_abandons(recorder: Any) -> None:
    ran, held = [], threading.Event()
    recorder.link.run(lambda: held.wait(5))
    for number in range(10):
        recorder.link.run(lambda number=number: ran.append(number))
    closing = threading.Thread(target=recorder.link.close, args=(1_000,))
    closing.start()
    held.set()
    closing.join(5)
    assert ran == list(range(10))
    assert isinstance(recorder.abandoned.get_nowait(), ShutDownError)
    with pytest.raises(Empty):
        recorder.abandoned.get_nowait()


def test_every_step_is_run_or_refused_when_a_link_ends_under_many_threads(recorder: Any) -> None:
    accepted, ran, done = [0] * 4, [], threading.Barrier(5)

    def hammer(index: Any) -> None:
        try:
            while True:
                recorder.link.run(lambda: ran.append(None))
                accepted[index] += 1
        except ShutDownError:
            done.wait(5)

    threads = [threading.Thread(target=hammer, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    recorder.link.close(5_000)
    done.wait(5)
    assert len(ran) == sum(accepted)


def test_closing_twice_and_from_several_threads_is_fine(recorder: Any) -> None:
    threads = [threading.Thread(target=recorder.link.close, args=(1_000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    recorder.link.close(0)
    assert not recorder.link._thread.is_alive()


def test_closing_on_the_io_thread_does_not_wait_for_itself(recorder: Any) -> None:
    recorder.link.run(lambda: recorder.link.close(60_000))
    recorder.link._thread.join(5)
    assert not recorder.link._thread.is_alive()


def test_a_link_that_gets_no_thread_says_so(make_link: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    link = make_link("amqp://127.0.0.1:1")
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(BackendError, match="cannot start its I/O thread"):
        link.attach(None)
    monkeypatch.undo()
    with pytest.raises(ShutDownError):
        link.run(print)


def test_a_link_that_was_never_attached_closes() -> None:
    PikaLink(LinkSettings(url="amqp://127.0.0.1:1")).close(1_000)


def test_twenty_rounds_leave_no_thread_and_no_descriptor(record: Any, closed_port: int) -> None:
    threads, descriptors = threading.active_count(), len(list(DESCRIPTORS.iterdir()))
    for _ in range(20):
        recorder = record(closed_port)
        recorder.connect()
        recorder.link.close(1_000)
    assert threading.active_count() == threads
    assert len(list(DESCRIPTORS.iterdir())) == descriptors


FORKED_CHILD = """
import os, sys
from concurrent.futures import Future
from queuey_rabbitmq.core.errors import BackendError
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink

class Nothing:
    def end_of_turn(self): pass
    def next_deadline_ms(self): return None
    def on_time(self): pass
    def abandon(self, error): pass

link = PikaLink(LinkSettings(url="amqp://127.0.0.1:1"))
link.attach(Nothing())
mailbox = link.mailbox()
pid = os.fork()
if pid == 0:
    said = 0
    for call in (
        lambda: link.run(print),
        lambda: link.wait(Future(), link.monotonic_ms() + 60_000),
        lambda: link.open("x", print),
        lambda: mailbox.get(60_000),
        link.mailbox,
    ):
        try:
            call()
        except BackendError as error:
            said += "fork" in str(error)
    link.close(60_000)
    sys.exit(said)
_, status = os.waitpid(pid, 0)
link.close(1000)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_every_call_in_a_forked_child_is_refused() -> None:
    child = subprocess.run(  # noqa: S603 -- this interpreter, and a program from this file
        [sys.executable, "-W", "ignore", "-c", FORKED_CHILD], timeout=30, check=False
    )
    assert child.returncode == 5


EXIT = """
from queuey_rabbitmq.pika_link import LinkSettings, PikaLink

class Nothing:
    def end_of_turn(self): pass
    def next_deadline_ms(self): return None
    def on_time(self): pass
    def abandon(self, error): print("abandoned")

link = PikaLink(LinkSettings(url="amqp://127.0.0.1:1"))
link.attach(Nothing())
link.run(lambda: print("ran"))
"""


def test_a_program_that_ends_without_closing_ends_and_loses_no_step() -> None:
    program = subprocess.run(  # noqa: S603 -- this interpreter, and a program from this file
        [sys.executable, "-c", EXIT], timeout=30, check=True, capture_output=True, text=True
    )
    assert program.stdout.split() == ["ran", "abandoned"]
