"""The machine for messages: random publishes, deliveries, settlements and waits on a few queues with random arguments.

What it keeps clear of, because RabbitMQ does not decide it:
- A channel gets and consumes from one queue only: what two queues send to one channel comes in any order.
- Where a publish reaches several queues, each of them has a dead-letter queue of its own: two queues that dead-letter
  into a third at the same time do so in any order. Where they share one, a publish reaches one queue.
- Dead letters go round in circles only where nothing makes them go at once: with TTL 0, or full queues, a message that
  was rejected once would circle without end (3.10 does not see the cycle), and take the broker's CPU with it.
- Quorum queues get one message at a time where a TTL may be 0: how many of a burst share a millisecond, or an entry of
  the log, decides which of those with TTL 0 make room for the others, or are pushed out by them. Nor do they get bursts
  while they refuse publishes or serve consumers without acknowledgements: a channel hears that the queue is full, and
  settles what it passed on, when more is on its way already (rabbit_fifo_client).
- Consumer tags and names are given, since made up ones are random.
- Whether the lease of a quorum queue has ended is looked at five seconds after its declaration, ten, and so on
  (rabbit_fifo:tick). The third such instant would fall into a window of steps, so runs with such a lease end before it.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.differential.side_by_side import (
    QUORUM_PATIENCE_S,
    SLOT_MS,
    TTL_PAST_SLOT_MS,
    Comparison,
    SideBySide,
    UnequalError,
)

QUEUES = ("a", "b", "d")
LEAVES = ("la", "lb", "ld")
NEVER_MS = 60_000
SOON_MS, LATER_MS = TTL_PAST_SLOT_MS, SLOT_MS + TTL_PAST_SLOT_MS
TICK_SLOTS = 7
"""From a declaration until the first tick of a quorum queue is over, five seconds later."""
QUORUM_LEASE_MS = SLOT_MS + 700
"""It ends when no tick comes: those of the first 15 seconds come 200 ms behind the begin of a slot, or 400."""
QUORUM_LEASES_END_MS = 14_000
KINDS = ("chain", "chain", "fan", "cycle", "tx")

maybe = st.integers(0, 3).map(lambda n: n == 3)  # one in four, and none when shrunk
rarely = st.integers(0, 15).map(lambda n: n == 15)  # one in sixteen


def sometimes(values: st.SearchStrategy[Any], chance: st.SearchStrategy[bool] = maybe) -> st.SearchStrategy[Any]:
    return chance.flatmap(lambda yes: values if yes else st.none())


def channels_of(machine: Any) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(machine.queue_of))


channels = st.runner().flatmap(channels_of)
queues = st.sampled_from(QUEUES)
header_values = st.sampled_from(
    [
        *("v", "", 1, -1, 70_000, 2**40, True, None, [1, "x", None], {"k": 1, "a": {"b": [True]}}),
        *({"$bytes": "00ff"}, {"$ts": 1}, {"$dec": "1.5"}, {"$long": 7}),
    ]
)
headers = st.dictionaries(st.sampled_from(["h", "z", "a", "x-death", "x-delivery-count"]), header_values, max_size=3)
rich_properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.sampled_from(["text/plain", ""]),
        "content_encoding": st.just("utf8"),
        "headers": headers,
        "delivery_mode": st.sampled_from([1, 2, 0, 3]),
        "priority": st.sampled_from([0, 1, 9, 255]),
        "correlation_id": st.just("c1"),
        "reply_to": st.just("@a"),
        "message_id": st.just("id"),
        "timestamp": st.just(1_700_000_000),
        "type": st.just("t"),
        "user_id": st.sampled_from(["guest", "other"]),
        "app_id": st.just("app"),
        "cluster_id": st.just("cl"),
        "expiration": st.sampled_from(["60000", "", "x", "1.5", " 1", "-1", "+60000", "99999999999999999999"]),
    },
)


@st.composite
def queue_arguments(draw: st.DrawFn, machine: "Messages", queue: str) -> dict[str, Any]:
    kind, is_timed = machine.kind, machine.is_timed
    found = {
        "x-message-ttl": draw(sometimes(st.sampled_from(machine.durations()), st.booleans() if is_timed else rarely)),
        "x-max-priority": draw(sometimes(st.sampled_from([3, 1, 10]))),
        "x-single-active-consumer": draw(sometimes(st.just(True), rarely)),
    }
    if draw(st.booleans()):
        found["x-dead-letter-exchange"], found["x-dead-letter-routing-key"] = draw(dead_letter_target(machine, queue))
    if kind != "cycle":
        found["x-max-length"] = draw(sometimes(st.sampled_from([2, 1, 3, 0])))
        found["x-max-length-bytes"] = draw(sometimes(st.sampled_from([6, 3, 0]), rarely))
        if found["x-max-length"] is not None or found["x-max-length-bytes"] is not None:
            found["x-overflow"] = draw(
                sometimes(st.sampled_from(["reject-publish", "drop-head", "reject-publish-dlx"]))
            )
    if is_timed:
        found["x-expires"] = draw(sometimes(st.sampled_from([SOON_MS, LATER_MS]), rarely))
    if machine.has_quorum and queue != "d" and not (machine.has_bursts and draw(maybe)):
        found |= {"x-queue-type": "quorum", "x-max-priority": None}
        found["x-expires"] = draw(sometimes(st.just(QUORUM_LEASE_MS))) if is_timed else None
        found["x-delivery-limit"] = draw(sometimes(st.sampled_from([1, 2, 0, -1])))
        if machine.has_bursts and found.get("x-overflow") == "reject-publish":
            found["x-overflow"] = "drop-head"
    return {name: value for name, value in found.items() if value is not None}


def dead_letter_target(machine: "Messages", queue: str) -> st.SearchStrategy[tuple[str, str | None]]:
    """Return exchanges and keys that a queue may dead-letter with."""
    if machine.kind == "fan":
        return st.just(("", f"@l{queue}"))
    behind = QUEUES if machine.kind == "cycle" else QUEUES[QUEUES.index(queue) + 1 :]
    named = st.sampled_from([f"@{name}" for name in (*behind, f"l{queue}")]).map(lambda key: ("", key))
    return st.one_of(named, named, st.sampled_from([("@x", None), ("@x", "k"), ("@missing", None)]))


class Messages(RuleBasedStateMachine):
    """Plays one run; `comparison` is set by whoever starts the machine."""

    comparison: Comparison

    def __init__(self) -> None:
        super().__init__()
        self.run: SideBySide = self.comparison.run()
        self.kind = "chain"
        self.is_timed = False
        self.has_quorum = False
        self.has_bursts = True
        self.has_quorum_leases = False
        self.is_over = False
        self.opened = 0
        self.published = 0
        self.queue_of: dict[str, str] = {}
        self.unsettled: dict[str, list[int]] = {}
        self.consumers: dict[str, dict[str, bool]] = {}
        self.transactional: set[str] = set()
        self.declared: dict[str, dict[str, Any]] = {}

    # playing a step, and knowing what is outstanding after it

    def play(self, op: str, **arguments: Any) -> Any:
        if self.has_quorum_leases and self.run.elapsed_ms() > QUORUM_LEASES_END_MS:
            self.is_over = True
        if self.is_over:
            return None
        try:
            result = self.run.step(op=op, **{key: value for key, value in arguments.items() if value is not None})
        except UnequalError as unequal:
            self.is_over = True
            self.comparison.settle(self.run, unequal)
            return None
        self.comparison.steps += 1
        self.learn()
        return result

    def learn(self) -> None:
        last = self.run.transcript[-1]
        for channel, events in last.get("events", {}).items():
            for event in events:
                if event["ev"] == "deliver" and not self.consumers.get(channel, {}).get(event["ctag"], True):
                    self.unsettled[channel].append(event["tag"])
                elif event["ev"] == "cancel":
                    self.consumers[channel].pop(event["ctag"], None)
        for channel in [name for name in self.queue_of if self.is_closed(name)]:
            self.replace(channel)

    def is_closed(self, channel: str) -> bool:
        player = self.run.on_live
        return channel in player.channels and (
            player.channels[channel].is_closed or player.connections[channel.split(":", maxsplit=1)[0]].is_closed
        )

    def replace(self, channel: str) -> None:
        """Go on with another channel to the same queue."""
        connection = channel.split(":", maxsplit=1)[0]
        if self.run.on_live.connections[connection].is_closed:
            connection = f"{connection}x"
        self.open(connection, self.queue_of.pop(channel))
        for known in (self.unsettled, self.consumers):
            known.pop(channel)
        self.transactional.discard(channel)

    def open(self, connection: str, queue: str) -> str:
        self.opened += 1
        channel = f"{connection}:{self.opened}"
        self.queue_of[channel] = queue
        self.unsettled[channel] = []
        self.consumers[channel] = {}
        return channel

    def durations(self) -> list[int]:
        at_once = [] if self.kind == "cycle" or (self.has_quorum and self.has_bursts) else [0]
        return [SOON_MS, LATER_MS, NEVER_MS, *at_once] if self.is_timed else [NEVER_MS, *at_once]

    # the steps

    @initialize(kind=st.sampled_from(KINDS), has_quorum=maybe, is_timed=maybe, data=st.data())
    def declare(self, *, kind: str, has_quorum: bool, is_timed: bool, data: st.DataObject) -> None:
        self.kind, self.has_quorum, self.is_timed = kind, has_quorum, is_timed
        self.run.is_timed = is_timed
        if has_quorum:
            self.run.on_live.patience_s = QUORUM_PATIENCE_S
            self.has_bursts = kind == "tx" or data.draw(st.booleans())  # a commit is one
        for connection, queue in (("c", "a"), ("c", "b"), ("c", "d"), ("d", "a"), ("d", "b")):
            self.open(connection, queue)
        self.play("exchange_declare", exchange="@x", exchange_type="topic")
        for queue in QUEUES:
            arguments = data.draw(queue_arguments(self, queue))
            is_quorum = arguments.get("x-queue-type") == "quorum"
            self.has_quorum_leases |= is_quorum and "x-expires" in arguments
            self.declared[queue] = {
                "durable": True,
                "auto_delete": None if is_quorum else data.draw(rarely) or None,
                "arguments": arguments or None,
            }
            self.play("queue_declare", queue=f"@{queue}", **self.declared[queue])
            if kind == "fan" and data.draw(st.booleans()):
                key = data.draw(st.sampled_from(["k", "#", "*", "zz"]))
                self.play("queue_bind", queue=f"@{queue}", exchange="@x", routing_key=key)
        for queue in LEAVES:
            self.play("queue_declare", queue=f"@{queue}", durable=True)
        for channel in list(self.queue_of):
            if data.draw(maybe):
                self.play("confirm_select", ch=channel)
            elif kind == "tx" and data.draw(st.booleans()):
                self.play("tx_select", ch=channel)
                self.transactional.add(channel)

    @rule(channel=channels, queue=queues, size=st.integers(1, 4), data=st.data())
    def publish(self, channel: str, queue: str, size: int, data: st.DataObject) -> None:
        bodies: list[Any] = []
        for _ in range(size if self.has_bursts else 1):
            self.published += 1
            body: dict[str, Any] = {"body": f"m{self.published}"}
            properties = data.draw(self.properties())
            bodies.append(body | {"properties": properties} if properties else body["body"])
        is_fanned_out = self.kind == "fan" and data.draw(maybe)
        self.play(
            "publish",
            ch=channel,
            exchange="@x" if is_fanned_out else "",
            routing_key=data.draw(st.sampled_from(["k", "zz"])) if is_fanned_out else f"@{queue}",
            mandatory=data.draw(sometimes(st.just(True))),
            bodies=bodies,
        )

    def properties(self) -> st.SearchStrategy[dict[str, Any]]:
        durations = [str(ms) for ms in self.durations()]
        plain = {"priority": st.sampled_from([1, 0, 2, 5, 9, 20]), "expiration": st.sampled_from(durations)}
        if self.kind == "fan":
            targets = st.lists(st.sampled_from(["@a", "@b", "@d", "@none"]), min_size=1, max_size=2)
            plain["headers"] = st.dictionaries(st.sampled_from(["CC", "BCC"]), targets, min_size=1)
        usual = st.fixed_dictionaries({}, optional=plain)
        return rarely.flatmap(lambda rich: rich_properties if rich else usual)

    @rule(queue=queues, channel=channels, properties=rich_properties)
    def publish_rich(self, queue: str, channel: str, properties: dict[str, Any]) -> None:
        self.published += 1
        body = f"r{self.published}"
        self.play("publish", ch=channel, exchange="", routing_key=f"@{queue}", body=body, properties=properties)

    @rule(channel=channels, auto_ack=maybe, times=sometimes(st.integers(2, 3)))
    def get(self, channel: str, auto_ack: bool, times: int | None) -> None:  # noqa: FBT001  drawn by name
        got = self.play("basic_get", ch=channel, queue=f"@{self.queue_of[channel]}", auto_ack=auto_ack, n=times)
        if not auto_ack and channel in self.unsettled:
            messages = got if isinstance(got, list) else [got]
            self.unsettled[channel] += [message["tag"] for message in messages if "tag" in (message or ())]

    @rule(
        channel=channels,
        prefetch=sometimes(st.sampled_from([1, 2, 3, 0]), st.booleans()),
        is_global=rarely,
        name=st.sampled_from(["t", "z", "B"]),
        auto_ack=maybe,
        priority=sometimes(st.sampled_from([1, 5, -1])),
        exclusive=rarely,
    )
    def consume(self, channel: str, *, prefetch: int | None, is_global: bool, name: str, **options: Any) -> None:
        if prefetch is not None:
            self.play("basic_qos", ch=channel, prefetch_count=prefetch, global_qos=is_global or None)
        if channel not in self.queue_of:
            return
        if self.has_quorum and self.has_bursts:
            options["auto_ack"] = False
        tag = f"{name}{len(self.run.transcript)}"
        self.consumers[channel][tag] = options["auto_ack"]
        self.play(
            "basic_consume",
            ch=channel,
            queue=f"@{self.queue_of[channel]}",
            consumer_tag=tag,
            auto_ack=options["auto_ack"],
            exclusive=options["exclusive"] or None,
            arguments=None if options["priority"] is None else {"x-priority": options["priority"]},
        )

    @precondition(lambda self: any(self.unsettled.values()))
    @rule(
        how=st.sampled_from(["basic_ack", "basic_nack", "basic_reject"]),
        multiple=maybe,
        requeue=st.booleans(),
        data=st.data(),
    )
    def settle(self, how: str, *, multiple: bool, requeue: bool, data: st.DataObject) -> None:
        channel = data.draw(st.sampled_from(sorted(name for name, tags in self.unsettled.items() if tags)))
        tags = self.unsettled[channel]
        tag = data.draw(st.sampled_from(tags))
        if how == "basic_reject":
            multiple = False
        self.unsettled[channel] = [each for each in tags if each != tag and not (multiple and each < tag)]
        self.play(
            how,
            ch=channel,
            delivery_tag=tag,
            multiple=None if how == "basic_reject" else multiple,
            requeue=None if how == "basic_ack" else requeue,
        )

    @rule(
        channel=channels,
        how=st.sampled_from(["basic_ack", "basic_nack", "basic_reject"]),
        multiple=st.booleans(),
        really=maybe,
    )
    def settle_what_is_not_there(self, channel: str, *, how: str, multiple: bool, really: bool) -> None:
        if really and not self.unsettled[channel]:
            self.play(how, ch=channel, delivery_tag=99, multiple=None if how == "basic_reject" else multiple)

    @rule(channel=channels)
    def settle_all(self, channel: str) -> None:
        self.unsettled[channel] = []
        self.play("basic_nack", ch=channel, delivery_tag=0, multiple=True, requeue=False)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        channel = data.draw(st.sampled_from(sorted(name for name, tags in self.consumers.items() if tags)))
        tag = data.draw(st.sampled_from(sorted(self.consumers[channel])))
        del self.consumers[channel][tag]
        self.play("basic_cancel", ch=channel, consumer_tag=tag)

    @rule(channel=channels, prefetch=st.sampled_from([1, 2, 0]), is_global=st.booleans())
    def limit(self, channel: str, prefetch: int, is_global: bool) -> None:  # noqa: FBT001  drawn by name
        self.play("basic_qos", ch=channel, prefetch_count=prefetch, global_qos=is_global or None)

    @rule(channel=channels)
    def recover(self, channel: str) -> None:
        self.unsettled[channel] = []
        self.play("basic_recover", ch=channel, requeue=True)

    @precondition(lambda self: self.transactional)
    @rule(how=st.sampled_from(["tx_commit", "tx_commit", "tx_rollback"]), data=st.data())
    def finish(self, how: str, data: st.DataObject) -> None:
        self.play(how, ch=data.draw(st.sampled_from(sorted(self.transactional))))

    @rule(queue=st.sampled_from([*QUEUES, *LEAVES]), channel=channels)
    def count(self, queue: str, channel: str) -> None:
        self.play("queue_declare", ch=channel, queue=f"@{queue}", passive=True)

    @rule(queue=queues, channel=channels)
    def declare_again(self, queue: str, channel: str) -> None:
        self.play("queue_declare", ch=channel, queue=f"@{queue}", **self.declared[queue])

    @rule(queue=queues, channel=channels, how=st.sampled_from([*["purge"] * 5, "delete"]))
    def empty(self, queue: str, channel: str, how: str) -> None:
        self.play(f"queue_{how}", ch=channel, queue=f"@{queue}")

    @rule(channel=channels)
    def close_channel(self, channel: str) -> None:
        if channel in self.run.on_live.channels:
            self.play("close_channel", ch=channel)

    @rule(connection=st.sampled_from(["c", "d", "cx", "dx"]))
    def close_connection(self, connection: str) -> None:
        known = self.run.on_live.connections.get(connection)
        if connection != "c" and known is not None and known.is_open:
            self.play("close_connection", conn=connection)

    @precondition(lambda self: self.is_timed)
    @rule(slots=st.integers(1, 2), until_tick=maybe)
    def wait(self, slots: int, until_tick: bool) -> None:  # noqa: FBT001  drawn by name
        if until_tick and self.has_quorum_leases:
            slots = TICK_SLOTS
        if not self.is_over:
            try:
                self.run.wait(slots)
            except UnequalError as unequal:
                self.is_over = True
                self.comparison.settle(self.run, unequal)
                return
            self.comparison.steps += 1
            self.learn()

    def teardown(self) -> None:
        try:
            for queue in (*QUEUES, *LEAVES):  # what is left, each on a channel of its own: a missing queue closes it
                self.play("basic_get", ch=self.open("e", queue), queue=f"@{queue}", auto_ack=True, n=6)
        finally:
            self.run.close()


def machine(kind: type[RuleBasedStateMachine], comparison: Comparison) -> type[RuleBasedStateMachine]:
    """Return a machine that compares by `comparison`."""
    return type(kind.__name__, (kind,), {"comparison": comparison})
