"""Which RabbitMQ is imitated: every difference between the versions, as data.

Owns one flag for each behaviour in which RabbitMQ 3.10.8, 4.0.5 and 4.3.6 differ. Holds no behaviour: the code that
does asks the flag by its name, never for a version.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One RabbitMQ. The comment behind a flag names the scenario or the source that shows it."""

    name: str  # what the user asks for: "3.10", "4.0", "4.3"
    release: str  # what the server properties say
    trusts_published_x_death: bool
    keeps_transient_exchanges: bool  # over a restart
    redelivered_if_delivery_count: bool  # a dead letter is redelivered when rejected or returned by a close before
    refuses_unknown_delivery_mode: bool
    qos_global_is_per_consumer: bool
    sac_failover_waits_for_event: bool
    unknown_exchange_type_closes_connection: bool
    exchange_types: tuple[str, ...]  # those in its core (rabbit_exchange_type_direct and so on)
    further_exchange_words: tuple[str, ...]  # atoms that are no types (rabbit_khepri and rabbit_fifo name them)
    reply_to_returns_mandatory: bool
    malformed_reply_to_is_internal_error: bool
    reply_addresses_are_queues: bool  # rabbit_volatile_queue
    dead_letters_are_replies: bool  # where they go to the address of a reply consumer (rabbit_dead_letter:publish)
    max_topic_hashes: int | None  # in the key of a binding (rabbit_exchange_type_topic:validate_binding)
    has_log_exchange: bool  # amq.rabbitmq.log in a fresh broker's virtual host
    negative_delivery_limit_is_none: bool  # else a first return exceeds it
    queue_type_undefined_is_default: bool  # rabbit_queue_type:discover
    tells_unknown_server_named_type: bool  # else the channel crashes before a name is made up
    lowest_max_priority: int  # x-max-priority 0 means this (rabbit_priority_queue:priorities)
    lazy_queues_forget_expirations: bool  # for x-death (rabbit_dead_letter:per_msg_ttl_header)
    checks_queue_mode: bool
    refuses_queue_version_1: bool
    queue_master_locator: str  # "checked", "ignored", "denied"
    empty_queue_type_is_default: bool
    max_age_without_number_crashes: bool  # x-max-age of "h" (rabbit_amqqueue:check_max_age)
    stream_filter_size_refusal: str | None  # what is said of one beyond its bounds (rabbit_stream_queue)
    quorum_counts_first_delivery: bool  # header x-delivery-count 0 on a first delivery
    quorum_nack_counts_as_acquired: bool  # nack raises x-acquired-count only
    quorum_default_delivery_limit: int | None
    quorum_exceeding_return_is_credited_twice: bool  # to the consumer's prefetch (rabbit_fifo:return and complete)
    quorum_consumers_go_by_tag: bool  # else by subscription, where several are sent messages at once (#state.consumers)
    quorum_overflow_dies_backwards: bool  # where several messages are pushed out at once (rabbit_fifo:evaluate_limit)
    quorum_priorities: str  # "none", "two classes", "strict"
    quorum_sac_priority_takes_over: bool
    quorum_return_activates_no_consumer: bool  # where the single active one gives way with it (rabbit_fifo:return)
    quorum_bytes_count_properties: bool  # x-max-length-bytes limits properties and bodies (rabbit_fifo:maybe_enqueue)
    quorum_type_is_printed_as_binary: bool  # in the refusal of basic.get beside a single active consumer
    texts_are_octets: bool  # in reply texts every character is an octet, and 255 of them are the limit
    message_containers: bool  # a message is made before the user is checked; its expiration is delivered as understood
    tx_looks_for_queues_at_commit: bool  # else at publish (rabbit_channel:deliver_to_queues)
    tx_needs_queues_at_commit: bool  # one that is deleted by then closes the connection (rabbit_queue_type:deliver)
    sorts_header_keys: bool
    cancel_examines_priority_head: bool
    max_message_size: int  # octets
    min_frame_max: int  # a smaller frame_max in tune-ok is refused
    protocol_header: bytes  # written to a client that speaks something else
    mechanisms: str  # of SASL, as connection.start lists them
    max_announced_body: int | None  # a content header that announces more octets closes the connection
    refuses_overlong_body: bool  # at once; else the body is swallowed until a frame of another type comes
    adds_queue_type_argument: bool  # x-queue-type is written into the arguments of a declaration without it
    headers_match_exactly: bool  # 1 and 1.0 in a headers binding are two values
    # Arguments that the modules of the queue types know in this version (their capabilities/0)
    further_classic_arguments: tuple[str, ...]
    further_quorum_arguments: tuple[str, ...]
    further_stream_arguments: tuple[str, ...]
    classic_consumer_arguments: tuple[str, ...]
    quorum_consumer_arguments: tuple[str, ...]
    stream_consumer_arguments: tuple[str, ...]
    queue_leader_locators: tuple[str, ...]
    denied_features: frozenset[str]


_V3_10 = Version(
    name="3.10",
    release="3.10.8",
    trusts_published_x_death=True,
    keeps_transient_exchanges=False,
    redelivered_if_delivery_count=False,
    refuses_unknown_delivery_mode=True,
    qos_global_is_per_consumer=False,
    sac_failover_waits_for_event=True,
    unknown_exchange_type_closes_connection=True,
    exchange_types=("direct", "fanout", "headers", "topic"),
    further_exchange_words=(),
    reply_to_returns_mandatory=True,
    malformed_reply_to_is_internal_error=False,
    reply_addresses_are_queues=False,
    dead_letters_are_replies=True,
    max_topic_hashes=None,
    has_log_exchange=False,
    negative_delivery_limit_is_none=False,
    queue_type_undefined_is_default=False,
    tells_unknown_server_named_type=False,
    lowest_max_priority=0,
    lazy_queues_forget_expirations=True,
    checks_queue_mode=True,
    refuses_queue_version_1=False,
    queue_master_locator="checked",
    empty_queue_type_is_default=False,
    max_age_without_number_crashes=True,
    stream_filter_size_refusal=None,
    quorum_counts_first_delivery=True,
    quorum_nack_counts_as_acquired=False,
    quorum_default_delivery_limit=None,
    quorum_exceeding_return_is_credited_twice=True,
    quorum_consumers_go_by_tag=True,
    quorum_overflow_dies_backwards=True,
    quorum_priorities="none",
    quorum_sac_priority_takes_over=False,
    quorum_return_activates_no_consumer=False,
    quorum_bytes_count_properties=False,
    quorum_type_is_printed_as_binary=False,
    texts_are_octets=True,
    message_containers=False,
    tx_looks_for_queues_at_commit=True,
    tx_needs_queues_at_commit=False,
    sorts_header_keys=False,
    cancel_examines_priority_head=False,
    max_message_size=134_217_728,
    min_frame_max=4096,
    protocol_header=b"AMQP\x00\x00\x09\x01",
    mechanisms="PLAIN AMQPLAIN",
    max_announced_body=None,
    refuses_overlong_body=False,
    adds_queue_type_argument=False,
    headers_match_exactly=False,
    further_classic_arguments=(),
    further_quorum_arguments=(),
    further_stream_arguments=(),
    classic_consumer_arguments=("x-cancel-on-ha-failover", "x-priority", "x-credit"),
    quorum_consumer_arguments=("x-priority", "x-credit"),
    stream_consumer_arguments=("x-stream-offset", "x-credit"),
    queue_leader_locators=("client-local", "balanced", "random", "least-leaders"),
    denied_features=frozenset(),
)

_V4_0 = replace(
    _V3_10,
    name="4.0",
    release="4.0.5",
    trusts_published_x_death=False,
    refuses_unknown_delivery_mode=False,
    sac_failover_waits_for_event=False,
    unknown_exchange_type_closes_connection=False,
    exchange_types=("direct", "fanout", "headers", "topic", "x-local-random"),
    queue_master_locator="ignored",
    quorum_counts_first_delivery=False,
    quorum_default_delivery_limit=20,
    quorum_exceeding_return_is_credited_twice=False,
    quorum_consumers_go_by_tag=False,
    dead_letters_are_replies=False,
    negative_delivery_limit_is_none=True,
    queue_type_undefined_is_default=True,
    stream_filter_size_refusal="Invalid value for  x-stream-filter-size-bytes",
    lowest_max_priority=1,
    lazy_queues_forget_expirations=False,
    quorum_priorities="two classes",
    quorum_sac_priority_takes_over=True,
    quorum_return_activates_no_consumer=True,
    texts_are_octets=False,
    message_containers=True,
    tx_looks_for_queues_at_commit=False,
    sorts_header_keys=True,
    cancel_examines_priority_head=True,
    max_message_size=16_777_216,
    protocol_header=b"AMQP\x03\x01\x00\x00",
    mechanisms="ANONYMOUS PLAIN AMQPLAIN",
    adds_queue_type_argument=True,
    headers_match_exactly=True,
    further_classic_arguments=("x-queue-leader-locator",),
    classic_consumer_arguments=("x-priority",),
    quorum_consumer_arguments=("x-priority",),
    stream_consumer_arguments=("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"),
    queue_leader_locators=("client-local", "balanced", "random", "least-leaders", "min-masters"),
)

_V4_3 = replace(
    _V4_0,
    name="4.3",
    release="4.3.6",
    keeps_transient_exchanges=True,
    redelivered_if_delivery_count=True,
    qos_global_is_per_consumer=True,
    exchange_types=("direct", "fanout", "headers", "topic", "x-local-random", "x-modulus-hash"),
    further_exchange_words=("delayed", "x-jms-topic", "x-random"),
    reply_to_returns_mandatory=False,
    malformed_reply_to_is_internal_error=True,
    reply_addresses_are_queues=True,
    dead_letters_are_replies=True,
    max_topic_hashes=2,
    has_log_exchange=True,
    tells_unknown_server_named_type=True,
    checks_queue_mode=False,
    refuses_queue_version_1=True,
    queue_master_locator="denied",
    empty_queue_type_is_default=True,
    max_age_without_number_crashes=False,
    stream_filter_size_refusal="Invalid value for x-stream-filter-size-bytes",
    quorum_nack_counts_as_acquired=True,
    quorum_return_activates_no_consumer=False,
    tx_needs_queues_at_commit=True,
    quorum_bytes_count_properties=True,
    quorum_type_is_printed_as_binary=True,
    quorum_overflow_dies_backwards=False,
    quorum_priorities="strict",
    min_frame_max=8192,
    max_announced_body=536_870_912,
    refuses_overlong_body=True,
    further_quorum_arguments=(
        "x-consumer-disconnected-timeout",
        "x-consumer-timeout",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
    ),
    further_stream_arguments=("x-stream-filter-size-bytes",),
    quorum_consumer_arguments=("x-priority", "x-consumer-timeout"),
    denied_features=frozenset({"transient_nonexcl_queues"}),
)

VERSIONS = {version.name: version for version in (_V3_10, _V4_0, _V4_3)}
DEPRECATED_FEATURES = frozenset().union(*(version.denied_features for version in VERSIONS.values()))
"""What some version denies and rabbitmq.conf can permit."""


def version_named(name: str, permit: Iterable[str] = ()) -> Version:
    """Return the version, with the deprecated features in `permit` allowed as by rabbitmq.conf.

    Raises ValueError for a version that is not imitated or a feature that no version denies, TypeError for one name.
    """
    if isinstance(permit, str):
        raise TypeError(f"permit: expected several names, such as {{{permit!r}}}, got {permit!r}")
    if name not in VERSIONS:
        raise ValueError(f"no RabbitMQ {name!r} is imitated; there are {', '.join(VERSIONS)}")
    permitted = frozenset(permit)
    if unknown := permitted - DEPRECATED_FEATURES:
        raise ValueError(f"no deprecated feature {sorted(unknown)}; there are {sorted(DEPRECATED_FEATURES)}")
    version = VERSIONS[name]
    return replace(version, denied_features=version.denied_features - permitted)
