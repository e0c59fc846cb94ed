"""The journal tells each message's life, and names what RabbitMQ would drop without a trace."""

import uuid
from threading import Event, Thread

import pika
import pytest

from queuey_fake import FakeBroker, journal
from queuey_fake.journal import LAST_EVENTS
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqOptions, topology
from tests.unit.fake.conftest import EMAILS

JOB_ID = uuid.UUID(int=7)
OUR_HEADERS = {topology.HEADER_ATTEMPT: 1, topology.HEADER_DEFERRALS: 0}


def job(backend: RabbitMqBackend) -> Envelope:
    return Envelope(job_id=JOB_ID, job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=None)


def delete(broker: FakeBroker, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_delete(queue)


def test_a_story_follows_a_job_through_its_hold_to_its_end(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.defer(job(backend), 30)
    with backend.consume(EMAILS) as deliveries:
        delivery = deliveries.get(timeout=60)
        assert delivery is not None
        delivery.ack()
    story = broker.journal.story(JOB_ID).splitlines()
    assert story[0].startswith(f"  message {JOB_ID} (#")
    assert [line.split("  ", 3)[-1] for line in story[1:]] == [
        "published",
        "queued in 'emails.deferred.30000'",
        "expired in 'emails.deferred.30000'",
        "dead-lettered to 'emails' (expired)",
        "queued in 'emails'",
        "delivered in 'emails' (queuey-1)",
        "acknowledged in 'emails'",
    ]
    assert "2030-01-01T00:00:30.000+00:00  expired" in story[3]


def test_a_job_whose_work_is_done_is_no_loss(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    with backend.consume(EMAILS) as deliveries:
        next(deliveries).ack()
    assert broker.journal.unexpected_losses() == []


def test_a_job_that_expires_into_a_deleted_queue_is_a_loss(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.defer(job(backend), 30)
    delete(broker, "emails")
    broker.advance(30)
    (loss,) = broker.journal.unexpected_losses()
    assert (loss.queue, loss.message_id) == ("emails.deferred.30000", str(JOB_ID))
    assert "expired, and the dead-letter exchange leads to no queue" in loss.reason
    assert "published" in broker.journal.explain([loss])


def test_a_job_that_outlives_its_queue_is_a_loss(broker: FakeBroker) -> None:
    backend = broker.backend()
    backend.declare([EMAILS])
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("leased", durable=True, arguments={"x-expires": 1000})
    envelope = Envelope(job_id=JOB_ID, job_type="send", queue="leased", enqueued_at_ms=0, payload=None)
    backend.publish(envelope)
    broker.advance(1)
    (loss,) = broker.journal.unexpected_losses()
    assert "x-expires" in loss.reason


def test_a_job_older_than_its_queue_lets_it_be_is_a_loss(broker: FakeBroker) -> None:
    backend = broker.backend()
    backend.declare([QueueConfig("emails", message_ttl=5)])
    backend.publish(job(backend))
    broker.advance(5)
    assert [loss.reason for loss in broker.journal.unexpected_losses()] == ["expired"]


def test_an_expected_loss_is_not_unexpected(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    broker.journal.expect_loss(reason="leads to no queue", queue="emails.deferred.30000")
    backend.defer(job(backend), 30)
    backend.defer(job(backend), 60)
    delete(broker, "emails")
    broker.advance(60)
    assert [loss.queue for loss in broker.journal.unexpected_losses()] == ["emails.deferred.60000"]


@pytest.mark.parametrize("those_before", ["of others", "expected"])
def test_a_loss_is_not_hidden_by_very_many_before_it(
    broker: FakeBroker, backend: RabbitMqBackend, those_before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_LOSSES", 3)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        for _ in range(5):
            properties = pika.BasicProperties(headers={} if those_before == "of others" else OUR_HEADERS)
            connection.channel().basic_publish("", "nowhere", b"", properties)
    broker.journal.expect_loss(queue="nowhere")
    backend.defer(job(backend), 30)
    delete(broker, "emails")
    broker.advance(30)
    (loss,) = broker.journal.unexpected_losses()
    assert loss.queue == "emails.deferred.30000"
    assert len(broker.journal.losses) == 4


def test_many_losses_are_told_with_one_of_each_kind_and_how_many_more(broker: FakeBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for queue in ["nowhere"] * 25 + ["elsewhere"]:
            channel.basic_publish("", queue, b"")
    told = broker.journal.explain(broker.journal.unexpected_losses(of_others=True))
    assert told.count("was lost in queue 'nowhere'") == 19
    assert told.count("was lost in queue 'elsewhere'") == 1
    assert told.endswith("... and 6 more")


def test_what_was_asked_for_is_no_loss(broker: FakeBroker) -> None:
    backend = broker.backend(RabbitMqOptions(declare_dead_letter_queues=False))
    backend.declare([EMAILS])
    backend.publish(job(backend))
    backend.publish(job(backend))
    with backend.consume(EMAILS) as deliveries:
        next(deliveries).dead_letter("no use")
    delete(broker, "emails")
    assert broker.journal.losses == []


def test_the_losses_of_other_clients_are_told_apart(broker: FakeBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().basic_publish("", "nowhere", b"event")
        connection.process_data_events(0)
        connection.channel()  # a round trip: the publish before it has been seen
    assert broker.journal.unexpected_losses() == []
    (loss,) = broker.journal.unexpected_losses(of_others=True)
    assert (loss.queue, loss.is_ours) == ("nowhere", False)


def test_the_last_events_can_be_told_while_other_threads_are_at_work(broker: FakeBroker) -> None:
    backend, told = broker.backend(), Event()
    backend.declare([EMAILS])

    def work() -> None:
        while not told.is_set():
            backend.publish(job(backend))

    worker = Thread(target=work, daemon=True)
    worker.start()
    try:
        assert all(len(broker.journal.last_events()) <= LAST_EVENTS for _ in range(60))
    finally:
        told.set()
        worker.join(5)


def test_a_story_of_nothing_says_so(broker: FakeBroker) -> None:
    assert "no message with the id" in broker.journal.story("nothing")
