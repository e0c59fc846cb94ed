"""What people report of delays, expiry and leases, as checks on the broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pika
import pytest

from queuey_fake import FakeBroker
from queuey_rabbitmq import BackendError, Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions
from queuey_rabbitmq.core.errors import DelayTooLongError, UnknownQueueError

MakeJob = Callable[..., Envelope]
ElapsedS = Callable[[], float]


def hold_queue(channel: Any, name: str, *, to: str, **arguments: Any) -> None:
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to, **arguments},
    )


def arrivals(broker: FakeBroker, queue: str, elapsed_s: ElapsedS, *, within_s: int) -> Iterator[int]:
    """Yield at which whole second something more stands in a queue, once for each message."""
    seen = 0
    for _ in range(within_s + 1):
        ready = broker.queue(queue).ready  # type: ignore[union-attr]  # the test has declared it
        yield from [round(elapsed_s())] * (ready - seen)
        seen = ready
        broker.advance(1)


def test_mixed_expirations_in_one_queue_leave_at_the_head_only(
    broker: FakeBroker, channel: Any, elapsed_s: ElapsedS
) -> None:
    channel.queue_declare("q", durable=True)
    hold_queue(channel, "wait", to="q")
    for seconds in (3, 60, 30):
        channel.basic_publish("", "wait", b"", pika.BasicProperties(expiration=str(seconds * 1000)))
    channel.queue_declare("wait", passive=True)
    assert list(arrivals(broker, "q", elapsed_s, within_s=61)) == [3, 60, 60]


def test_mixed_deferrals_arrive_each_in_its_own_time(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob, elapsed_s: ElapsedS
) -> None:
    for seconds in (3, 60, 30):
        backend.defer(new_job(), seconds)
    assert list(arrivals(broker, "emails", elapsed_s, within_s=61)) == [3, 30, 60]


def test_an_expired_message_is_dead_lettered_without_a_consumer_and_stays_where_it_went(
    broker: FakeBroker, channel: Any
) -> None:
    channel.queue_declare("q2", durable=True)
    hold_queue(channel, "q1", to="q2")
    channel.basic_publish("", "q1", b"body", pika.BasicProperties(expiration="1000"))
    channel.queue_declare("q1", passive=True)
    broker.advance(3600)
    left, there = broker.queue("q1"), broker.queue("q2")
    assert left is not None
    assert there is not None
    assert (left.ready, there.ready) == (0, 1)
    properties = there.messages[0].properties
    assert properties.expiration is None
    assert properties.headers is not None
    assert properties.headers["x-death"][0]["original-expiration"] == "1000"


def test_a_quorum_hold_queue_loses_its_lease_though_it_is_declared_again(broker: FakeBroker, channel: Any) -> None:
    channel.queue_declare("q", durable=True)
    lease: dict[str, Any] = {"x-message-ttl": 2000, "x-expires": 4000, "x-queue-type": "quorum"}
    declared = 0
    for _ in range(6):
        hold_queue(channel, "wait", to="q", **lease)
        declared += 1
        broker.advance(1)
        if broker.queue("wait") is None:
            break
    assert declared == 5  # its lease is over after 4 s, and RabbitMQ looks at that every 5 s


def test_a_hold_queue_of_ours_is_classic_and_its_lease_renewed_by_each_deferral(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob
) -> None:
    for _ in range(10):
        backend.defer(new_job(), 2)
        broker.advance(1)
    hold = broker.queue("emails.deferred.2000")
    assert hold is not None
    assert hold.type == hold.arguments["x-queue-type"] == "classic"
    broker.advance(2)
    assert broker.queue("emails").ready == 10  # type: ignore[union-attr]  # it was declared


@pytest.mark.parametrize("version", ["3.10", "4.0", "4.3"])
def test_ten_retries_with_an_equal_delay_are_ten_deliveries(
    version: str, new_job: MakeJob, emails: QueueConfig
) -> None:
    with FakeBroker(version) as broker:
        backend = broker.backend()
        backend.declare([emails])
        backend.publish(new_job())
        with backend.consume(emails) as deliveries:
            for attempt in range(1, 11):
                delivery = deliveries.get(timeout=60)
                assert delivery is not None
                assert delivery.envelope.attempt == attempt
                delivery.retry(delivery.envelope.next_attempt(), 5)
        assert broker.journal.losses == []


@pytest.mark.parametrize(("version", "kept"), [("3.10", 0), ("4.0", 1), ("4.3", 1)])
def test_received_headers_published_again_into_a_chain_are_a_cycle_before_4_0(version: str, kept: int) -> None:
    with FakeBroker(version) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        hold_queue(channel, "second", to="q", **{"x-message-ttl": 1000})
        hold_queue(channel, "first", to="second", **{"x-message-ttl": 1000})
        channel.basic_publish("", "first", b"")
        channel.queue_declare("first", passive=True)
        broker.advance(2)
        _, received, _ = channel.basic_get("q", auto_ack=True)
        channel.basic_publish("", "first", b"", pika.BasicProperties(headers=received.headers))
        channel.queue_declare("first", passive=True)
        broker.advance(2)
        assert broker.queue("q").ready == kept  # type: ignore[union-attr]  # it was declared
        assert len(broker.journal.unexpected_losses(of_others=True)) == 1 - kept


def test_a_delay_for_a_queue_that_nobody_declared_is_refused_before_anything_is_sent(
    broker: FakeBroker, new_job: MakeJob
) -> None:
    with pytest.raises(UnknownQueueError, match="'emails'"):
        broker.backend().publish(new_job(), delay=30)
    assert broker.queues() == []


def test_a_held_job_whose_queue_is_gone_is_dropped_and_recorded(
    broker: FakeBroker, backend: RabbitMqBackend, channel: Any, new_job: MakeJob
) -> None:
    job = new_job()
    backend.defer(job, 30)
    channel.queue_delete("emails")
    broker.advance(30)
    (loss,) = broker.journal.unexpected_losses()
    assert (loss.message_id, loss.queue) == (str(job.job_id), "emails.deferred.30000")
    assert "dropped" in broker.journal.story(job.job_id)


def test_an_idle_hold_queue_is_gone_after_twice_its_delay_and_none_of_its_jobs_lost(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob, elapsed_s: ElapsedS
) -> None:
    backend.defer(new_job(), 1)
    broker.advance(1.999)
    assert broker.queue("emails.deferred.1000") is not None
    broker.advance(0.001)
    assert broker.queue("emails.deferred.1000") is None
    assert elapsed_s() == 2
    assert broker.queue("emails").ready == 1  # type: ignore[union-attr]  # it was declared
    assert broker.journal.losses == []


@pytest.mark.parametrize("days", [1, 7, 24])
def test_a_delay_of_days_arrives_once_and_never_early(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob, days: int
) -> None:
    backend.defer(new_job(), timedelta(days=days))
    broker.advance(timedelta(days=days) - timedelta(milliseconds=1))
    assert broker.queue("emails").ready == 0  # type: ignore[union-attr]  # it was declared
    broker.advance(0.001)
    assert broker.queue("emails").ready == 1  # type: ignore[union-attr]  # as above
    broker.advance(timedelta(days=100))
    assert broker.queue("emails").ready == 1  # type: ignore[union-attr]  # as above


def test_a_delay_over_the_cap_is_an_error_that_names_it(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob
) -> None:
    with pytest.raises(DelayTooLongError, match="longer than a hold queue can wait"):
        backend.defer(new_job(), timedelta(days=25))
    assert [queue.name for queue in broker.queues()] == ["emails", "emails.dead"]


def test_a_delay_of_zero_is_a_delay_and_none_is_none(
    broker: FakeBroker, backend: RabbitMqBackend, new_job: MakeJob, emails: QueueConfig, elapsed_s: ElapsedS
) -> None:
    backend.publish(new_job("at once"))
    backend.publish(new_job("zero"), delay=0)
    backend.publish(new_job("1 ms"), delay=0.001)
    backend.defer(new_job("put off by zero"), 0)
    seen = []
    with backend.consume(emails) as deliveries:
        while (delivery := deliveries.get(timeout=10)) is not None:
            if elapsed_s() == 0:
                delivery.retry(delivery.envelope.next_attempt(), 0)
            else:
                delivery.ack()
            seen.append((delivery.envelope.payload, delivery.envelope.attempt, elapsed_s()))
    assert seen[0] == ("at once", 1, 0)
    # Priority decides between those of one instant: what was put off goes first.
    assert sorted(seen[1:]) == [("1 ms", 1, 1), ("at once", 2, 1), ("put off by zero", 1, 1), ("zero", 1, 1)]


def test_a_transient_queue_is_refused_by_4_3_with_an_error_that_says_so_unless_it_is_permitted(
    broker: FakeBroker, new_job: MakeJob
) -> None:
    transient = QueueConfig("emails", durable=False)
    with pytest.raises(BackendError, match="transient_nonexcl_queues"):
        broker.backend(RabbitMqOptions(reconnect=None)).declare([transient])
    with FakeBroker("4.3", permit=["transient_nonexcl_queues"]) as permissive:
        backend = permissive.backend()
        backend.declare([transient])
        backend.defer(new_job(), 30)
        hold = permissive.queue("emails.deferred.30000")
        assert hold is not None
        assert not hold.durable
