"""Options are checked when they are made, and never change."""

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest

from queuey_rabbitmq.core.errors import BackendError, InvalidConfigError
from queuey_rabbitmq.core.reconnect import Attempt, ReconnectPolicy
from queuey_rabbitmq.options import RabbitMqOptions


def test_the_defaults_are_those_of_the_documentation() -> None:
    fields = {f.name: getattr(RabbitMqOptions(), f.name) for f in dataclasses.fields(RabbitMqOptions) if f.init}
    assert fields == {
        "dead_suffix": ".dead",
        "deferred_suffix": ".deferred",
        "retry_suffix": None,
        "declare_dead_letter_queues": True,
        "retry_granularity": 1,
        "deferred_granularity": 1,
        "hold_lease_margin": 0,
        "connection_properties": {},
        "connection_name": None,
        "heartbeat": 10,
        "ssl_context": None,
        "connect_timeout": 10,
        "operation_timeout": 30,
        "close_timeout": 5,
        "max_in_flight": 1000,
        "max_in_flight_bytes": 64 * 1024 * 1024,
        "reconnect": ReconnectPolicy(),
    }


def test_durations_are_there_in_milliseconds() -> None:
    options = RabbitMqOptions(
        retry_granularity=timedelta(milliseconds=100),
        deferred_granularity=0.2,
        connect_timeout=0.3,
        operation_timeout=4,
        close_timeout=timedelta(minutes=1),
    )
    assert (options.retry_granularity_ms, options.deferred_granularity_ms) == (100, 200)
    assert (options.connect_timeout_ms, options.operation_timeout_ms, options.close_timeout_ms) == (300, 4000, 60_000)


def test_replacing_makes_new_options_and_derives_again() -> None:
    options = RabbitMqOptions(heartbeat=5)
    changed = options.replace(retry_suffix=".retry", connect_timeout=2)
    assert (changed.retry_suffix, changed.heartbeat, changed.connect_timeout_ms) == (".retry", 5, 2000)
    assert (options.retry_suffix, options.connect_timeout_ms) == (None, 10_000)


@pytest.mark.parametrize("name", ["retry_sufix", "connect_timeout_ms"])
def test_replacing_what_is_no_option_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"no such option: {name}"):
        RabbitMqOptions().replace(**{name: 5})


def test_replacing_checks_like_making() -> None:
    with pytest.raises(InvalidConfigError, match="RabbitMqOptions: heartbeat: "):
        RabbitMqOptions().replace(heartbeat=-1)


def test_options_cannot_be_changed() -> None:
    options = RabbitMqOptions(connection_properties={"product": "shop"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.heartbeat = 3  # type: ignore[misc]  # the mistake
    with pytest.raises(TypeError):
        options.connection_properties["product"] = "x"  # type: ignore[index]  # the mistake


def test_later_changes_to_the_given_connection_properties_are_not_seen() -> None:
    given = {"product": "shop"}
    options = RabbitMqOptions(connection_properties=given)
    given["product"] = "x"
    assert options.connection_properties == {"product": "shop"}
    assert options.replace(heartbeat=3).connection_properties == {"product": "shop"}
    assert hash(options) == hash(RabbitMqOptions(connection_properties={"product": "shop"}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dead_suffix", ""),
        ("dead_suffix", None),
        ("dead_suffix", " .dead"),
        ("dead_suffix", b".dead"),
        ("deferred_suffix", ""),
        ("deferred_suffix", ".dead"),
        ("retry_suffix", ""),
        ("retry_suffix", ".dead"),
        ("retry_suffix", ".deferred"),
        ("declare_dead_letter_queues", 1),
        ("retry_granularity", 0),
        ("retry_granularity", math.nan),
        ("deferred_granularity", timedelta(0)),
        ("deferred_granularity", -1),
        ("hold_lease_margin", -1),
        ("hold_lease_margin", timedelta(days=1, milliseconds=1)),
        ("hold_lease_margin", None),
        ("connection_properties", [("a", "b")]),
        ("connection_properties", {1: "b"}),
        ("connection_name", ""),
        ("connection_name", 5),
        ("reconnect", True),
        ("reconnect", "always"),
        ("reconnect", ReconnectPolicy),
        ("heartbeat", -1),
        ("heartbeat", 65536),
        ("heartbeat", 1.5),
        ("heartbeat", True),
        ("connect_timeout", 0),
        ("connect_timeout", None),
        ("operation_timeout", math.inf),
        ("close_timeout", "5"),
        ("max_in_flight", 0),
        ("max_in_flight", 1.0),
        ("max_in_flight_bytes", 0),
        ("max_in_flight_bytes", None),
    ],
)
def test_a_value_that_can_never_work_is_refused_and_the_field_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"^RabbitMqOptions: {field}: "):
        RabbitMqOptions(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", "0.1"),
        ("base", True),
        ("max_delay", None),
        ("max_failures", -1),
        ("max_failures", 1.5),
        ("republish", "no"),
    ],
)
def test_a_reconnect_policy_that_can_never_work_is_refused_and_the_field_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=f"^ReconnectPolicy: {field}: "):
        ReconnectPolicy(**{field: value})


def test_a_reconnect_policy_counts_in_seconds_or_timedeltas() -> None:
    policy = ReconnectPolicy(base=timedelta(milliseconds=500), max_delay=timedelta(minutes=1))
    lost = BackendError("lost")
    first, tenth = (policy.next_delay(Attempt(failures=n, error=lost, rebuilding="connection")) for n in (0, 9))
    assert first is not None
    assert 0.25 <= first <= 0.5
    assert tenth is not None
    assert 30 <= tenth <= 60
    with pytest.raises(InvalidConfigError, match="0 < base <= max_delay must hold"):
        ReconnectPolicy(base=timedelta(minutes=1), max_delay=1)
