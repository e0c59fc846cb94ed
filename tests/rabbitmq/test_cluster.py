"""A cluster of three nodes, one of which is killed at work: what a quorum queue keeps, and what waits for the node.

For a server that is installed here: the nodes are started for this module, and killed.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from pytest_queuey.options import read_settings
from pytest_queuey.sources.local import find_server
from pytest_queuey.sources.server import SourceError
from queuey_rabbitmq import BackendError, DeclareRefusedError, Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.reconnect import ReconnectPolicy
from tests.rabbitmq.cluster import Cluster, Node

OPTIONS = RabbitMqOptions(
    retry_granularity=0.1,
    deferred_granularity=0.1,
    connect_timeout=5,
    operation_timeout=15,
    heartbeat=4,
    reconnect=ReconnectPolicy(base=0.05, max_delay=0.5),
)
PATIENCE_S = 60
JOBS = 300
KILLED_AFTER = 60
NODE_IS_DOWN = "on a node that is down|not done within"
"""What holding a job says whose hold queue is on a node that is gone: 3.10 refuses it, 4 does not answer."""


@pytest.fixture(scope="module")
def running_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    try:
        executable = find_server(read_settings(request.config).rabbitmq_server)
    except SourceError as error:
        pytest.skip(f"only nodes that this test starts can be killed: {error}")
    with Cluster(executable, 3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """The cluster, with every node running."""
    for node in running_cluster.nodes:
        if not node.is_running():
            node.come_back()
    assert comes_true(lambda: running_cluster.members() == 3)
    return running_cluster


@pytest.fixture
def queue() -> QueueConfig:
    return QueueConfig(f"cluster-{uuid.uuid4()}", queue_type="quorum", prefetch=20)


@pytest.fixture
def backend(cluster: Cluster, queue: QueueConfig) -> Iterator[RabbitMqBackend]:
    """A backend that knows every node."""
    with RabbitMqBackend.with_options(cluster.url, OPTIONS) as backend:
        backend.declare([queue])
        yield backend


def comes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def connected_to(cluster: Cluster) -> Node:
    """Return the node that clients are connected to, of those that run."""
    return next(node for node in cluster.nodes if node.is_running() and node.connections())


def new_job(backend: RabbitMqBackend, queue: QueueConfig, payload: object = None) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="job", queue=queue.name, enqueued_at_ms=backend.now_ms(), payload=payload
    )


class Consumer:
    """A thread that takes jobs and acks them."""

    def __init__(self, backend: RabbitMqBackend, queue: QueueConfig) -> None:
        self.taken: Counter[object] = Counter()
        self._deliveries = backend.consume(queue)
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        for delivery in self._deliveries:
            self.taken[delivery.envelope.payload] += 1
            try:
                delivery.ack()
            except BackendError:
                continue  # it was lost with its connection, and comes again

    def close(self) -> None:
        self._deliveries.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_what_was_confirmed_is_handled_though_the_node_is_killed_that_all_are_connected_to(
    cluster: Cluster, backend: RabbitMqBackend, queue: QueueConfig
) -> None:
    consumer = Consumer(backend, queue)
    for number in range(JOBS):
        if number == KILLED_AFTER:
            connected_to(cluster).server.kill()
        # RabbitMQ 3.10 refuses the first publish of a channel while the queue has no leader, and then all others until
        # the node is back (rabbit_fifo_client:enqueue): only another channel helps.
        assert comes_true(lambda number=number: is_confirmed(backend, new_job(backend, queue, number)))
    assert comes_true(lambda: set(consumer.taken) == set(range(JOBS))), set(range(JOBS)) - set(consumer.taken)
    consumer.close()
    assert connected_to(cluster) is not None


def test_what_waits_on_a_node_that_was_killed_comes_when_it_is_back_and_until_then_such_delays_are_refused(
    cluster: Cluster, backend: RabbitMqBackend, queue: QueueConfig
) -> None:
    node = connected_to(cluster)
    for delay in (1, 2, 600):
        backend.defer(new_job(backend, queue, delay), delay)
    consumer = Consumer(backend, queue)
    node.server.kill()
    # More than there are channels for it: what RabbitMQ 4 leaves without an answer keeps nothing else from being held.
    unanswered = [backend.defer_nowait(new_job(backend, queue, "the same delay"), 600) for _ in range(10)]
    # Another delay has another queue, on the node that the backend is connected to now.
    assert comes_true(lambda: holds(backend, new_job(backend, queue, "another delay"), 0.5))
    with pytest.raises(BackendError, match=NODE_IS_DOWN):
        backend.defer(new_job(backend, queue, "the same delay"), 600)
    assert all(isinstance(future.exception(PATIENCE_S), BackendError) for future in unanswered)
    assert comes_true(lambda: holds(backend, new_job(backend, queue), 0.5))
    assert comes_true(lambda: consumer.taken["another delay"] > 0)
    assert not {1, 2} & set(consumer.taken)
    node.come_back()
    assert comes_true(lambda: {1, 2} <= set(consumer.taken)), consumer.taken
    backend.defer(new_job(backend, queue), 600)
    consumer.close()


def test_a_classic_queue_on_a_node_that_was_killed_keeps_no_other_queue_from_coming_back(
    cluster: Cluster, backend: RabbitMqBackend, queue: QueueConfig
) -> None:
    # RabbitMQ 4 does not answer the declarations of such a queue, 3.10 refuses them.
    backend.declare([QueueConfig(f"cluster-{uuid.uuid4()}")])
    consumer = Consumer(backend, queue)
    connected_to(cluster).server.kill()
    assert comes_true(lambda: is_confirmed(backend, new_job(backend, queue, "after")))
    assert comes_true(lambda: consumer.taken["after"] > 0)
    consumer.close()


def is_confirmed(backend: RabbitMqBackend, job: Envelope) -> bool:
    """Publish a job; tell whether that was reported as done."""
    try:
        backend.publish(job)
    except BackendError:
        return False
    return True


def holds(backend: RabbitMqBackend, job: Envelope, delay: float) -> bool:
    """Defer a job; tell whether the cluster takes it now."""
    try:
        backend.defer(job, delay)
    except DeclareRefusedError:
        raise  # it is no matter of time
    except BackendError:
        return False
    return True


def test_a_backend_finds_a_node_that_runs_where_the_first_of_its_url_does_not(
    cluster: Cluster, queue: QueueConfig
) -> None:
    cluster.nodes[0].server.kill()
    with RabbitMqBackend.with_options(cluster.url, OPTIONS) as backend:
        backend.declare([queue])
        backend.publish(new_job(backend, queue, "found"))
        with backend.consume(queue) as deliveries:
            delivery = deliveries.get(timeout=PATIENCE_S)
            assert delivery is not None
            assert delivery.envelope.payload == "found"
            delivery.ack()
