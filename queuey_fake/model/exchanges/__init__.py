"""Exchanges: one small unit for each type, and what all of them share.

Owns what an exchange is and how its type chooses among its bindings. Routes nothing further: alternate exchanges and
exchanges behind exchanges are the vhost's.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from queuey_fake.model import arguments as equivalence
from queuey_fake.model import errors
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.erlang import Atom
from queuey_fake.model.exchanges.default import DefaultMatcher
from queuey_fake.model.exchanges.direct import DirectMatcher
from queuey_fake.model.exchanges.fanout import FanoutMatcher
from queuey_fake.model.exchanges.headers import HeadersMatcher
from queuey_fake.model.exchanges.local_random import LocalRandomMatcher
from queuey_fake.model.exchanges.modulus_hash import ModulusHashMatcher
from queuey_fake.model.exchanges.topic import TopicMatcher
from queuey_fake.model.fields import Table
from queuey_fake.model.versions import Version


class Matcher(Protocol):
    """How one type of exchange chooses among its bindings."""

    def check(self, binding: Binding, queue_type: str | None) -> None:
        """Refuse a binding that such an exchange cannot have; `queue_type` is None where it leads to an exchange.

        Raises ChannelException.
        """

    def add(self, binding: Binding) -> None:
        """Take a new binding into account."""

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""

    def match(self, routing_keys: Sequence[str], headers: Table | None) -> Collection[Destination]:
        """Return where a message goes that has these keys; a destination may be named more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange of a vhost."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    alternate_exchange: str | None = None
    matcher: Matcher


_MATCHERS: Mapping[str, Callable[[Version], Matcher]] = {
    "direct": lambda _version: DirectMatcher(),
    "fanout": lambda _version: FanoutMatcher(),
    "topic": lambda version: TopicMatcher(max_hashes=version.max_topic_hashes),
    "headers": lambda version: HeadersMatcher(exact=version.headers_match_exactly),
    "x-local-random": lambda _version: LocalRandomMatcher(),
    "x-modulus-hash": lambda _version: ModulusHashMatcher(),
}
# Words that are atoms in every RabbitMQ, of which there are many thousands: these are the ones that somebody might take
# for a type of exchange.
_ATOMS = frozenset(
    {
        *"!#*+-.?BEX_abcdefhijklmnpqrsuvwxyz",
        *("", "accept", "ack", "alert", "alias", "all", "alternate-exchange", "amqp", "amqp091", "any", "atom"),
        *("auto_delete", "bad", "badtype", "bar", "binary", "binding", "broadcast", "bytes", "cache", "classic"),
        *("clock", "cluster", "confirm", "create", "critical", "data", "date", "debug", "default", "delay", "delete"),
        *("dev", "dict", "dir", "disable", "disabled", "dlx", "dummy", "durable", "echo", "email", "emergency"),
        *("enable", "enabled", "error", "event", "events", "exchange", "false", "fatal", "float", "foo", "get", "hash"),
        *("head", "header", "hello", "http", "https", "immediate", "info", "int", "integer", "internal", "invalid"),
        *("invalid_type", "job", "json", "key", "keys", "lazy", "list", "local", "log", "long", "mandatory", "map"),
        *("match", "message", "messages", "metrics", "missing", "monitoring", "multi", "multicast", "name", "new"),
        *("nil", "no", "node", "none", "normal", "not", "notice", "null", "off", "ok", "old", "on", "other"),
        *("partition", "partitions", "pattern", "post", "prefetch", "priority", "private", "prod", "public", "publish"),
        *("push", "put", "queue", "queue_name", "queues", "quorum", "quorum_queue", "rabbit", "random", "read"),
        *("ready", "regex", "reject", "retry", "return", "returns", "reverse", "root", "routing_key", "rpc", "self"),
        *("simple", "state", "status", "sticky", "stream", "stream_queue", "string", "subscribe", "super", "system"),
        *("tcp", "temporary", "test", "testing", "text", "this", "time", "timer", "trace", "tracing", "transient"),
        *("true", "tuple", "type", "udp", "undefined", "unknown", "unsupported", "update", "user", "vhost", "warn"),
        *("warning", "wildcard", "worker", "workers", "world", "write", "ws", "yes"),
    }
)
_SYSTEM_EXCHANGES = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.log", "topic"),
    ("amq.rabbitmq.trace", "topic"),
    ("amq.topic", "topic"),
)
_LOG = "amq.rabbitmq.log"
_INTERNAL = "amq.rabbitmq."


def predeclared_exchanges(version: Version) -> list[Exchange]:
    """Return the exchanges that every vhost starts with (rabbit_vhost:do_add)."""
    default = Exchange(name="", type="direct", matcher=DefaultMatcher())
    system = [(name, type_) for name, type_ in _SYSTEM_EXCHANGES if name != _LOG or version.has_log_exchange]
    return [default] + [
        Exchange(name=name, type=type_, internal=name.startswith(_INTERNAL), matcher=_MATCHERS[type_](version))
        for name, type_ in system
    ]


def new_exchange(
    name: str,
    type_: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    vhost: str,
    version: Version,
) -> Exchange:
    """Make an exchange of a type that there is. Raises ChannelException for an alternate-exchange that is no string."""
    alternate = arguments.get("alternate-exchange")
    if alternate and alternate.type != "longstr":
        raise errors.invalid_argument_type(alternate.type, "alternate-exchange", "exchange", name, vhost)
    return Exchange(
        name=name,
        type=type_,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
        alternate_exchange=alternate.value if alternate else None,
        matcher=_MATCHERS[type_](version),
    )


def check_type(type_: str, *, version: Version) -> None:
    """Raise ChannelException or, in 3.10, ConnectionException for a type that there is not."""
    if type_ not in version.exchange_types:
        raise errors.unknown_exchange_type(
            type_,
            is_word=type_ in _ATOMS or type_ in version.further_exchange_words,
            closes_connection=version.unknown_exchange_type_closes_connection,
        )


def assert_equivalent(
    current: Exchange,
    *,
    type_: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    vhost: str,
) -> None:
    """Raise ChannelException unless a second declaration says what the first said (rabbit_exchange:assert_equivalence).

    Of the arguments only alternate-exchange is compared.
    """
    if type_ != current.type:
        # The type is an atom, printed between the quotes: bare, or with quotes of its own (scenario
        # x_local_random_declare).
        raise errors.inequivalent(
            "type", kind="exchange", name=current.name, vhost=vhost, received=Atom(type_), current=Atom(current.type)
        )
    pairs = (
        ("durable", durable, current.durable),
        ("auto_delete", auto_delete, current.auto_delete),
        ("internal", internal, current.internal),
    )
    for key, received, existing in pairs:
        if received != existing:
            raise errors.inequivalent(
                key, kind="exchange", name=current.name, vhost=vhost, received=received, current=existing
            )
    equivalence.assert_equivalent_arguments(
        current.arguments, arguments, ("alternate-exchange",), kind="exchange", name=current.name, vhost=vhost
    )
