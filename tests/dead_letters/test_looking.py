"""Looking at dead letters changes nothing, whatever they are."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from pytest_queuey.queuey_clock import QueueyClock
from queuey_rabbitmq import (
    BackendError,
    ChannelClosedError,
    DeadLetters,
    Envelope,
    InvalidConfigError,
    Job,
    Queue,
    QueueConfig,
    QueueNameTooLongError,
    QueueSet,
    RabbitMqBackend,
    SerializationError,
    browsing,
    job,
)
from queuey_rabbitmq.amqp import Properties

Bury = Callable[..., Envelope]
Taken = Callable[[str], list[Any]]


class Emails(QueueSet):
    emails = Queue()


@job(Emails.emails)
class SendEmail(Job[Emails]):
    to: str


@job(Emails.emails)
class SendLetter(Job[Emails]):
    to: str


def payloads(letters: DeadLetters, **choice: Any) -> list[Any]:
    return [letter.envelope.payload for letter in letters.look(**choice) if letter.envelope is not None]


def test_a_dead_letter_says_why_it_died_and_what_it_is(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_clock: QueueyClock
) -> None:
    job = bury({"to": "ada"}, "mailbox unknown", attempt=3)
    queuey_clock.advance(0.1)
    [letter] = letters
    assert (letter.number, letter.reason, letter.attempts) == (1, "mailbox unknown", 3)
    assert (letter.job_type, letter.job_id, letter.origin) == ("send_email", job.job_id, emails.name)
    assert letter.envelope == job
    assert letter.body == job.to_bytes()
    assert letter.age_ms is not None
    assert letter.age_ms >= 100


def test_looking_gives_everything_back_in_order(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken
) -> None:
    for number in range(5):
        bury(number)
    assert payloads(letters) == payloads(letters) == [0, 1, 2, 3, 4]
    assert taken(f"{emails.name}.dead") == [0, 1, 2, 3, 4]


def test_many_are_looked_at_a_window_at_a_time_and_go_back_in_order(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "WINDOW", 3)
    for number in range(8):
        bury(number)
    assert payloads(letters) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert taken(f"{emails.name}.dead") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_looking_at_the_first_few_gives_them_back_too(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "WINDOW", 2)
    for number in range(6):
        bury(number)
    looking = iter(letters)
    assert [next(looking).number for _ in range(3)] == [1, 2, 3]
    del looking
    assert payloads(letters, limit=4) == [0, 1, 2, 3]
    assert taken(f"{emails.name}.dead") == [0, 1, 2, 3, 4, 5]


def test_looking_leaves_nothing_but_the_mark_of_a_redelivery(letters: DeadLetters, bury: Bury) -> None:
    bury("looked at")
    assert [letter.redelivered for letter in letters] == [False]
    assert [letter.redelivered for letter in letters] == [True]


def test_what_dies_while_somebody_looks_is_left_for_the_next_time(letters: DeadLetters, bury: Bury) -> None:
    bury("first")
    seen = [bury(f"after {letter.number}").payload for letter in letters]
    assert seen == ["after 1"]
    assert payloads(letters) == ["first", "after 1"]


def test_an_empty_dead_queue_has_nothing_to_look_at(letters: DeadLetters) -> None:
    assert list(letters) == []


def test_a_dead_queue_that_does_not_exist_is_an_error_that_names_it(queuey_backend: RabbitMqBackend) -> None:
    with pytest.raises(ChannelClosedError, match=r"consuming queue 'nowhere\.dead': .*404 NOT_FOUND"):
        list(DeadLetters(queuey_backend, "nowhere"))


def test_a_name_that_no_dead_queue_can_have_is_refused(queuey_backend: RabbitMqBackend) -> None:
    DeadLetters(queuey_backend, "x" * 250)
    with pytest.raises(QueueNameTooLongError, match=r"^dead letters of queue 'x+': .* a name of 256 bytes"):
        DeadLetters(queuey_backend, "x" * 251)


def test_a_body_that_is_no_envelope_is_shown_as_what_it_is_and_stays(
    letters: DeadLetters, emails: QueueConfig, door: BrokerDoor
) -> None:
    door.publish(f"{emails.name}.dead", b"hello", Properties(headers={"x-attempts": "many", "other": 1}, type="x"))
    [letter] = letters
    assert (letter.envelope, letter.job_type, letter.job_id, letter.age_ms) == (None, None, None, None)
    assert (letter.reason, letter.attempts, letter.origin) == (None, None, emails.name)
    assert letter.body == b"hello"
    assert letter.properties.type == "x"
    assert letter.problem is not None
    assert "not an envelope, in a body of 5 bytes" in letter.problem
    assert door.comes_to(f"{emails.name}.dead", 1)
    assert door.depth(f"{emails.name}.dead.dead") is None


def test_a_malformed_message_that_a_worker_moved_aside_says_so(
    letters: DeadLetters, emails: QueueConfig, queuey_backend: RabbitMqBackend, door: BrokerDoor
) -> None:
    door.publish(emails.name, b"hello")
    with queuey_backend.consume(emails) as deliveries:
        assert deliveries.get(timeout=0.2) is None
    assert [(letter.reason, letter.origin) for letter in letters] == [("malformed envelope", emails.name)]


def test_what_the_broker_dead_lettered_has_the_brokers_reason_and_its_last_queue_as_origin(
    letters: DeadLetters, emails: QueueConfig, door: BrokerDoor, queuey_clock: QueueyClock
) -> None:
    # As with a job that was rejected after a wait: its first death was the end of the wait.
    stations = [f"{emails.name}.{number}" for number in (1, 2)]
    for station, after in zip(stations, [stations[1], f"{emails.name}.dead"], strict=True):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": after, "x-message-ttl": 50}
        door.declare(station, arguments=arguments)
    door.publish(stations[0], b"hello")
    queuey_clock.advance(0.3)
    assert [(letter.reason, letter.origin) for letter in letters] == [("expired", stations[1])]


def test_a_dead_letter_is_decoded_as_the_job_it_is_and_as_no_other(letters: DeadLetters, bury: Bury) -> None:
    bury({"to": "ada"})
    [letter] = letters
    assert letter.decode(SendEmail) == SendEmail("ada")
    assert letter.decode(dict[str, str]) == {"to": "ada"}
    with pytest.raises(SerializationError, match="is a 'send_email', no 'send_letter'"):
        letter.decode(SendLetter)


def test_what_is_no_job_cannot_be_decoded(letters: DeadLetters, emails: QueueConfig, door: BrokerDoor) -> None:
    door.publish(f"{emails.name}.dead", b"hello")
    [letter] = letters
    with pytest.raises(SerializationError, match=r"dead letter 1 of queue '.*emails' is no job: not an envelope"):
        letter.decode(SendEmail)


def test_dead_letters_are_chosen_by_reason_type_id_age_and_anything_else(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, door: BrokerDoor, queuey_broker: BrokerUnderTest
) -> None:
    old = bury("old", "Timeout after 5 s", enqueued_at_ms=queuey_broker.now_ms() - 3_600_000)
    bury("new", "gave up: TIMEOUT")
    bury("other", "mailbox unknown", job_type="send_letter")
    door.publish(f"{emails.name}.dead", b"hello")
    assert payloads(letters, reason="timeout") == ["old", "new"]
    assert payloads(letters, job_type="send_letter") == ["other"]
    assert payloads(letters, job_id=old.job_id) == ["old"]
    assert payloads(letters, job_id=uuid.uuid4()) == []
    assert [letter.number for letter in letters.look(older_than=1800)] == [1]
    assert [letter.number for letter in letters.look(where=lambda letter: letter.envelope is None)] == [4]
    assert payloads(letters, reason="timeout", older_than=0, limit=1) == ["old"]


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ({"limit": 0}, "limit: expected an integer from 1, got 0"),
        ({"older_than": "1h"}, "older_than: expected a timedelta or a number of seconds"),
        ({"raison": "x"}, "no such choice: raison"),
        ({"job_type": SendEmail}, "job_type: expected the name of a job, such as 'send_email', got <class"),
        ({"reason": 3}, "reason: expected a part of the reason, got 3"),
        ({"job_id": "1"}, "job_id: expected a uuid.UUID, got '1'"),
        ({"where": "all"}, "where: expected a function, got 'all'"),
    ],
)
def test_a_choice_that_can_never_work_is_refused_before_anything_is_looked_at(
    letters: DeadLetters, choice: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidConfigError, match=error):
        letters.look(**choice)


def test_losing_the_connection_ends_the_looking_and_nothing_else(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest, taken: Taken
) -> None:
    bury(1)
    bury(2)
    with queuey_broker.backend() as other:
        looking = iter(DeadLetters(other, emails))
        next(looking)
    with pytest.raises(BackendError):
        next(looking)
    assert taken(f"{emails.name}.dead") == [1, 2]


def test_more_than_can_be_held_is_an_error_that_says_so_and_loses_nothing(
    letters: DeadLetters, bury: Bury, emails: QueueConfig, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "WINDOW", 2)
    monkeypatch.setattr(browsing, "MAX_WINDOWS", 2)
    for number in range(5):
        bury(number)
    looking = iter(letters)
    assert [next(looking).number for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(BackendError, match="no more than 4 messages can be held at a time, and 1 follow"):
        next(looking)
    assert taken(f"{emails.name}.dead") == [0, 1, 2, 3, 4]
