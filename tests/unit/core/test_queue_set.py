"""Declaring queue sets: what a set is made of, and that every mistake is an error at import."""

from __future__ import annotations

from datetime import timedelta
from types import new_class
from typing import Any

import pytest

from queuey_rabbitmq import InvalidConfigError, Queue, QueueConfig, QueueSet, RetryPolicy
from queuey_rabbitmq.core.queue_set import snake_case


class Emails(QueueSet, prefix="myapp"):
    outgoing = Queue(prefetch=10, retry=RetryPolicy.fixed(3, 1))
    BounceMail = Queue(durable=False, message_ttl=timedelta(hours=1), max_priority=0)
    bulk = Queue("mass.mail")

    NOT_A_QUEUE = 3


def declare(body: dict[str, Any], **options: Any) -> type[QueueSet]:
    """Declare a set as its class statement does."""
    return new_class("Declared", (QueueSet,), options, lambda namespace: namespace.update(body))


def test_a_queue_is_named_by_its_prefix_and_its_attribute_in_snake_case_or_as_it_says() -> None:
    assert [queue.name for queue in Emails.__queues__.values()] == [
        "myapp.outgoing",
        "myapp.bounce_mail",
        "myapp.mass.mail",
    ]
    assert declare({"work": Queue()}).__queues__["work"].name == "work"


def test_a_queue_has_what_was_said_about_it_and_the_defaults_of_queue_config_for_the_rest() -> None:
    assert Emails.outgoing.config == QueueConfig("myapp.outgoing", prefetch=10, retry=RetryPolicy.fixed(3, 1))
    assert Emails.BounceMail.config == QueueConfig("myapp.bounce_mail", durable=False, message_ttl=3600, max_priority=0)
    assert Emails.bulk.config == QueueConfig("myapp.mass.mail")


def test_a_queue_knows_its_set() -> None:
    assert Emails.outgoing.queue_set is Emails
    assert repr(Emails.outgoing) == "<WorkQueue Emails.outgoing 'myapp.outgoing'>"
    assert Emails.outgoing is Emails.outgoing


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefetch": 0}, r"Declared\.work: QueueConfig 'myapp.work': prefetch: expected an integer from 1 to 65535"),
        ({"prefetch": 65_536}, r"Declared\.work: .*prefetch"),
        ({"message_ttl": 0}, r"Declared\.work: .*message_ttl"),
        ({"message_ttl": 4_294_967.296}, r"Declared\.work: message_ttl: at most 4294967295 ms"),
        ({"max_priority": 256}, r"Declared\.work: .*max_priority: expected an integer from 0 to 255"),
        ({"max_priority": -1}, r"Declared\.work: .*max_priority"),
        ({"durable": "yes"}, r"Declared\.work: .*durable"),
        ({"retry": 3}, r"Declared\.work: .*retry: expected a RetryPolicy"),
        ({"prefech": 3}, r"Declared\.work: no such option: prefech; a queue has prefetch, retry"),
        ({"name": ""}, r"Declared\.work: name: must not be empty"),
        ({"name": " work"}, r"Declared\.work: name: must not be empty or start or end with whitespace"),
        ({"name": 3}, r"Declared\.work: name: expected text, got 3"),
        ({"name": "x" * 250}, r"Declared\.work: .*a queue's name has at most 255"),
    ],
)
def test_a_mistake_in_a_queue_names_the_class_and_the_field(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        declare({"work": Queue(**options)}, prefix="myapp")


@pytest.mark.parametrize(
    "options", [{"message_ttl": 4_294_967.295}, {"message_ttl": 0.001}, {"max_priority": 255}, {"queue_type": "quorum"}]
)
def test_the_limits_themselves_are_allowed(options: dict[str, Any]) -> None:
    assert declare({"work": Queue(**options)}).__queues__["work"].name == "work"


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ({"work": Queue()}, {"prefix": "myapp."}, r"Declared: prefix: the dot before a queue's name is added"),
        ({"work": Queue()}, {"prefix": " myapp"}, r"Declared: prefix: must not be empty or start or end with"),
        ({"work": Queue()}, {"prefix": 3}, r"Declared: prefix: expected text"),
        ({"work": Queue()}, {"prefx": "myapp"}, r"Declared: no such option: prefx"),
        ({"work": Queue(), "play": Queue("work")}, {}, r"Declared\.play: name: 'work' is the name of work already"),
        ({"work": QueueConfig("work")}, {}, r"Declared\.work: a queue set declares its queues with Queue"),
        ({"work": Queue}, {}, r"Declared\.work: a queue set declares its queues with Queue\("),
        ({"work": Queue(), "play": Emails.outgoing}, {}, r"Declared\.play: a queue set declares its queues with Queue"),
        ({}, {}, r"Declared: declares no queue"),
    ],
)
def test_a_mistake_in_a_set_names_the_class(body: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        declare(body, **options)


def test_a_queue_belongs_to_one_attribute_of_one_set() -> None:
    queue = Queue()
    declare({"work": queue})
    with pytest.raises(InvalidConfigError, match=r"Declared\.play: is <WorkQueue Declared\.work 'work'> already"):
        declare({"play": queue})


def test_a_set_is_not_inherited_and_has_no_instances() -> None:
    with pytest.raises(InvalidConfigError, match="More: a queue set inherits from QueueSet alone"):
        new_class("More", (Emails,))
    with pytest.raises(TypeError, match="Emails is used as it is"):
        Emails()


def test_a_queue_outside_a_set_says_so() -> None:
    class NoSet:
        work = Queue()

    with pytest.raises(InvalidConfigError, match="NoSet: a Queue stands in"):
        _ = NoSet.work


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SendEmail", "send_email"), ("HTTPCall", "http_call"), ("outgoing", "outgoing"), ("retry2Times", "retry2_times")],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected
