"""A queue's configuration is checked when it is made."""

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest

from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.core.retry import RetryPolicy


def test_the_defaults_are_those_of_the_documentation() -> None:
    config = QueueConfig("myapp.emails")
    assert (config.name, config.prefetch, config.retry, config.durable, config.message_ttl, config.max_priority) == (
        "myapp.emails",
        16,
        RetryPolicy.none(),
        True,
        None,
        10,
    )


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        QueueConfig("q").prefetch = 3  # type: ignore[misc]  # the mistake


def test_equal_waits_make_equal_configurations_however_they_are_written() -> None:
    assert QueueConfig("q", message_ttl=1.5) == QueueConfig("q", message_ttl=timedelta(milliseconds=1500))
    assert QueueConfig("q", message_ttl=1.5) != QueueConfig("q", message_ttl=1.6)
    assert hash(QueueConfig("q", message_ttl=2)) == hash(QueueConfig("q", message_ttl=2.0))


@pytest.mark.parametrize(("max_priority", "top"), [(10, 10), (255, 255), (1, 1), (0, 0), (None, 0)])
def test_a_deferred_job_returns_at_the_top_priority(max_priority: int | None, top: int) -> None:
    assert QueueConfig("q", max_priority=max_priority).top_priority == top


@pytest.mark.parametrize(("ttl", "ms"), [(0.0001, 1), (29.2, 29200), (timedelta(days=90), 7_776_000_000), (None, None)])
def test_any_positive_ttl_is_taken_and_rounded_up(ttl: timedelta | float | None, ms: int | None) -> None:
    assert QueueConfig("q", message_ttl=ttl).message_ttl_ms == ms


@pytest.mark.parametrize("name", ["q", "é" * 127, "a" * 255, "amqp.jobs", "my queue"])
def test_names_that_amqp_can_carry_are_taken(name: str) -> None:
    assert QueueConfig(name).name == name


@pytest.mark.parametrize("name", ["", " ", " q", "q\n", "amq.gen", "a" * 256, "é" * 128, "\ud800", None, 7, b"q"])
def test_names_that_can_never_work_are_refused(name: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"^QueueConfig: name: "):
        QueueConfig(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefetch", 0),
        ("prefetch", 65536),
        ("prefetch", True),
        ("prefetch", 1.0),
        ("max_priority", -1),
        ("max_priority", 256),
        ("max_priority", False),
        ("max_priority", "10"),
        ("message_ttl", 0),
        ("message_ttl", -1),
        ("message_ttl", timedelta(0)),
        ("message_ttl", math.inf),
        ("message_ttl", "1s"),
        ("durable", 1),
        ("queue_type", "stream"),
        ("queue_type", None),
        ("retry", None),
        ("retry", 3),
    ],
)
def test_a_value_that_can_never_work_is_refused_naming_queue_and_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"^QueueConfig 'jobs': {field}: "):
        QueueConfig("jobs", **{field: value})


@pytest.mark.parametrize(("field", "value"), [("prefetch", 1), ("prefetch", 65535), ("max_priority", 255)])
def test_the_outermost_values_are_taken(field: str, value: Any) -> None:
    assert getattr(QueueConfig("jobs", **{field: value}), field) == value


def test_a_quorum_queue_that_is_not_durable_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"^QueueConfig 'jobs': durable: RabbitMQ has no quorum queue that"):
        QueueConfig("jobs", queue_type="quorum", durable=False)


def test_a_deferred_job_returns_to_a_quorum_queue_at_the_top_priority_too() -> None:
    assert QueueConfig("jobs", queue_type="quorum").top_priority == 10
