"""Names, arguments and waits of a work queue's companions, as other tools compute them too."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_rabbitmq import topology
from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.queue_config import QueueConfig
from queuey_rabbitmq.options import RabbitMqOptions


def test_the_constants_have_the_values_that_every_implementation_shares() -> None:
    constants = {name: value for name, value in vars(topology).items() if name.isupper() and name[0] != "_"}
    constants.pop("TYPE_CHECKING")
    assert constants == {
        "DEFAULT_DEAD_SUFFIX": ".dead",
        "DEFAULT_DEFERRED_SUFFIX": ".deferred",
        "DEFAULT_RETRY_SUFFIX": ".retry",
        "HEADER_DEATH_REASON": "x-death-reason",
        "HEADER_ORIGINAL_QUEUE": "x-original-queue",
        "HEADER_ATTEMPTS": "x-attempts",
        "HEADER_ATTEMPT": "x-attempt",
        "HEADER_DEFERRALS": "x-deferrals",
        "ARG_DEAD_LETTER_EXCHANGE": "x-dead-letter-exchange",
        "ARG_DEAD_LETTER_ROUTING_KEY": "x-dead-letter-routing-key",
        "ARG_MESSAGE_TTL": "x-message-ttl",
        "ARG_MAX_PRIORITY": "x-max-priority",
        "ARG_EXPIRES": "x-expires",
        "MAX_TTL_MS": 4294967295,
        "MAX_DEFERRAL_MS": 2147483647,
    }


def test_a_queues_companions_are_named_after_it() -> None:
    assert topology.dead_queue_name("myapp.emails", ".dead") == "myapp.emails.dead"
    assert topology.deferred_queue_name("myapp.emails", ".deferred", 30_000) == "myapp.emails.deferred.30000"
    assert topology.retry_queue_name("myapp.emails", ".retry") == "myapp.emails.retry"


# ------------------------------------------------------------------------------------------------------- waits


@pytest.mark.parametrize(
    ("delay", "granularity", "ttl_ms"),
    [
        (30, 1, 30_000),
        (29.2, 1, 30_000),
        (0.1, 0.1, 100),
        (0.1, 0.001, 100),
        (0.3, 0.1, 300),
        (29.001, 1, 30_000),
        (timedelta(microseconds=1), timedelta(milliseconds=100), 100),
        (timedelta(seconds=1, microseconds=1), timedelta(seconds=1), 2000),
        (0, 1, 1000),
        (-5, 1, 1000),
        (0, 0, 1),
        (0.0501, 0, 51),
        (0.05, -3, 50),
        (0.05, 0.0000001, 50),
        (0.003, 0.0015, 4),
        (0.0015, 0.001, 2),
        (1, 7, 7000),
        (2147483.647, 0.001, 2147483647),
        (2147483, 1, 2147483000),
        (1, 2147483.647, 2147483647),
        (1, 10**9, 2147483647),
    ],
)
def test_a_delay_is_rounded_up_to_whole_steps(
    delay: timedelta | float, granularity: timedelta | float, ttl_ms: int
) -> None:
    assert topology.deferred_ttl_ms(delay, granularity) == ttl_ms


@pytest.mark.parametrize(
    ("delay", "granularity"),
    [
        (2147483.648, 0.001),
        (2147483.6471, 0.001),
        (2147483.001, 1),  # under the cap, until it is rounded up
        (timedelta(days=25), 1),
        (2147483.648, 10**9),
        (1e300, 1),
    ],
)
def test_a_delay_over_the_cap_is_refused_rather_than_shortened(delay: timedelta | float, granularity: float) -> None:
    assert topology.deferred_ttl_ms(delay, granularity) is None


@given(st.integers(-(10**10), 10**10), st.integers(-(10**10), 10**10))
def test_a_wait_is_the_smallest_whole_number_of_steps_that_is_not_early(delay_us: int, granularity_us: int) -> None:
    granularity_ms = min(max(-(-granularity_us // 1000), 1), 2147483647)
    ttl_ms = topology.deferred_ttl_ms(timedelta(microseconds=delay_us), timedelta(microseconds=granularity_us))
    assert ttl_ms is not None
    assert ttl_ms % granularity_ms == 0
    assert ttl_ms * 1000 >= delay_us
    assert ttl_ms == granularity_ms or (ttl_ms - granularity_ms) * 1000 < delay_us


@pytest.mark.parametrize(("delay", "granularity"), [(math.nan, 1), (1, math.nan), (math.inf, 1), (True, 1), (1, "1")])
def test_what_is_no_length_of_time_is_an_error(delay: Any, granularity: Any) -> None:
    with pytest.raises(InvalidConfigError):
        topology.deferred_ttl_ms(delay, granularity)


@pytest.mark.parametrize(
    ("delay", "granularity", "expiration_ms"),
    [
        (29.2, 1, 30_000),
        (0, 1, 1000),
        (0.0001, 0, 1),
        (4294967.295, 0.001, 4294967295),
        (timedelta(days=40), 1, 3_456_000_000),
        (4294967.296, 0.001, None),
        (4294967.001, 1, None),
    ],
)
def test_an_expiration_is_rounded_like_a_hold_but_may_be_twice_as_long(
    delay: timedelta | float, granularity: float, expiration_ms: int | None
) -> None:
    assert topology.retry_expiration_ms(delay, granularity) == expiration_ms


# --------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (QueueConfig("q"), {"x-max-priority": 10}),
        (QueueConfig("q", max_priority=255), {"x-max-priority": 255}),
        (QueueConfig("q", max_priority=0), {}),
        (QueueConfig("q", max_priority=None), {}),
        (QueueConfig("q", max_priority=None, message_ttl=0.0001), {"x-message-ttl": 1}),
        (QueueConfig("q", max_priority=None, message_ttl=29.2), {"x-message-ttl": 29200}),
        (QueueConfig("q", message_ttl=timedelta(days=90)), {"x-message-ttl": 4294967295, "x-max-priority": 10}),
    ],
)
def test_the_work_queue_has_a_ttl_and_priorities_where_they_are_configured(
    config: QueueConfig, arguments: dict[str, Any]
) -> None:
    assert topology.queue_args(config) == arguments


QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}


def test_a_quorum_queue_has_no_priorities_and_no_limit_of_deliveries_and_so_has_its_dead_queue() -> None:
    config = QueueConfig("q", queue_type="quorum", message_ttl=5)
    assert topology.queue_args(config) == {"x-message-ttl": 5_000} | QUORUM
    assert topology.dead_queue_args(config) == QUORUM


def test_what_waits_for_a_quorum_queue_waits_in_classic_queues() -> None:
    quorum, classic = QueueConfig("q", queue_type="quorum"), QueueConfig("q")
    assert topology.deferred_queue_args(quorum, 1_000) == topology.deferred_queue_args(classic, 1_000)
    assert topology.retry_queue_args(quorum) == topology.retry_queue_args(classic)


def test_a_hold_queue_gives_back_to_its_work_queue_and_goes_after_twice_its_ttl() -> None:
    config = QueueConfig("myapp.emails", message_ttl=5, max_priority=9)
    assert topology.deferred_queue_args(config, 30_000) == {
        "x-message-ttl": 30_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "myapp.emails",
        "x-expires": 60_000,
    }


def test_a_hold_queue_outlives_twice_its_ttl_by_the_margin_that_is_asked_for() -> None:
    arguments = topology.deferred_queue_args(QueueConfig("q"), 30_000, lease_margin_ms=5_000)
    assert (arguments["x-message-ttl"], arguments["x-expires"]) == (30_000, 65_000)


def test_the_longest_hold_stays_within_what_the_broker_takes() -> None:
    arguments = topology.deferred_queue_args(QueueConfig("q"), topology.MAX_DEFERRAL_MS)
    assert arguments["x-expires"] == 4_294_967_294
    assert arguments["x-expires"] <= topology.MAX_TTL_MS


def test_the_retry_queue_gives_back_to_its_work_queue_and_has_no_ttl_of_its_own() -> None:
    assert topology.retry_queue_args(QueueConfig("q", message_ttl=5)) == {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
    }


def test_the_dead_queue_has_no_arguments_whatever_the_work_queue_has() -> None:
    assert topology.dead_queue_args(QueueConfig("q", message_ttl=5, max_priority=9)) == {}


# ------------------------------------------------------------------------------------------------ longest name


@pytest.mark.parametrize(
    ("options", "longest"),
    [
        (RabbitMqOptions(), "q.deferred.2147483647"),
        (RabbitMqOptions(retry_suffix=".retry"), "q.deferred.2147483647"),
        (RabbitMqOptions(dead_suffix="." + "d" * 30), "q." + "d" * 30),
        (RabbitMqOptions(dead_suffix="." + "d" * 30, declare_dead_letter_queues=False), "q.deferred.2147483647"),
        (RabbitMqOptions(retry_suffix=".wiederholung-spater"), "q.deferred.2147483647"),
        (
            RabbitMqOptions(retry_suffix=".wiederholung-später"),
            "q.wiederholung-später",
        ),  # one byte more, as many letters
    ],
)
def test_the_longest_name_is_found_among_all_that_a_queue_can_need(options: RabbitMqOptions, longest: str) -> None:
    assert topology.longest_queue_name("q", options) == longest


@pytest.mark.parametrize("granularity_ms", [1, 7, 1000, 999_999_999, 1_073_741_824, 2_147_483_647])
def test_no_granularity_makes_the_longest_hold_queue_name_shorter(granularity_ms: int) -> None:
    longest_ttl_ms = topology.MAX_DEFERRAL_MS // granularity_ms * granularity_ms
    granularity = timedelta(milliseconds=granularity_ms)
    assert topology.deferred_ttl_ms(timedelta(milliseconds=longest_ttl_ms), granularity) == longest_ttl_ms
    assert len(str(longest_ttl_ms)) == len(str(topology.MAX_DEFERRAL_MS))
