"""The machine for topology: random declarations, bindings, routing and deletions, with arguments of every type.

What it keeps clear of, because RabbitMQ does not decide it: each consumer has a channel of its own, since what two
queues send to one channel comes in any order. And it leaves the exchanges that every virtual host has without
bindings, since others may be using the broker.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.differential.messages import header_values, maybe, rarely
from tests.differential.side_by_side import Comparison, SideBySide, UnequalError

OWN = ("@x", "@y", "@z", "@topic", "@headers", "@fanout")
EXCHANGES = (*OWN, "@none")
QUEUES = ("@a", "@b", "@c")
KEYS = ("", "a", "a.b", "a.*", "#", "*.b", "a.#", "b", "a.b.c", "*", ".", "a..b", "#.#", "@a", "#.a.#.#")
ODD = (
    *(0, 1, 5, -1, 256, 70_000, 400_000_000_000, "x", "5", "", True, False, None, [1], {"a": 1}),
    *({"$bytes": "0102"}, {"$ts": 1}, {"$dec": "1.5"}, {"$long": 5}),
)
USUAL: dict[str, tuple[Any, ...]] = {
    "x-message-ttl": (60_000, 70_000),
    "x-expires": (60_000, 90_000),
    "x-max-length": (5, 6),
    "x-max-length-bytes": (50,),
    "x-max-priority": (3, 5),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-dead-letter-exchange": ("", "@x"),
    "x-dead-letter-routing-key": ("k", "l"),
    "x-single-active-consumer": (True, False),
    "x-queue-type": ("classic", "quorum", "bogus", "undefined"),
    "x-queue-mode": ("lazy", "default"),
    "x-queue-version": (1, 2),
    "x-delivery-limit": (3,),
    "x-dead-letter-strategy": ("at-most-once", "at-least-once"),
    "x-max-in-memory-length": (3,),
    "x-quorum-initial-group-size": (1,),
    "x-max-age": ("1h",),
    "x-queue-leader-locator": ("client-local", "balanced"),
    "x-consumer-timeout": (60_000,),
    "x-quorum-target-group-size": (1,),
    "x-unknown": (1, 2),
    "alternate-exchange": ("@fanout",),
}


def values_of(name: str) -> st.SearchStrategy[tuple[str, Any]]:
    usual = st.sampled_from(USUAL[name])
    return st.tuples(st.just(name), st.one_of(usual, usual, st.sampled_from(ODD)))


argument = st.sampled_from(sorted(USUAL)).flatmap(values_of)
arguments = st.lists(argument, max_size=3).map(dict)
header_arguments = st.fixed_dictionaries(
    {},
    optional={
        "x-match": st.sampled_from(["all", "any", "all-with-x", "any-with-x", "none", 1]),
        "h": header_values,
        "z": header_values,
        "x-c": header_values,
    },
)
exchanges = st.sampled_from(EXCHANGES)
queues = st.sampled_from((*QUEUES, *QUEUES, "@none", "", "amq.rabbitmq.reply-to"))
keys = st.sampled_from(KEYS)
connections = st.sampled_from(["c", "c", "c", "d"])


class Topology(RuleBasedStateMachine):
    """Plays one run; `comparison` is set by whoever starts the machine."""

    comparison: Comparison

    def __init__(self) -> None:
        super().__init__()
        self.run: SideBySide = self.comparison.run()
        self.is_over = False
        self.channel: dict[str, str] = {}
        self.opened = 0
        self.published = 0

    def play(self, op: str, connection: str = "c", **arguments: Any) -> Any:
        if self.is_over:
            return None
        has_to_be_said = op in ("flow", "basic_recover")
        given = {
            key: value
            for key, value in arguments.items()
            if has_to_be_said or (value is not None and value is not False)
        }
        try:
            result = self.run.step(op=op, ch=self.channel_on(connection), **given)
        except UnequalError as unequal:
            self.is_over = True
            self.comparison.settle(self.run, unequal)
            return None
        self.comparison.steps += 1
        return result

    def channel_on(self, connection: str) -> str:
        """Return an open channel: a refusal closes the one it was asked on, some refusals the whole connection."""
        player = self.run.on_live
        while (known := player.connections.get(connection)) is not None and known.is_closed:
            connection += "x"
        name = self.channel.get(connection)
        if name is None or (name in player.channels and player.channels[name].is_closed):
            self.opened += 1
            name = self.channel[connection] = f"{connection}:{self.opened}"
        return name

    @initialize()
    def declare_exchanges(self) -> None:
        for kind in ("topic", "headers", "fanout"):
            self.play("exchange_declare", exchange=f"@{kind}", exchange_type=kind)
        self.play("queue_declare", queue="@a", durable=True)

    @rule(
        connection=connections,
        exchange=st.sampled_from((*OWN, *OWN, "", "amq.mine", "amq.topic")),
        exchange_type=st.sampled_from(["direct", "fanout", "topic", "headers"]),
        durable=maybe,
        auto_delete=maybe,
        internal=rarely,
        passive=rarely,
        alternate=rarely.flatmap(lambda yes: st.sampled_from([*EXCHANGES, 1, True]) if yes else st.none()),
    )
    def declare_exchange(self, alternate: Any, **given: Any) -> None:
        self.play("exchange_declare", **given, arguments={} if alternate is None else {"alternate-exchange": alternate})

    @rule(connection=connections)
    def declare_exchange_of_unknown_type(self, connection: str) -> None:
        self.play("exchange_declare", connection, exchange="@x", exchange_type="bogus")

    @rule(
        connection=connections,
        queue=st.sampled_from(QUEUES),
        durable=maybe.map(lambda yes: not yes),
        exclusive=rarely,
        auto_delete=rarely,
        passive=rarely,
        arguments=arguments,
    )
    def declare_queue(self, **given: Any) -> None:
        self.play("queue_declare", **given)

    @rule(connection=connections, exclusive=st.booleans())
    def declare_server_named_queue(self, connection: str, exclusive: bool) -> None:  # noqa: FBT001  drawn by name
        made = {"as": f"made{len(self.run.transcript)}"}
        self.play("queue_declare", connection, queue="", exclusive=exclusive, **made)

    @rule(connection=connections, queue=queues, exchange=exchanges, routing_key=keys, arguments=header_arguments)
    def bind(self, **given: Any) -> None:
        self.play("queue_bind", **given)

    @rule(connection=connections, queue=queues, exchange=exchanges, routing_key=keys, arguments=header_arguments)
    def unbind(self, **given: Any) -> None:
        self.play("queue_unbind", **given)

    @rule(connection=connections, destination=exchanges, source=exchanges, routing_key=keys, arguments=header_arguments)
    def bind_exchange(self, **given: Any) -> None:
        self.play("exchange_bind", **given)

    @rule(connection=connections, destination=exchanges, source=exchanges, routing_key=keys)
    def unbind_exchange(self, **given: Any) -> None:
        self.play("exchange_unbind", **given)

    @rule(connection=connections, queue=st.just(""), exchange=exchanges, routing_key=keys)
    def bind_last_declared(self, **given: Any) -> None:
        self.play("queue_bind", **given)

    @rule(connection=connections, exchange=exchanges, if_unused=st.booleans())
    def delete_exchange(self, **given: Any) -> None:
        self.play("exchange_delete", **given)

    @rule(connection=connections, queue=queues, if_unused=maybe, if_empty=maybe)
    def delete_queue(self, **given: Any) -> None:
        self.play("queue_delete", **given)

    @rule(connection=connections, queue=queues)
    def purge(self, **given: Any) -> None:
        self.play("queue_purge", **given)

    @rule(
        connection=connections,
        exchange=st.sampled_from([*EXCHANGES, ""]),
        routing_key=keys,
        mandatory=st.booleans(),
        headers=st.one_of(
            st.none(),
            st.dictionaries(st.sampled_from(["h", "z", "x-c"]), header_values, max_size=2),
            st.dictionaries(st.sampled_from(["CC", "BCC"]), st.lists(keys, max_size=2), max_size=2),
        ),
    )
    def publish(self, headers: dict[str, Any] | None, **given: Any) -> None:
        self.published += 1
        properties = None if headers is None else {"headers": headers}
        self.play("publish", **given, body=f"m{self.published}", properties=properties)

    @rule(connection=connections, queue=queues)
    def get(self, **given: Any) -> None:
        self.play("basic_get", **given, auto_ack=True, n=3)

    @rule(queue=queues, exclusive=rarely, priority=st.sampled_from([None, None, 1, "a", True, {"$long": 2}]))
    def consume(self, queue: str, exclusive: bool, priority: Any) -> None:  # noqa: FBT001  drawn by name
        connection = "c"
        self.channel.pop(connection, None)
        self.play(
            "basic_consume",
            connection,
            queue=queue,
            consumer_tag=f"t{len(self.run.transcript)}",
            exclusive=exclusive,
            auto_ack=True,
            arguments={} if priority is None else {"x-priority": priority},
        )
        self.channel.pop(connection, None)

    @rule(
        connection=connections,
        change=st.sampled_from(
            [
                ("confirm_select", {}),
                ("tx_select", {}),
                ("tx_commit", {}),
                ("tx_rollback", {}),
                ("basic_qos", {"prefetch_count": 5}),
                ("basic_qos", {"prefetch_size": 5}),
                ("basic_recover", {"requeue": True}),
                ("basic_recover", {"requeue": False}),
                ("flow", {"active": True}),
                ("flow", {"active": False}),
                ("basic_ack", {"delivery_tag": 7}),
                ("basic_cancel", {"consumer_tag": "unknown"}),
            ]
        ),
    )
    def change_channel(self, connection: str, change: tuple[str, dict[str, Any]]) -> None:
        op, given = change
        self.play(op, connection, **given)

    def teardown(self) -> None:
        try:
            for queue in QUEUES:
                self.channel.pop("e", None)
                self.play("basic_get", "e", queue=queue, auto_ack=True, n=8)
        finally:
            self.run.close()
