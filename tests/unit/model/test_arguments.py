"""Queue and consumer arguments are refused and compared with RabbitMQ's texts, in RabbitMQ's order.

Every text here was given by RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
"""

from dataclasses import replace
from decimal import Decimal

import pytest

from queuey_fake.model import arguments
from queuey_fake.model.arguments import QueueProperties, QueueSettings
from queuey_fake.model.errors import AmqpException, ChannelException, ConnectionException
from queuey_fake.model.fields import Field, Table, table_from_python
from queuey_fake.model.versions import VERSIONS, Version, version_named

ALL = list(VERSIONS)


def declared(
    values: dict[str, object],
    *,
    version: str = "4.3",
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> QueueSettings:
    properties = QueueProperties(
        durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=table_from_python(values)
    )
    return arguments.queue_settings(properties, queue="q", vhost="/", version=version_named(version))


def refusal_of(values: dict[str, object], **options: object) -> str:
    with pytest.raises(AmqpException) as caught:
        declared(values, **options)  # type: ignore[arg-type]  # options of declared
    return caught.value.text.replace("PRECONDITION_FAILED - ", "").replace(" for queue 'q' in vhost '/'", "")


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"x-message-ttl": "1"}, "invalid arg 'x-message-ttl': \"expected integer, got longstr\""),
        ({"x-message-ttl": True}, "invalid arg 'x-message-ttl': \"expected integer, got bool\""),
        ({"x-message-ttl": -1}, "invalid arg 'x-message-ttl': {value_negative,-1}"),
        ({"x-message-ttl": 315360000001}, "invalid arg 'x-message-ttl': {value_too_large,315360000001}"),
        ({"x-expires": 0}, "invalid arg 'x-expires': {value_zero,0}"),
        ({"x-max-priority": 256}, "invalid arg 'x-max-priority': {max_value_exceeded,256}"),
        ({"x-max-priority": -1}, "invalid arg 'x-max-priority': {value_negative,-1}"),
        ({"x-overflow": "x"}, "invalid arg 'x-overflow': invalid_overflow"),
        ({"x-overflow": 3}, "invalid arg 'x-overflow': {unacceptable_type,signedint}"),
        ({"x-single-active-consumer": "true"}, "invalid arg 'x-single-active-consumer': {unacceptable_type,longstr}"),
        ({"x-queue-version": 3}, "invalid arg 'x-queue-version': \"unsupported queue version '3'\""),
        ({"x-queue-version": -2}, "invalid arg 'x-queue-version': {value_negative,-2}"),
        ({"x-queue-type": "bogus"}, "invalid arg 'x-queue-type': \"unsupported queue type 'bogus'\""),
        ({"x-queue-type": 3}, "invalid arg 'x-queue-type': {unacceptable_type,signedint}"),
        ({"x-delivery-limit": 3}, "invalid arg 'x-delivery-limit' of queue type rabbit_classic_queue"),
        ({"x-dead-letter-routing-key": "k"}, "invalid arg 'x-dead-letter-routing-key': routing_key_but_no_dlx_defined"),
        ({"x-dead-letter-routing-key": None}, "invalid arg 'x-dead-letter-routing-key': {unacceptable_type,void}"),
        (
            {"x-queue-type": "quorum", "x-max-priority": 5},
            "invalid arg 'x-max-priority' of queue type rabbit_quorum_queue",
        ),
        (
            {"x-queue-type": "quorum", "x-queue-leader-locator": "bogus"},
            "invalid arg 'x-queue-leader-locator': invalid_queue_locator_arg",
        ),
        (
            {"x-queue-type": "quorum", "x-quorum-initial-group-size": 0},
            "invalid arg 'x-quorum-initial-group-size': {value_zero,0}",
        ),
        (
            {"x-queue-type": "quorum", "x-dead-letter-strategy": "at"},
            "invalid arg 'x-dead-letter-strategy': invalid_dlx_strategy",
        ),
    ],
)
def test_an_argument_is_refused_with_rabbitmqs_text(version: str, values: dict[str, object], text: str) -> None:
    assert refusal_of(values, version=version) == text


def test_a_dead_letter_exchange_that_is_no_string_is_refused_before_anything_else() -> None:
    text = refusal_of({"x-message-ttl": -1, "x-dead-letter-exchange": 1})
    assert text == "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"


def test_values_are_checked_in_rabbitmqs_order_and_not_in_the_tables() -> None:
    assert refusal_of({"x-max-length": -1, "x-expires": 0}).startswith("invalid arg 'x-expires'")


@pytest.mark.parametrize(("version", "first"), [("3.10", "x-max-age"), ("4.0", "x-delivery-limit")])
def test_foreign_arguments_are_checked_in_the_tables_order_which_4_sorts(version: str, first: str) -> None:
    text = refusal_of({"x-max-age": "1D", "x-delivery-limit": 3}, version=version)
    assert text.startswith(f"invalid arg '{first}'")


@pytest.mark.parametrize(
    ("values", "accepting"),
    [
        ({"x-queue-mode": "bogus"}, ["4.3"]),
        ({"x-queue-version": 1}, ["3.10", "4.0"]),
        ({"x-queue-type": ""}, ["4.3"]),
        ({"x-queue-master-locator": "bogus"}, ["4.0"]),
        ({"x-queue-master-locator": "min-masters"}, ["3.10", "4.0"]),
        ({"x-consumer-timeout": 5}, ["3.10", "4.0"]),
        ({"x-queue-leader-locator": "balanced"}, ["4.0", "4.3"]),
        ({"x-stream-filter-size-bytes": 3}, ["3.10", "4.0"]),
        ({"x-queue-type": "quorum", "x-consumer-timeout": -1}, ["3.10", "4.0"]),
        ({"x-queue-type": "quorum", "x-delivery-limit": "a"}, ALL),
        ({"x-unknown": 1}, ALL),
    ],
)
def test_versions_differ_in_what_they_accept(values: dict[str, object], accepting: list[str]) -> None:
    refusing = [version for version in ALL if version not in accepting]
    for version in accepting:
        assert declared(values, version=version)
    for version in refusing:
        assert refusal_of(values, version=version)


def test_a_transient_queue_is_denied_by_4_3_unless_permitted() -> None:
    with pytest.raises(ConnectionException) as caught:
        declared({}, durable=False)
    assert caught.value.code == 541
    assert caught.value.text.startswith(
        "INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated.\nBy default,"
    )
    assert caught.value.text.endswith("...")
    assert declared({}, durable=False, exclusive=True)
    assert declared({}, durable=False, version="4.0")


@pytest.mark.parametrize("queue_type", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("options", "property_"),
    [
        ({"durable": False}, "non-durable"),
        ({"durable": False, "auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive-owner"),
    ],
)
def test_a_quorum_queue_or_stream_is_durable_and_shared(
    queue_type: str, options: dict[str, object], property_: str
) -> None:
    assert refusal_of({"x-queue-type": queue_type}, version="4.0", **options) == f"invalid property '{property_}'"


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"x-max-age": "1x"}, "invalid arg 'x-max-age': invalid_max_age"),
        ({"x-max-age": "00h"}, "invalid arg 'x-max-age': invalid_max_age"),
        ({"x-max-age": "5"}, "invalid arg 'x-max-age': invalid_max_age"),
        ({"x-max-age": 5}, "invalid arg 'x-max-age': {unacceptable_type,signedint}"),
        ({"x-initial-cluster-size": 0}, "invalid arg 'x-initial-cluster-size': {value_zero,0}"),
        ({"x-max-age": "1x", "x-expires": 1}, "invalid arg 'x-max-age': invalid_max_age"),
        ({"x-max-age": "1h", "x-expires": 1}, "invalid arg 'x-expires' of queue type rabbit_stream_queue"),
        (
            {"x-stream-max-segment-size-bytes": 3_000_000_001},
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
    ],
)
def test_a_stream_is_refused_as_rabbitmq_refuses_it(version: str, values: dict[str, object], text: str) -> None:
    # Scenario stream_arguments_refused
    assert refusal_of({"x-queue-type": "stream", **values}, version=version) == text


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"x-max-age": "01h"},
        {"x-max-age": "9" * 5000 + "Y"},
        {"x-max-age": "1h\nand more"},
        {"x-max-length-bytes": 0, "x-stream-max-segment-size-bytes": 3_000_000_000, "x-stream-filter-size-bytes": 16},
    ],
)
def test_a_stream_that_rabbitmq_would_make_is_refused_in_words_of_our_own(values: dict[str, object]) -> None:
    with pytest.raises(ConnectionException) as caught:
        declared({"x-queue-type": "stream", **values})
    assert (caught.value.code, caught.value.text) == (
        540,
        "NOT_IMPLEMENTED - queue 'q' in vhost '/' cannot be a stream: streams are not imitated",
    )


@pytest.mark.parametrize(("version", "code"), [("3.10", 541), ("4.0", 541), ("4.3", 406)])
def test_an_age_that_begins_with_no_digit_crashes_the_channel_before_4_3(version: str, code: int) -> None:
    with pytest.raises(AmqpException) as caught:  # scenario stream_max_age_without_number
        declared({"x-queue-type": "stream", "x-max-age": "h"}, version=version)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("size", "in_4_0", "in_4_3"),
    [
        (15, "Invalid value for  x-stream-filter-size-bytes", "Invalid value for x-stream-filter-size-bytes"),
        (256, "Invalid value for  x-stream-filter-size-bytes", "Invalid value for x-stream-filter-size-bytes"),
        (
            -1,
            "Invalid value for  x-stream-filter-size-bytes",
            "invalid arg 'x-stream-filter-size-bytes': {value_negative,-1}",
        ),
        (
            "16",
            "Invalid value for  x-stream-filter-size-bytes",
            "invalid arg 'x-stream-filter-size-bytes': \"expected integer, got longstr\"",
        ),
    ],
)
def test_the_filter_of_a_stream_has_bounds_from_4_0_on(size: object, in_4_0: str, in_4_3: str) -> None:
    # Scenario stream_filter_size_refused
    told = [
        refusal_of({"x-queue-type": "stream", "x-stream-filter-size-bytes": size}, version=version) for version in ALL
    ]
    assert told == [
        "NOT_IMPLEMENTED - queue 'q' in vhost '/' cannot be a stream: streams are not imitated",
        in_4_0,
        in_4_3,
    ]


def test_only_classic_queues_are_named_by_the_server() -> None:
    arguments.check_server_named({}, version=VERSIONS["4.3"])
    with pytest.raises(ChannelException, match="server-named queue for type rabbit_quorum_queue"):
        arguments.check_server_named(table_from_python({"x-queue-type": "quorum"}), version=VERSIONS["4.3"])


def test_arguments_become_settings() -> None:
    settings = declared(
        {
            "x-message-ttl": 100,
            "x-expires": 200,
            "x-dead-letter-exchange": "dlx",
            "x-dead-letter-routing-key": "k",
            "x-max-priority": 5,
            "x-max-length": 6,
            "x-max-length-bytes": 7,
            "x-overflow": "reject-publish-dlx",
            "x-single-active-consumer": True,
        }
    )
    assert settings == QueueSettings(
        queue_type="classic",
        message_ttl_ms=100,
        expires_ms=200,
        dead_letter_exchange="dlx",
        dead_letter_routing_key="k",
        max_priority=5,
        max_length=6,
        max_length_bytes=7,
        overflow="reject-publish-dlx",
        single_active_consumer=True,
    )


@pytest.mark.parametrize(("version", "limit"), [("3.10", None), ("4.0", 20), ("4.3", 20)])
def test_a_quorum_queue_without_delivery_limit_has_the_versions(version: str, limit: int | None) -> None:
    assert declared({"x-queue-type": "quorum"}, version=version).delivery_limit == limit


def test_a_negative_delivery_limit_is_none() -> None:
    assert declared({"x-queue-type": "quorum", "x-delivery-limit": -1}).delivery_limit is None


def test_a_quorum_queue_drops_its_head_where_reject_publish_dlx_is_asked_for() -> None:
    assert declared({"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx"}).overflow == "drop-head"


# Equivalence

CURRENT = QueueProperties(durable=True, exclusive=False, auto_delete=False, arguments={})


def difference(current: QueueProperties, given: QueueProperties, version: Version = VERSIONS["4.3"]) -> str:
    with pytest.raises(ChannelException) as caught:
        arguments.assert_equivalent(current, given, queue="q", vhost="/", version=version)
    return caught.value.text.replace("PRECONDITION_FAILED - inequivalent arg ", "").replace(
        " for queue 'q' in vhost '/'", ""
    )


def with_arguments(values: dict[str, object] | Table) -> QueueProperties:
    return replace(CURRENT, arguments=table_from_python(values))


def test_durable_is_compared_first_then_auto_delete_then_arguments() -> None:
    given = QueueProperties(
        durable=False, exclusive=False, auto_delete=True, arguments=table_from_python({"x-expires": 1})
    )
    assert difference(CURRENT, given) == "'durable': received 'false' but current is 'true'"
    given = replace(given, durable=True)
    assert difference(CURRENT, given) == "'auto_delete': received 'true' but current is 'false'"
    given = replace(given, auto_delete=False)
    assert difference(CURRENT, given).startswith("'x-expires'")


@pytest.mark.parametrize(
    ("current", "given", "text"),
    [
        ({"x-expires": 5}, {"x-expires": 6}, "received '6' but current is '5'"),
        ({"x-expires": 5}, {}, "received none but current is the value '5' of type 'signedint'"),
        ({}, {"x-expires": 5}, "received the value '5' of type 'signedint' but current is none"),
        ({"x-expires": 1}, {"x-expires": True}, "received 'true' but current is '1'"),
        ({"x-expires": 1}, {"x-expires": b"1"}, "received '1' but current is '1'"),
        ({"x-expires": 1}, {"x-expires": None}, "received none but current is '1'"),
        ({"x-expires": 1}, {"x-expires": {"a": 1}}, "received '[{<<\"a\">>,signedint,1}]' but current is '1'"),
    ],
)
def test_a_difference_is_told_as_rabbitmq_tells_it(
    current: dict[str, object], given: dict[str, object], text: str
) -> None:
    assert difference(with_arguments(current), with_arguments(given)) == f"'x-expires': {text}"


def test_integers_of_two_widths_are_equal_by_value() -> None:
    current = replace(CURRENT, arguments={"x-expires": Field("byte", 5)})
    given = replace(CURRENT, arguments={"x-expires": Field("long", 5)})
    arguments.assert_equivalent(current, given, queue="q", vhost="/", version=VERSIONS["4.3"])


def test_arguments_that_rabbitmq_does_not_know_are_not_compared() -> None:
    given = with_arguments({"x-unknown": 1, "x-delivery-limit": 5})
    arguments.assert_equivalent(CURRENT, given, queue="q", vhost="/", version=VERSIONS["4.3"])


def test_an_exclusive_queue_is_not_durable_whatever_was_declared() -> None:
    current = replace(CURRENT, durable=False, exclusive=True)
    given = replace(CURRENT, durable=True, exclusive=True)
    arguments.assert_equivalent(current, given, queue="q", vhost="/", version=VERSIONS["4.3"])


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("3.10", "'x-queue-type': received the value 'quorum' of type 'longstr' but current is none"),
        ("4.0", "'x-queue-type': received 'quorum' but current is 'classic'"),
    ],
)
def test_the_default_queue_type_is_an_argument_from_4_0_on(version: str, text: str) -> None:
    assert difference(CURRENT, with_arguments({"x-queue-type": "quorum"}), VERSIONS[version]) == text


@pytest.mark.parametrize("version", ALL)
def test_the_classic_type_equals_none(version: str) -> None:
    given = with_arguments({"x-queue-type": "classic"})
    arguments.assert_equivalent(CURRENT, given, queue="q", vhost="/", version=VERSIONS[version])
    arguments.assert_equivalent(given, CURRENT, queue="q", vhost="/", version=VERSIONS[version])


# Consumers


@pytest.mark.parametrize(
    ("queue_type", "values", "refusing"),
    [
        ("classic", {"x-priority": "a"}, ALL),
        ("classic", {"x-priority": True}, ALL),
        ("classic", {"x-priority": 2**40}, []),
        ("classic", {"x-cancel-on-ha-failover": 1}, ["3.10"]),
        ("quorum", {"x-cancel-on-ha-failover": True}, ["3.10"]),
        ("classic", {"x-stream-offset": "first"}, ALL),
        ("classic", {"x-stream-filter": "x"}, ["4.0", "4.3"]),
        ("classic", {"x-consumer-timeout": 5}, ["4.3"]),
        ("quorum", {"x-consumer-timeout": 5}, []),
        ("quorum", {"x-consumer-timeout": -5}, ["4.3"]),
        ("classic", {"x-unknown": 1}, []),
    ],
)
def test_consumer_arguments_are_checked(queue_type: str, values: dict[str, object], refusing: list[str]) -> None:
    refused = []
    for name, version in VERSIONS.items():
        try:
            arguments.consumer_settings(
                table_from_python(values), queue="q", queue_type=queue_type, vhost="/", version=version
            )
        except ChannelException:
            refused.append(name)
    assert refused == refusing


def test_a_consumers_priority_is_its_argument_or_zero() -> None:
    def priority(values: dict[str, object]) -> int:
        return arguments.consumer_settings(
            table_from_python(values), queue="q", queue_type="classic", vhost="/", version=VERSIONS["4.3"]
        ).priority

    assert priority({"x-priority": -5}) == -5
    assert priority({}) == 0


# Expiration


@pytest.mark.parametrize(("expiration", "milliseconds"), [(None, None), ("0", 0), ("+100", 100), ("007", 7)])
def test_an_expiration_is_read(expiration: str | None, milliseconds: int | None) -> None:
    assert arguments.expiration_ms(expiration) == milliseconds


@pytest.mark.parametrize(
    ("expiration", "reason"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("99999999999999999999", "{value_too_large,\n" + " " * 44 + "99999999999999999999}"),
    ],
)
def test_an_expiration_that_is_no_number_of_milliseconds_is_refused(expiration: str, reason: str) -> None:
    with pytest.raises(ChannelException) as caught:
        arguments.expiration_ms(expiration)
    assert caught.value.text == f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}"


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_the_type_undefined_is_the_default_type_under_another_name(version: str) -> None:
    assert declared({"x-queue-type": "undefined"}, version=version).queue_type == "classic"
    undefined, plain = (
        QueueProperties(durable=True, exclusive=False, auto_delete=False, arguments=table_from_python(values))
        for values in ({"x-queue-type": "undefined"}, {})
    )
    with pytest.raises(ChannelException, match="received 'classic' but current is 'undefined'"):
        arguments.assert_equivalent(undefined, plain, queue="q", vhost="/", version=VERSIONS[version])


def test_3_10_knows_no_type_undefined() -> None:
    assert "unsupported queue type 'undefined'" in refusal_of({"x-queue-type": "undefined"}, version="3.10")


@pytest.mark.parametrize(
    ("version", "queue_type", "text"),
    [
        ("3.10", "bogus", "INTERNAL_ERROR"),
        ("4.0", "", "INTERNAL_ERROR"),
        ("4.0", 5, "INTERNAL_ERROR"),
        ("4.3", 5, "INTERNAL_ERROR"),
        ("4.3", "bogus", "PRECONDITION_FAILED - unknown queue type 'bogus'"),
        ("4.0", "stream", "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_stream_queue"),
    ],
)
def test_the_type_of_a_queue_without_a_name_is_looked_for_before_it_is_checked(
    version: str, queue_type: object, text: str
) -> None:
    with pytest.raises(AmqpException) as caught:
        arguments.check_server_named(table_from_python({"x-queue-type": queue_type}), version=VERSIONS[version])
    assert caught.value.text == text


@pytest.mark.parametrize(("current", "given"), [(5, Decimal("1.5")), (Decimal("1.5"), 5)])
def test_rabbitmq_crashes_when_it_says_that_a_decimal_differs(current: object, given: object) -> None:
    tables = [table_from_python({"x-delivery-limit": value}) for value in (current, given)]
    with pytest.raises(ConnectionException, match="INTERNAL_ERROR"):
        arguments.assert_equivalent_arguments(*tables, ["x-delivery-limit"], kind="queue", name="q", vhost="/")


def test_3_10_crashes_of_a_credit_that_is_no_table() -> None:
    options = {"queue": "q", "queue_type": "classic", "vhost": "/", "version": VERSIONS["3.10"]}
    arguments.consumer_settings(table_from_python({"x-credit": {"credit": 5}}), **options)  # type: ignore[arg-type]  # keywords of several types
    with pytest.raises(ConnectionException, match="INTERNAL_ERROR"):
        arguments.consumer_settings(table_from_python({"x-credit": 5}), **options)  # type: ignore[arg-type]  # keywords of several types
