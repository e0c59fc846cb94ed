"""Arguments of queues and consumers: what RabbitMQ accepts, compares on a second declaration, and takes them to mean.

Owns the checks of rabbit_amqqueue in their order, the comparison of rabbit_misc:assert_args_equivalence, and the
parsing of a message's expiration. Declares nothing: it is told names only to put them into texts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from queuey_fake.model import errors
from queuey_fake.model.delayed_retry import DelayedRetry
from queuey_fake.model.erlang import Atom, OctetString, Term, leading_integer
from queuey_fake.model.fields import Field, Table, longstr, octets_of
from queuey_fake.model.versions import Version

MAX_EXPIRY_MS = 315_360_000_000  # ten years (rabbit_misc:check_expiry)
MAX_PRIORITY = 255
MAX_SEGMENT_BYTES = 3_000_000_000  # of streams, as the bounds of their filters
MIN_FILTER_BYTES, MAX_FILTER_BYTES = 16, 255

_MODULES = {"classic": "rabbit_classic_queue", "quorum": "rabbit_quorum_queue", "stream": "rabbit_stream_queue"}
_UNDEFINED = "undefined"
_QUEUE_TYPES = ("classic", "quorum", "stream")
_UNITS_OF_AGE = ("Y", "M", "D", "h", "m", "s")
_INTEGER_TYPES = frozenset({"byte", "short", "signedint", "long", "unsignedbyte", "unsignedshort", "unsignedint"})

Check = Callable[[Field, Table], Term]  # the reason for a refusal, or None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What the arguments of a queue ask for; None where they ask for nothing."""

    queue_type: str  # "classic" or "quorum"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"  # or "reject-publish", "reject-publish-dlx"
    single_active_consumer: bool = False
    is_lazy: bool = False
    delivery_limit: int | None = None  # quorum queues only; the version's default is filled in
    delayed_retry: DelayedRetry | None = None  # quorum queues only


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProperties:
    """What a declaration says of a queue, for comparing a second one with the first."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What the arguments of a consumer ask for."""

    priority: int = 0


def queue_settings(properties: QueueProperties, *, queue: str, vhost: str, version: Version) -> QueueSettings:
    """Check what a first declaration says and return what it means.

    Raises ChannelException or ConnectionException, the first in RabbitMQ's order: the dead letter exchange's type
    (rabbit_channel), types and values of the arguments, arguments of other queue types (rabbit_amqqueue), denied
    features, and what the queue type itself refuses. A stream that RabbitMQ would make is refused last of all.
    """
    arguments = _with_queue_type(properties.arguments, version)
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange and exchange.type != "longstr":
        raise errors.invalid_argument_type(exchange.type, "x-dead-letter-exchange", "queue", queue, vhost)
    queue_type = check_queue_type(arguments, queue=queue, vhost=vhost, version=version)
    checks, foreign = _queue_rules(queue_type, version)
    _check_values(arguments, checks, checks, queue=queue, vhost=vhost)
    _check_keys(arguments, foreign, queue_type, queue=queue, vhost=vhost)
    durable = properties.durable and not properties.exclusive
    if not durable and not properties.exclusive and "transient_nonexcl_queues" in version.denied_features:
        raise errors.deprecated_feature_denied("transient_nonexcl_queues")
    if queue_type == "classic":
        _check_master_locator(arguments, exclusive=properties.exclusive, version=version)
        return _settings_of(arguments, queue_type, version)
    _check_replicated_properties(properties, queue=queue, vhost=vhost)
    if queue_type == "stream":
        _check_stream_sizes(arguments, version)
        raise errors.no_streams(queue, vhost)
    return _quorum_settings_of(arguments, version)


def queue_type_of(arguments: Table) -> str:
    """Return the type of queue that the arguments ask for, unchecked."""
    field = arguments.get("x-queue-type")
    return field.value if field and field.value and field.value != _UNDEFINED else "classic"


def check_server_named(arguments: Table, *, version: Version) -> None:
    """Raise ChannelException where RabbitMQ makes up no name for the type of queue (is_server_named_allowed).

    It looks for the type before it checks it: one that there is not crashes the channel, ConnectionException.
    """
    field = arguments.get("x-queue-type")
    if field is None or _asks_for_default_type(field, version):
        return
    if field.type != "longstr" or (field.value not in _MODULES and not version.tells_unknown_server_named_type):
        raise errors.internal_error()
    if field.value not in _MODULES:
        raise errors.unknown_queue_type(field.value)
    if field.value != "classic":
        raise errors.server_named_queue_of_type(_MODULES[field.value])


def check_queue_type(arguments: Table, *, queue: str, vhost: str, version: Version) -> str:
    """Return the type of queue that the arguments ask for. Raises ChannelException for one that there is not."""
    arguments = _with_queue_type(arguments, version)
    field = arguments.get("x-queue-type")
    if field is None or _asks_for_default_type(field, version):
        return "classic"
    if field.type != "longstr":
        raise errors.invalid_argument("x-queue-type", queue, vhost, _unacceptable_type(field))
    if field.value not in _QUEUE_TYPES:
        raise errors.invalid_argument("x-queue-type", queue, vhost, f"unsupported queue type '{field.value}'")
    queue_type: str = field.value
    return queue_type


def _asks_for_default_type(field: Field, version: Version) -> bool:
    return (version.empty_queue_type_is_default and field == longstr("")) or (
        version.queue_type_undefined_is_default and field == longstr(_UNDEFINED)
    )


def assert_equivalent(
    current: QueueProperties, given: QueueProperties, *, queue: str, vhost: str, version: Version
) -> None:
    """Raise ChannelException unless a second declaration says what the first said.

    Compares durable, auto_delete, then the arguments that the queue's type knows, in the order of its capabilities.
    Exclusive access (405) is the caller's to check before. Exclusive queues count as not durable on both sides.
    """
    fields = (
        ("durable", given.durable and not given.exclusive, current.durable and not current.exclusive),
        ("auto_delete", given.auto_delete, current.auto_delete),
    )
    for key, received, existing in fields:
        if received != existing:
            raise errors.inequivalent(key, kind="queue", name=queue, vhost=vhost, received=received, current=existing)
    existing_arguments = _with_queue_type(current.arguments, version)
    assert_equivalent_arguments(
        existing_arguments,
        _with_queue_type(given.arguments, version),
        _queue_arguments(queue_type_of(existing_arguments), version),
        kind="queue",
        name=queue,
        vhost=vhost,
    )


def assert_equivalent_arguments(
    current: Table, given: Table, keys: Iterable[str], *, kind: str, name: str, vhost: str
) -> None:
    """Raise ChannelException for the first of the keys whose values differ (rabbit_misc:assert_args_equivalence)."""
    for key in keys:
        existing, received = current.get(key), given.get(key)
        if existing is not None and received is not None:
            if not _same_value(existing, received):
                if "decimal" in (existing.type, received.type):
                    # Its pair of numbers is taken for a type and a value, and printing that crashes (rabbit_misc:val).
                    raise errors.internal_error()
                raise errors.inequivalent(
                    key, kind=kind, name=name, vhost=vhost, received=received.value, current=existing.value
                )
        elif existing != received and not _is_default_queue_type(key, existing or received):
            raise errors.inequivalent(key, kind=kind, name=name, vhost=vhost, received=received, current=existing)


def consumer_settings(
    arguments: Table, *, queue: str, queue_type: str, vhost: str, version: Version
) -> ConsumerSettings:
    """Check the arguments of basic.consume and return what they mean. Raises ChannelException."""
    known = _consumer_arguments(queue_type, version)
    checked = [key for key in _CONSUMER_CHECKS if key in known]
    _check_values(arguments, checked, _CONSUMER_CHECKS, queue=queue, vhost=vhost)
    foreign = frozenset(version.stream_consumer_arguments).union(
        version.classic_consumer_arguments, version.quorum_consumer_arguments
    )
    _check_keys(arguments, foreign.difference(known), queue_type, queue=queue, vhost=vhost)
    credit = arguments.get("x-credit")
    if credit and "x-credit" in known and credit.type != "table":
        raise errors.internal_error()  # the queue crashes, or for a quorum queue the channel (parse_credit_args)
    priority = arguments.get("x-priority")
    return ConsumerSettings(priority=priority.value if priority else 0)


def expiration_ms(expiration: str | None) -> int | None:
    """Return the milliseconds of a message's `expiration` property (rabbit_basic:parse_expiration).

    Raises ChannelException for what Erlang does not read as one whole integer between 0 and ten years.
    """
    if expiration is None:
        return None
    parsed = leading_integer(expiration)
    if parsed is None:
        raise errors.invalid_expiration(expiration, Atom("no_integer"))
    milliseconds, rest = parsed
    if rest:
        raise errors.invalid_expiration(expiration, (Atom("leftover_string"), OctetString(octets_of(rest))))
    if reason := _expiry_refusal(milliseconds):
        raise errors.invalid_expiration(expiration, reason)
    return milliseconds


# The arguments that each type knows (capabilities/0 of its module); the order is that of the equivalence check.


def _queue_arguments(queue_type: str, version: Version) -> tuple[str, ...]:
    if queue_type == "quorum":
        return _QUORUM_ARGUMENTS + version.further_quorum_arguments
    if queue_type == "stream":
        return _STREAM_ARGUMENTS + version.further_stream_arguments
    return _CLASSIC_ARGUMENTS + version.further_classic_arguments


_CLASSIC_ARGUMENTS = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-queue-master-locator",
)
_QUORUM_ARGUMENTS = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-queue-type",
    "x-quorum-initial-group-size",
    "x-delivery-limit",
    "x-message-ttl",
    "x-queue-leader-locator",
)
_STREAM_ARGUMENTS = (
    "x-max-length-bytes",
    "x-queue-type",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
)


def _consumer_arguments(queue_type: str, version: Version) -> tuple[str, ...]:
    return version.quorum_consumer_arguments if queue_type == "quorum" else version.classic_consumer_arguments


@cache
def _queue_rules(queue_type: str, version: Version) -> tuple[Mapping[str, "Check"], frozenset[str]]:
    """Return the checks of the arguments that such a queue knows, and the arguments of other types alone."""
    known = _queue_arguments(queue_type, version)
    checks = {key: check for key, check in _queue_checks(version).items() if key in known}
    return checks, _any_queue_arguments(version).difference(known)


def _any_queue_arguments(version: Version) -> frozenset[str]:
    return frozenset().union(*(_queue_arguments(queue_type, version) for queue_type in _QUEUE_TYPES))


# The checks, in the order in which they are made (declare_args/0 and consume_args/0)


def _unacceptable_type(field: Field) -> Term:
    return (Atom("unacceptable_type"), Atom(field.type))


def _expiry_refusal(milliseconds: int) -> Term:
    if milliseconds < 0:
        return (Atom("value_negative"), milliseconds)
    if milliseconds > MAX_EXPIRY_MS:
        return (Atom("value_too_large"), milliseconds)
    return None


def _integer(field: Field, _arguments: Table) -> Term:
    return None if field.type in _INTEGER_TYPES else f"expected integer, got {field.type}"


def _not_negative(field: Field, arguments: Table) -> Term:
    refusal = _integer(field, arguments)
    if refusal is None and field.value < 0:
        return (Atom("value_negative"), field.value)
    return refusal


def _positive(field: Field, arguments: Table) -> Term:
    refusal = _not_negative(field, arguments)
    return (Atom("value_zero"), 0) if refusal is None and field.value == 0 else refusal


def _message_ttl(field: Field, arguments: Table) -> Term:
    return _integer(field, arguments) or _expiry_refusal(field.value)


def _expires(field: Field, arguments: Table) -> Term:
    refusal = _integer(field, arguments)
    if refusal is None and field.value == 0:
        return (Atom("value_zero"), 0)
    return refusal or _expiry_refusal(field.value)


def _max_priority(field: Field, arguments: Table) -> Term:
    refusal = _not_negative(field, arguments)
    if refusal is None and field.value > MAX_PRIORITY:
        return (Atom("max_value_exceeded"), field.value)
    return refusal


def _string(field: Field, _arguments: Table) -> Term:
    return None if field.type == "longstr" else _unacceptable_type(field)


def _dead_letter_routing_key(field: Field, arguments: Table) -> Term:
    refusal = _string(field, arguments)
    if refusal is None and "x-dead-letter-exchange" not in arguments:
        return Atom("routing_key_but_no_dlx_defined")
    return refusal


def _boolean(field: Field, _arguments: Table) -> Term:
    return None if field.type == "bool" else _unacceptable_type(field)


def _one_of(values: tuple[str, ...], refusal: Atom) -> Check:
    def check(field: Field, arguments: Table) -> Term:
        return _string(field, arguments) or (None if field.value in values else refusal)

    return check


def _queue_mode(field: Field, arguments: Table) -> Term:
    known = field.value in ("default", "lazy")
    return _string(field, arguments) or (None if known else f"unsupported queue mode '{field.value}'")


def _queue_version(versions: tuple[int, ...]) -> Check:
    def check(field: Field, arguments: Table) -> Term:
        refusal = _not_negative(field, arguments)
        if refusal is None and field.value not in versions:
            return f"unsupported queue version '{field.value}'"
        return refusal

    return check


def _max_age(*, crashes_without_number: bool) -> Check:
    def check(field: Field, arguments: Table) -> Term:
        if refusal := _string(field, arguments):
            return refusal
        age = field.value.partition("\n")[0]  # a dot in RabbitMQ's pattern matches no line end
        unit = age.lstrip("0123456789")
        number = age.removesuffix(unit)
        if not number and crashes_without_number:
            raise errors.internal_error()
        return None if number.strip("0") and unit in _UNITS_OF_AGE else Atom("invalid_max_age")

    return check


def _queue_checks(version: Version) -> Mapping[str, Check]:
    return {
        "x-expires": _expires,
        "x-message-ttl": _message_ttl,
        "x-dead-letter-exchange": _string,
        "x-dead-letter-routing-key": _dead_letter_routing_key,
        "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), Atom("invalid_dlx_strategy")),
        "x-max-length": _not_negative,
        "x-max-length-bytes": _not_negative,
        "x-max-in-memory-length": _not_negative,
        "x-max-in-memory-bytes": _not_negative,
        "x-max-priority": _max_priority,
        "x-overflow": _one_of(("drop-head", "reject-publish", "reject-publish-dlx"), Atom("invalid_overflow")),
        **({"x-queue-mode": _queue_mode} if version.checks_queue_mode else {}),
        "x-queue-version": _queue_version((2,) if version.refuses_queue_version_1 else (1, 2)),
        "x-single-active-consumer": _boolean,
        "x-consumer-timeout": _not_negative,
        "x-consumer-disconnected-timeout": _not_negative,
        "x-quorum-initial-group-size": _positive,
        "x-max-age": _max_age(crashes_without_number=version.max_age_without_number_crashes),
        "x-stream-max-segment-size-bytes": _not_negative,
        "x-stream-filter-size-bytes": _not_negative,
        "x-initial-cluster-size": _positive,
        "x-queue-leader-locator": _one_of(version.queue_leader_locators, Atom("invalid_queue_locator_arg")),
    }


_CONSUMER_CHECKS: Mapping[str, Check] = {
    "x-priority": _integer,
    "x-cancel-on-ha-failover": _boolean,
    "x-consumer-timeout": _not_negative,
}


def _check_values(
    arguments: Table, keys: Iterable[str], checks: Mapping[str, Check], *, queue: str, vhost: str
) -> None:
    for key in keys:
        if key in arguments and (refusal := checks[key](arguments[key], arguments)) is not None:
            raise errors.invalid_argument(key, queue, vhost, refusal)


def _check_keys(arguments: Table, foreign: Collection[str], queue_type: str, *, queue: str, vhost: str) -> None:
    for key in arguments:
        if key in foreign:
            raise errors.argument_of_other_queue_type(key, queue, vhost, _MODULES[queue_type])


def _check_master_locator(arguments: Table, *, exclusive: bool, version: Version) -> None:
    locator = arguments.get("x-queue-master-locator")
    if locator is None:
        return
    if version.queue_master_locator == "denied":
        raise errors.deprecated_feature_denied("queue_master_locator")
    # 3.10 looks the strategy up when it places the queue, and the channel crashes where there is none; an exclusive
    # queue is placed beside its connection without asking (rabbit_classic_queue:declare).
    checked = version.queue_master_locator == "checked" and not exclusive
    if checked and locator.value not in ("min-masters", "client-local", "random"):
        raise errors.internal_error()


def _check_replicated_properties(properties: QueueProperties, *, queue: str, vhost: str) -> None:
    """Refuse what neither quorum queues nor streams can be (rabbit_queue_type_util)."""
    refused = (
        (properties.auto_delete, "auto-delete"),
        (properties.exclusive, "exclusive-owner"),
        (not properties.durable, "non-durable"),
    )
    for is_refused, property_ in refused:
        if is_refused:
            raise errors.invalid_property(property_, queue, vhost)


def _check_stream_sizes(arguments: Table, version: Version) -> None:
    """Refuse sizes that are out of bounds (rabbit_stream_queue:declare)."""
    segment, filter_ = arguments.get("x-stream-max-segment-size-bytes"), arguments.get("x-stream-filter-size-bytes")
    if segment and segment.value > MAX_SEGMENT_BYTES:
        raise errors.segment_size_exceeded()
    if filter_ and version.stream_filter_size_refusal is not None:
        # In Erlang whatever is no number is more than any number.
        size = (
            filter_.value if isinstance(filter_.value, int | float) and filter_.type != "bool" else MAX_FILTER_BYTES + 1
        )
        if not MIN_FILTER_BYTES <= size <= MAX_FILTER_BYTES:
            raise errors.invalid_filter_size(version.stream_filter_size_refusal)


def _settings_of(arguments: Table, queue_type: str, version: Version) -> QueueSettings:
    values = {key: field.value for key, field in arguments.items()}
    max_priority = values.get("x-max-priority")
    if max_priority is not None:
        max_priority = max(version.lowest_max_priority, max_priority)
    return QueueSettings(
        queue_type=queue_type,
        message_ttl_ms=values.get("x-message-ttl"),
        expires_ms=values.get("x-expires"),
        dead_letter_exchange=values.get("x-dead-letter-exchange"),
        dead_letter_routing_key=values.get("x-dead-letter-routing-key"),
        max_priority=max_priority,
        max_length=values.get("x-max-length"),
        max_length_bytes=values.get("x-max-length-bytes"),
        overflow=values.get("x-overflow", "drop-head"),
        single_active_consumer=values.get("x-single-active-consumer", False),
        is_lazy=values.get("x-queue-mode") == "lazy",
    )


def _quorum_settings_of(arguments: Table, version: Version) -> QueueSettings:
    settings = _settings_of(arguments, "quorum", version)
    # A quorum queue has no reject-publish-dlx and falls back to drop-head (rabbit_quorum_queue:overflow).
    overflow = "drop-head" if settings.overflow == "reject-publish-dlx" else settings.overflow
    return replace(
        settings,
        overflow=overflow,
        delivery_limit=_delivery_limit(arguments.get("x-delivery-limit"), version),
        delayed_retry=_delayed_retry(arguments) if "x-delayed-retry-type" in version.further_quorum_arguments else None,
    )


def _delayed_retry(arguments: Table) -> DelayedRetry | None:
    # Nothing here is refused; what is wrong disables it (rabbit_quorum_queue:get_delayed_retry_config).
    kind = arguments.get("x-delayed-retry-type")
    if kind is None or kind.value not in ("all", "failed", "returned"):
        return None
    min_ms, max_ms = (
        field.value if field is not None and field.type in _INTEGER_TYPES and field.value > 0 else None
        for field in (arguments.get("x-delayed-retry-min"), arguments.get("x-delayed-retry-max"))
    )
    return None if min_ms is None else DelayedRetry(kind.value, min_ms, max_ms or min_ms)


def _delivery_limit(field: Field | None, version: Version) -> int | None:
    # The value is not checked: what is no integer sets no limit of its own (rabbit_quorum_queue:get_delivery_limit).
    if field is None or field.type not in _INTEGER_TYPES:
        return version.quorum_default_delivery_limit
    limit: int = field.value
    return None if limit < 0 and version.negative_delivery_limit_is_none else limit


# Comparing


def _with_queue_type(arguments: Table, version: Version) -> Table:
    # From 4.0 on the type is written into the arguments, which sorts them (rabbit_amqqueue:augment_declare_args).
    if not version.adds_queue_type_argument or "x-queue-type" in arguments:
        return arguments
    return dict(sorted({**arguments, "x-queue-type": longstr("classic")}.items()))


def _is_default_queue_type(key: str, field: Field | None) -> bool:
    return key == "x-queue-type" and field == longstr("classic")


def _same_value(one: Field, other: Field) -> bool:
    # Erlang compares the bare values: a long string and a binary of the same octets are one, 1 and true are two.
    first, second = errors.erlang_of(one.value), errors.erlang_of(other.value)
    return type(first) is type(second) and bool(first == second)
