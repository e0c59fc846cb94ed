"""Dead letters are requeued and thrown away as asked, and none is ever lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import (
    ConnectionLostError,
    DeadLetters,
    Envelope,
    InvalidConfigError,
    Queue,
    QueueConfig,
    QueueSet,
    RabbitMqBackend,
    RabbitMqOptions,
    browsing,
)
from queuey_rabbitmq.amqp import Properties

Bury = Callable[..., Envelope]
Taken = Callable[[str], list[Any]]


def ready(queuey_broker: BrokerUnderTest, queue: str) -> int:
    look = queuey_broker.queue(queue)
    assert look is not None
    return look.ready


def test_a_requeued_job_is_back_on_its_queue_as_the_next_attempt(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, door: BrokerDoor
) -> None:
    job = bury("again", attempt=3, deferrals=2, priority=4)
    done = letters.requeue()
    assert (done.total, done.looked_at, done.chosen, done.done, done.errors) == (1, 1, 1, 1, {})
    message = door.get(emails.name)
    assert message is not None
    assert Envelope.from_bytes(message.body) == job.next_attempt()
    assert dict(message.headers) == {"x-attempt": 4, "x-deferrals": 2}
    assert message.properties.message_id == str(job.job_id)
    assert door.depth(f"{emails.name}.dead") == 0


def test_a_job_requeued_as_its_first_attempt_begins_anew_and_keeps_its_id_and_age(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_backend: RabbitMqBackend
) -> None:
    job = bury("again", attempt=3, deferrals=2, correlation_id="c")
    letters.requeue(attempt="first")
    with queuey_backend.consume(emails) as deliveries:
        delivery = deliveries.get(timeout=5)
        assert delivery is not None
        again = delivery.envelope
    assert (again.attempt, again.deferrals, again.priority) == (1, 0, 0)
    assert (again.job_id, again.enqueued_at_ms, again.correlation_id) == (job.job_id, job.enqueued_at_ms, "c")


def test_only_the_chosen_are_requeued_and_the_others_keep_their_order(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "WINDOW", 3)
    for number in range(8):
        bury(number, "odd" if number % 2 else "even")
    assert letters.requeue(reason="odd").done == 4
    assert taken(emails.name) == [1, 3, 5, 7]
    assert taken(f"{emails.name}.dead") == [0, 2, 4, 6]


def test_a_limit_takes_the_oldest(letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken) -> None:
    for number in range(4):
        bury(number)
    done = letters.requeue(limit=2)
    assert (done.total, done.looked_at, done.done) == (4, 2, 2)
    assert taken(emails.name) == [0, 1]
    assert taken(f"{emails.name}.dead") == [2, 3]


@pytest.mark.parametrize("drain", [DeadLetters.requeue, DeadLetters.purge])
def test_a_dry_run_counts_and_changes_nothing(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken, drain: Callable[..., Any]
) -> None:
    bury(1, "this")
    bury(2, "that")
    done = drain(letters, reason="this", dry_run=True)
    assert (done.chosen, done.done, done.dry_run) == (1, 0, True)
    assert taken(emails.name) == []
    assert taken(f"{emails.name}.dead") == [1, 2]


def test_a_purge_throws_the_chosen_away(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, door: BrokerDoor, taken: Taken
) -> None:
    bury(1, "this")
    bury(2, "that")
    door.publish(f"{emails.name}.dead", b"hello")
    assert letters.purge(reason="this").done == 1
    assert letters.purge(where=lambda letter: letter.envelope is None).done == 1
    assert taken(f"{emails.name}.dead") == [2]


def test_what_is_no_job_stays_unless_it_is_asked_for_and_is_requeued_as_it_is(
    letters: DeadLetters, emails: QueueConfig, door: BrokerDoor, queuey_broker: BrokerUnderTest
) -> None:
    headers = {"x-death-reason": "malformed envelope", "x-original-queue": emails.name, "x-attempts": 1, "own": "kept"}
    headers |= {"CC": ["elsewhere"], "x-death": "garbage"}
    told = {"type": "other", "message_id": "m", "delivery_mode": 2, "priority": 3, "expiration": "600000"}
    properties = Properties(headers=headers, user_id=urlsplit(queuey_broker.url).username, **told)
    door.publish(f"{emails.name}.dead", b"hello", properties)
    left = letters.requeue()
    assert (left.chosen, left.done, left.malformed) == (0, 0, 1)
    assert door.comes_to(f"{emails.name}.dead", 1)
    assert letters.requeue(malformed=True).done == 1
    message = door.get(emails.name)
    assert message is not None
    assert message.body == b"hello"
    assert dict(message.headers) == {"own": "kept"}
    back = message.properties
    assert (back.type, back.message_id, back.delivery_mode, back.priority) == ("other", "m", 2, 3)
    assert (back.user_id, back.expiration) == (None, None)


def test_a_dead_letter_whose_origin_is_gone_stays_and_the_others_go(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, door: BrokerDoor, taken: Taken
) -> None:
    job = bury("here", queue=emails.name)
    lost = Envelope(
        job_id=job.job_id, job_type="send_email", queue=f"{emails.name}.gone", enqueued_at_ms=0, payload="gone"
    )
    for _ in range(2):
        door.publish(f"{emails.name}.dead", lost.to_bytes())
    done = letters.requeue()
    assert (done.chosen, done.done) == (3, 1)
    [(error, times)] = done.errors.items()
    assert f"publishing to queue '{emails.name}.gone': the message is unroutable" in error
    assert times == 2
    assert taken(emails.name) == ["here"]
    assert taken(f"{emails.name}.dead") == ["gone", "gone"]


def test_a_job_that_dies_again_at_once_is_requeued_once(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_backend: RabbitMqBackend
) -> None:
    bury(1)
    bury(2)

    def die_again(_looked_at: int, _total: int) -> None:
        with queuey_backend.consume(emails) as deliveries:
            while (delivery := deliveries.get_ready()) is not None:
                delivery.dead_letter("again")

    assert letters.requeue(progress=die_again).done == 2


def test_progress_tells_how_many_of_how_many(letters: DeadLetters, bury: Bury) -> None:
    for number in range(3):
        bury(number)
    told: list[tuple[int, int]] = []
    letters.requeue(progress=lambda looked_at, total: told.append((looked_at, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_error_of_the_callers_own_code_loses_nothing(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken
) -> None:
    for number in range(3):
        bury(number)

    not_the_third = {1: None, 2: None}
    with pytest.raises(KeyError):
        letters.requeue(progress=lambda looked_at, _: not_the_third[looked_at])
    assert taken(emails.name) == [0, 1]
    assert taken(f"{emails.name}.dead") == [2]


def test_an_unknown_kind_of_attempt_is_refused(letters: DeadLetters) -> None:
    unknown: Any = "second"
    with pytest.raises(InvalidConfigError, match="attempt: expected 'next' or 'first', got 'second'"):
        letters.requeue(attempt=unknown)


@pytest.mark.queuey_broker("fake")
def test_a_backend_that_ends_in_the_middle_leaves_the_rest_where_it_was(
    bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest, taken: Taken
) -> None:
    for number in range(5):
        bury(number)
    other = queuey_broker.backend()
    done = DeadLetters(other, emails).requeue(progress=lambda looked_at, _: {3: other.close}.get(looked_at, int)())
    assert (done.looked_at, done.done) == (3, 2)
    assert len(done.errors) == 1
    assert taken(emails.name) == [0, 1]
    assert taken(f"{emails.name}.dead") == [2, 3, 4]


@pytest.mark.queuey_broker("fake")
def test_a_publish_that_the_broker_refuses_leaves_its_dead_letter(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest, taken: Taken
) -> None:
    bury(1)
    bury(2)
    queuey_broker.faults.nack_next()
    done = letters.requeue()
    assert (done.chosen, done.done) == (2, 1)
    assert taken(emails.name) == [2]
    assert taken(f"{emails.name}.dead") == [1]


@pytest.mark.queuey_broker("fake")
def test_a_connection_that_is_lost_in_the_middle_is_in_the_report_and_nothing_is_lost(
    bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    for number in range(5):
        bury(number)
    cut = queuey_broker.faults.drop_connections
    other = queuey_broker.backend(RabbitMqOptions(reconnect=None))
    done = DeadLetters(other, emails).requeue(progress=lambda looked_at, _: {3: cut}.get(looked_at, int)())
    assert (done.looked_at, done.done, len(done.errors)) == (3, 2, 1)
    assert ready(queuey_broker, emails.name) == 2
    assert [letter.envelope.payload for letter in DeadLetters(queuey_broker.backend(), emails)] == [2, 3, 4]


@pytest.mark.queuey_broker("fake")
def test_a_connection_that_comes_back_does_not_go_on_with_what_the_broker_has_taken_back(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    for number in range(3):
        bury(number)
    looking = iter(letters)
    next(looking)
    queuey_broker.faults.drop_connections()
    queuey_broker.advance(60)
    with pytest.raises(ConnectionLostError, match=r"nothing is lost. Start again"):
        next(looking)
    assert [letter.number for letter in letters] == [1, 2, 3]
    assert ready(queuey_broker, f"{emails.name}.dead") == 3


@pytest.mark.queuey_broker("fake")
def test_a_connection_cut_between_publish_and_confirm_may_double_a_job_and_loses_none(
    bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    for number in range(5):
        bury(number)
    other = queuey_broker.backend(RabbitMqOptions(reconnect=None))
    queuey_broker.faults.drop_connections(after_publishes=3, before_confirm=True)
    done = DeadLetters(other, emails).requeue()
    assert done.errors
    checking = queuey_broker.backend()
    left = [letter.envelope.payload for letter in DeadLetters(checking, emails)]
    count = ready(queuey_broker, emails.name)
    with checking.consume(emails) as deliveries:
        back = [deliveries.get(timeout=5).envelope.payload for _ in range(count)]
    assert (back, left) == ([0, 1, 2], [2, 3, 4])


def test_a_declared_queue_names_its_dead_letters_too(queuey_backend: RabbitMqBackend) -> None:
    class Parcels(QueueSet, prefix="dead.letters"):
        outgoing = Queue()

    letters = DeadLetters(queuey_backend, Parcels.outgoing)
    assert (letters.queue, letters.dead_queue) == ("dead.letters.outgoing", "dead.letters.outgoing.dead")
