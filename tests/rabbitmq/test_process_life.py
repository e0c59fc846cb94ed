"""What becomes of backends when processes fork, end, are ended or forget them."""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuey_rabbitmq import ConnectError, Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from tests.rabbitmq.speaking import count, soon, with_url

DESCRIPTORS = Path("/proc/self/fd")
TIMEOUT_S = 30

BEGIN = """
import atexit, multiprocessing, os, signal, sys, threading, time, uuid
from queuey_rabbitmq import BackendError, Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions, ReconnectPolicy

url, name = sys.argv[1:3]
config = QueueConfig(name, prefetch=10)

def job():
    return Envelope(job_id=uuid.uuid4(), job_type="x", queue=name, enqueued_at_ms=0, payload={})
"""

FORK = """
def child():
    began = time.monotonic()
    calls = [
        lambda: backend.publish(job()),
        lambda: [backend.publish_nowait(job()) for _ in range(20)],
        lambda: backend.declare([config]),
        lambda: backend.consume(config),
        lambda: deliveries.get(timeout=0),
        lambda: deliveries.get(timeout=60),
        lambda: deliveries.get(),
        held.ack,
        lambda: held.retry(held.envelope.next_attempt(), 1),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except BackendError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError(f"call {number} was not refused")
    deliveries.close()
    backend.close()
    assert time.monotonic() - began < 20
    with RabbitMqBackend.connect(url) as fresh:
        fresh.declare([config])
        fresh.publish(job())

# As many in flight as it may be asked to bear: the child must not wait for slots of the parent.
backend = RabbitMqBackend.with_options(url, RabbitMqOptions(max_in_flight=10, reconnect=None))
backend.declare([config])
for _ in range(3):
    backend.publish(job())
deliveries = backend.consume(config)
held = deliveries.get(timeout=10)
backend.publish_nowait(job())

def in_fork():
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def in_process():
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    return process.exitcode

print(in_fork(), in_process())
held.ack()
backend.publish(job())
for _ in range(6):
    deliveries.get(timeout=10).ack()
backend.close()
print("unharmed")
"""

FORK_UNDER_LOAD = """
backend = RabbitMqBackend.with_options(url, RabbitMqOptions(max_in_flight=50))
backend.declare([config])
deliveries = backend.consume(config)
ends = threading.Event()

def produce():
    while not ends.is_set():
        backend.publish_nowait(job())

def work():
    for delivery in deliveries:
        delivery.ack()

def child():
    signal.alarm(10)
    calls = [
        lambda: backend.publish_nowait(job()),
        lambda: backend.publish(job()),
        lambda: backend.declare([config]),
        lambda: deliveries.get(timeout=10),
    ]
    refused = 0
    for call in calls:
        try:
            call()
        except BackendError:
            refused += 1
    deliveries.close()
    backend.close()
    os._exit(refused)

threads = [threading.Thread(target=target) for target in (produce, produce, produce, work, work)]
for thread in threads:
    thread.start()
statuses = set()
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        child()
    statuses.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
ends.set()
for thread in threads[:3]:
    thread.join(10)
backend.close()
for thread in threads[3:]:
    thread.join(10)
print(statuses)
"""

EXIT_WITHOUT_CLOSING = """
ended = []
atexit.register(lambda: print(len(ended), "ended"))
import queuey_rabbitmq.pika_link  # its own end comes before that
backend = RabbitMqBackend.connect(url)
backend.declare([config])
futures = [backend.publish_nowait(job()) for _ in range(3000)]
confirmed = sum(not future.exception(10) for future in futures[:1000])
for future in futures:
    future.add_done_callback(ended.append)
print(confirmed, "confirmed")
"""

CONSUMING = """
backend = RabbitMqBackend.connect(url)
deliveries = backend.consume(config)
delivery = deliveries.get(timeout=10)
"""

HANDED_OVER = """
backend = RabbitMqBackend.connect(url)
backend.declare([config])
for _ in range(500):
    backend.publish_nowait(job())
backend.defer_nowait(job(), 600)
"""

WAITING = f"""{CONSUMING}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it
print("waiting", flush=True)
deliveries.get()
"""

LEAVING = f"""{CONSUMING}
os._exit(0)
"""

IN_DAEMON = f"""{CONSUMING}
def work():
    for delivery in deliveries:
        delivery.ack()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
"""

TWENTY = """
backends = [RabbitMqBackend.connect(url) for _ in range(20)]
print("connected", flush=True)
sys.stdin.readline()
"""


def start(program: str, url: str, queue: str, **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 -- this interpreter, and a program from this file
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + program, url, queue],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.fixture
def emails(rabbitmq_url: str, operator: Any) -> Iterator[QueueConfig]:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=50)
    with RabbitMqBackend.connect(rabbitmq_url) as backend:
        backend.declare([config])
    yield config
    for suffix in ("", ".dead"):
        operator.queue_delete(f"{config.name}{suffix}")


@pytest.fixture
def ready(emails: QueueConfig, operator: Any) -> Callable[[], int]:
    """How many jobs are ready."""
    return lambda: count(operator, emails.name)


@pytest.fixture
def one_job(emails: QueueConfig, rabbitmq_url: str, ready: Callable[[], int]) -> None:
    with RabbitMqBackend.connect(rabbitmq_url) as backend:
        backend.publish(Envelope(job_id=uuid.uuid4(), job_type="x", queue=emails.name, enqueued_at_ms=0, payload={}))
    assert soon(ready, 1)


def test_a_fork_is_refused_at_once_and_may_connect_itself_and_the_parent_does_not_notice(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]
) -> None:
    status, out, err = end(start(FORK, rabbitmq_url, emails.name))
    assert (status, out, err) == (0, "7 0\nunharmed\n", "")
    assert soon(ready, 0)


def test_forks_while_other_threads_are_at_work_wait_for_no_lock(rabbitmq_url: str, emails: QueueConfig) -> None:
    status, out, err = end(start(FORK_UNDER_LOAD, rabbitmq_url, emails.name))
    assert (status, out, err) == (0, "{4}\n", "")


def test_a_program_that_ends_without_closing_ends_and_what_it_was_told_is_true(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]
) -> None:
    began = time.monotonic()
    status, out, err = end(start(EXIT_WITHOUT_CLOSING, rabbitmq_url, emails.name))
    assert time.monotonic() - began < 15
    assert (status, out, err) == (0, "1000 confirmed\n3000 ended\n", "")
    assert ready() >= 1000


def test_what_was_handed_over_right_before_a_program_ends_without_closing_is_published(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]
) -> None:
    assert end(start(HANDED_OVER, rabbitmq_url, emails.name)) == (0, "", "")
    assert ready() == 500


@pytest.mark.usefixtures("one_job")
@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, ""), (signal.SIGINT, "KeyboardInterrupt")])
def test_a_signal_ends_a_program_that_waits_and_its_job_goes_back(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int], number: signal.Signals, said: str
) -> None:
    process = start(WAITING, rabbitmq_url, emails.name)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    assert ready() == 0
    process.send_signal(number)
    began = time.monotonic()
    status, _, err = end(process)
    assert time.monotonic() - began < 10
    assert status == -number
    assert said in err
    assert soon(ready, 1)


@pytest.mark.usefixtures("one_job")
def test_a_program_that_leaves_at_once_gives_its_job_back(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]
) -> None:
    assert end(start(LEAVING, rabbitmq_url, emails.name)) == (0, "", "")
    assert soon(ready, 1)


@pytest.mark.usefixtures("one_job")
def test_daemon_threads_that_consume_keep_no_program_from_ending(
    rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]
) -> None:
    assert end(start(IN_DAEMON, rabbitmq_url, emails.name)) == (0, "", "")
    assert soon(ready, 1)


def test_twenty_backends_behind_a_broker_that_fell_silent_end_with_their_program(
    rabbitmq_url: str, emails: QueueConfig, black_hole: Any
) -> None:
    url = with_url(rabbitmq_url, port=black_hole.port)
    process = start(TWENTY, url, emails.name, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"
    black_hole.swallows.set()
    began = time.monotonic()
    status, _, err = end(process)
    assert time.monotonic() - began < 10
    assert (status, err) == (0, "")


def test_fifty_rounds_leave_no_thread_and_no_descriptor(rabbitmq_url: str, emails: QueueConfig) -> None:
    def connect(number: int) -> RabbitMqBackend:
        return RabbitMqBackend.with_options(rabbitmq_url, RabbitMqOptions(connection_name=f"round {number}"))

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    wrong = with_url(rabbitmq_url, port=closed), with_url(rabbitmq_url, login=("guest", "wrong"))
    connect(-1).close()
    threads, descriptors = threading.active_count(), len(list(DESCRIPTORS.iterdir()))
    for number in range(50):
        with connect(number) as backend:
            backend.publish(
                Envelope(job_id=uuid.uuid4(), job_type="x", queue=emails.name, enqueued_at_ms=0, payload={})
            )
            deliveries = backend.consume(emails)
            delivery = deliveries.get(timeout=10)
            assert delivery is not None
            delivery.ack()
        with pytest.raises(ConnectError):
            RabbitMqBackend.connect(wrong[number % 2])
    assert soon(threading.active_count, threads)
    assert soon(lambda: len(list(DESCRIPTORS.iterdir())), descriptors)


def test_twenty_backends_live_side_by_side(rabbitmq_url: str, emails: QueueConfig, ready: Callable[[], int]) -> None:
    threads = threading.active_count()
    backends = [RabbitMqBackend.connect(rabbitmq_url) for _ in range(20)]
    assert threading.active_count() == threads + 20
    for backend in backends:
        backend.publish(Envelope(job_id=uuid.uuid4(), job_type="x", queue=emails.name, enqueued_at_ms=0, payload={}))
    for backend in backends:
        backend.close()
    assert threading.active_count() == threads
    assert soon(ready, 20)


def test_a_backend_that_is_dropped_without_being_closed_warns_and_lives_on_for_its_consumer(
    rabbitmq_url: str, emails: QueueConfig, one_job: None
) -> None:
    backend = RabbitMqBackend.connect(rabbitmq_url)
    link = backend._link
    deliveries = backend.consume(emails)
    kept = [backend]
    del backend
    with pytest.warns(ResourceWarning, match="dropped without being closed"):
        kept.clear()
    delivery = deliveries.get(timeout=10)
    assert delivery is not None
    delivery.ack()
    deliveries.close()
    link.close(2_000)


def test_a_backend_that_was_closed_is_dropped_in_silence(rabbitmq_url: str, recwarn: Any) -> None:
    gc.collect()
    recwarn.clear()  # what others left behind
    with RabbitMqBackend.connect(rabbitmq_url):
        pass
    gc.collect()
    assert [warning for warning in recwarn if warning.category is ResourceWarning] == []
