"""A celery worker with late acknowledgement, retries and a countdown, in a thread of its own."""

from typing import Any

import pytest

from queuey_fake import FakeBroker

celery = pytest.importorskip("celery")
testing = pytest.importorskip("celery.contrib.testing.worker")
TIMEOUT_S = 10


def make_app(broker: FakeBroker) -> Any:
    app = celery.Celery("jobs", broker=broker.url, backend="cache+memory://")
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_heartbeat=2,  # the worker looks up as often as that, also for its own end
        broker_transport_options={"confirm_publish": True},
    )
    return app


def test_celery_retries_with_a_countdown_and_acknowledges_late(broker: FakeBroker) -> None:
    app = make_app(broker)
    attempts: list[tuple[int, bool]] = []

    @app.task(bind=True, max_retries=2, default_retry_delay=0.1)  # type: ignore[untyped-decorator]  # celery has no annotations
    def flaky(self: Any, number: int) -> int:
        unacked = broker.queue("celery")
        assert unacked is not None
        attempts.append((self.request.retries, unacked.unacked > 0))
        if self.request.retries < 2:
            raise self.retry()
        return number * 2

    with testing.start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=TIMEOUT_S):
        assert flaky.apply_async((21,), countdown=0.2).get(timeout=TIMEOUT_S) == 42
    assert attempts == [(0, True), (1, True), (2, True)]
    queue = broker.queue("celery")
    assert queue is not None
    assert (queue.ready, queue.unacked) == (0, 0)


def test_celery_works_on_when_its_connections_were_cut(broker: FakeBroker) -> None:
    app = make_app(broker)

    @app.task  # type: ignore[untyped-decorator]  # celery has no annotations
    def double(number: int) -> int:
        return number * 2

    with testing.start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=TIMEOUT_S):
        assert double.delay(1).get(timeout=TIMEOUT_S) == 2
        broker.faults.drop_connections()
        assert double.apply_async((2,), retry=True).get(timeout=TIMEOUT_S) == 4
