"""Coroutines use the same fixtures: nothing blocks their loop while virtual time moves, frozen or not."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from pytest_queuey import BrokerUnderTest, QueueyClock
from queuey_fake import real_time
from queuey_rabbitmq import Delivery, Envelope, QueueConfig, RabbitMqBackend

T = datetime(2030, 1, 1, tzinfo=UTC)
EMAILS = QueueConfig("asyncio-emails", prefetch=1)
TIMEOUT_S = 5

shown = pytest.mark.parametrize(
    "show",
    [
        pytest.param(lambda: time_machine.travel(T, tick=False), id="time-machine"),
        pytest.param(lambda: freeze_time(T), id="freezegun"),
        pytest.param(lambda: freeze_time(T, tick=True), id="freezegun-tick"),
        pytest.param(lambda: freeze_time(T, real_asyncio=True), id="freezegun-real-asyncio"),
    ],
)


@pytest.fixture
def backend(queuey_backend: RabbitMqBackend) -> RabbitMqBackend:
    queuey_backend.declare([EMAILS])
    return queuey_backend


def job(backend: RabbitMqBackend) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="send", queue=EMAILS.name, enqueued_at_ms=backend.now_ms(), payload=None
    )


async def consume(backend: RabbitMqBackend, count: int, seen: Callable[[], object]) -> list[object]:
    """Take jobs as a coroutine would: it waits in a thread, and works in the loop."""
    result = []
    deliveries = await asyncio.to_thread(backend.consume, EMAILS)
    for _ in range(count):
        delivery: Delivery | None = await asyncio.to_thread(deliveries.get, timeout=3600)
        assert delivery is not None
        result.append(seen())
        delivery.ack()
    deliveries.close()
    return result


def bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def test_a_publish_is_awaited(backend: RabbitMqBackend) -> None:
    async def publish() -> None:
        await asyncio.gather(*(asyncio.wrap_future(backend.publish_nowait(job(backend))) for _ in range(20)))

    bounded(publish())
    with backend.consume(EMAILS) as deliveries:
        for _ in range(20):
            delivery = deliveries.get(timeout=TIMEOUT_S)
            assert delivery is not None
            delivery.ack()


@shown
def test_a_publish_is_awaited_while_time_is_shown(backend: RabbitMqBackend, show: Callable[[], Any]) -> None:
    async def publish() -> None:
        await asyncio.wait_for(asyncio.wrap_future(backend.publish_nowait(job(backend))), TIMEOUT_S)

    with show():
        bounded(publish())


@pytest.mark.queuey_broker("fake")
def test_a_task_that_consumes_runs_at_the_due_instant_of_each_job(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()

    async def live() -> list[object]:
        for delay in (30, 10, 20):
            backend.defer(job(backend), delay)
        consumer = asyncio.create_task(consume(backend, 3, lambda: queuey_clock.now_ms() - began_ms))
        await queuey_clock.wait(60)
        return await consumer

    assert bounded(live()) == [10_000, 20_000, 30_000]
    assert queuey_clock.now_ms() - began_ms == 60_000


@pytest.mark.queuey_broker("fake")
def test_a_task_works_off_all_that_is_ready_before_time_moves_on(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()

    async def live() -> list[object]:
        for _ in range(30):
            backend.publish(job(backend))
        backend.defer(job(backend), 600)
        consumer = asyncio.create_task(consume(backend, 31, lambda: queuey_clock.now_ms() - began_ms))
        await queuey_clock.wait(3600)
        return await consumer

    assert bounded(live()) == [0] * 30 + [600_000]


@pytest.mark.queuey_broker("fake")
def test_time_moves_on_where_the_loops_pool_is_full(
    backend: RabbitMqBackend, queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock
) -> None:
    others = [QueueConfig("asyncio-first"), QueueConfig("asyncio-second")]
    backend.declare(others)

    def wait_in_vain(queue: QueueConfig) -> Delivery | None:
        with backend.consume(queue) as deliveries:
            return deliveries.get(timeout=3600)

    def handle() -> None:
        with backend.consume(EMAILS) as deliveries:
            delivery = deliveries.get(timeout=3600)
            assert delivery is not None
            threading.Event().wait(0.01)  # it takes a while, in which the third call waits for a thread
            delivery.ack()

    async def live() -> list[object]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        backend.publish(job(backend))
        first, handling, second = (
            asyncio.create_task(asyncio.to_thread(call, *arguments))
            for call, arguments in ((wait_in_vain, others[:1]), (handle, []), (wait_in_vain, others[1:]))
        )
        await queuey_clock.wait(7200)
        return [await first, await handling, await second]

    assert bounded(live()) == [None] * 3
    assert queuey_broker.queues()[0].ready == 0


@pytest.mark.queuey_broker("fake")
def test_a_call_in_a_thread_of_anyio_takes_what_comes_at_its_due_instant(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    began_ms = queuey_clock.now_ms()
    to_thread = pytest.importorskip("anyio.to_thread")

    def take() -> int:
        with backend.consume(EMAILS) as deliveries:
            delivery = deliveries.get(timeout=3600)
            assert delivery is not None
            delivery.ack()
            return queuey_clock.now_ms() - began_ms

    async def live() -> list[int]:
        for delay in (10, 20):
            backend.defer(job(backend), delay)
        taken = []
        for _ in range(2):
            taking = asyncio.create_task(to_thread.run_sync(take))
            await queuey_clock.wait(15)
            taken.append(await taking)
        return taken

    assert bounded(live()) == [10_000, 20_000]


@shown
def test_a_wait_of_a_coroutine_ends_while_time_is_shown(
    queuey_broker: BrokerUnderTest, queuey_clock: QueueyClock, show: Callable[[], Any]
) -> None:
    with show():
        bounded(queuey_clock.wait(0.1))
        passed = datetime.now(UTC) - T
    assert 0.1 <= passed.total_seconds() < TIMEOUT_S


def test_other_tasks_run_while_a_coroutine_waits(queuey_clock: QueueyClock) -> None:
    async def live() -> int:
        turns = 0
        loop = asyncio.get_running_loop()

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        await queuey_clock.wait(0.1)
        return turns

    assert bounded(live()) > 1


@pytest.mark.queuey_broker("fake")
def test_a_call_in_the_loops_pool_that_waits_for_something_else_does_not_hold_up_time(
    backend: RabbitMqBackend, queuey_clock: QueueyClock
) -> None:
    async def live() -> None:
        release = threading.Event()
        elsewhere = asyncio.create_task(asyncio.to_thread(release.wait, TIMEOUT_S))
        for hour in range(1, 25):
            backend.defer(job(backend), hour * 3600)
        await queuey_clock.wait(86_400)
        release.set()
        await elsewhere

    began_s = real_time.monotonic_s()
    bounded(live())
    assert real_time.monotonic_s() - began_s < TIMEOUT_S


RUN_AS_PLUGIN = """
    import asyncio
    from datetime import UTC, datetime, timedelta
    import uuid

    import pytest
    from freezegun import freeze_time
    from queuey_rabbitmq import Envelope, QueueConfig

    EMAILS = QueueConfig("emails")
    {mark}

    async def publish_and_wait(backend, clock):
        backend.declare([EMAILS])
        envelope = Envelope(
            job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=None
        )
        await asyncio.wrap_future(backend.publish_nowait(envelope, delay=30))
        await clock.wait(29)
        with backend.consume(EMAILS) as deliveries:
            assert deliveries.get(timeout=0) is None
            await clock.wait(1)
            delivery = deliveries.get(timeout=0)
            assert delivery is not None
            delivery.ack()

    async def test_running(queuey_backend, queuey_clock):
        await publish_and_wait(queuey_backend, queuey_clock)

    @freeze_time("2030-01-01")
    async def test_frozen(queuey_backend, queuey_clock):
        await publish_and_wait(queuey_backend, queuey_clock)
        assert datetime.now(UTC) == datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
"""


@pytest.mark.parametrize(
    ("plugin", "module", "mark", "options"),
    [
        pytest.param(
            "pytest_asyncio",
            "pytest_asyncio.plugin",
            "pytestmark = pytest.mark.asyncio",
            ["-o", "asyncio_default_fixture_loop_scope=function"],
            id="pytest-asyncio",
        ),
        pytest.param(
            "anyio",
            "anyio.pytest_plugin",
            "pytestmark = pytest.mark.anyio\n\n    @pytest.fixture\n    def anyio_backend(): return 'asyncio'",
            [],
            id="anyio",
        ),
    ],
)
def test_the_fixtures_work_in_tests_that_are_coroutines(
    run_pytest: pytest.Pytester, plugin: str, module: str, mark: str, options: list[str]
) -> None:
    pytest.importorskip(plugin)
    run_pytest.makepyfile(RUN_AS_PLUGIN.format(mark=mark))
    run_pytest.runpytest_subprocess("-p", module, *options).assert_outcomes(passed=2)
