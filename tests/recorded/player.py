"""The player: it runs a transcript's steps on a broker through pika and says what the broker answered.

Time is the fake's own. A recording let `SETTLE_MS` of real time pass after each step, and more in a step of its own
called `wait`; so does the player in virtual time.
"""

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError

from tests.recorded.values import Values

SETTLE_MS = 40
Step = dict[str, Any]

PLAIN = (
    *("queue_bind", "queue_unbind", "exchange_delete", "exchange_bind", "exchange_unbind", "exchange_declare"),
    *("basic_qos", "basic_ack", "basic_nack", "basic_reject", "basic_recover", "tx_select", "tx_commit", "tx_rollback"),
)
UNANSWERED = ("publish", "basic_ack", "basic_nack", "basic_reject")  # of every other operation the answer is waited for
NOT_ARGUMENTS = ["op", "ch", "conn", "note", "as", "raw", "nosettle", "result", "events"]
PREFIXES = itertools.count()


class World(Protocol):
    """A broker on a port, with a clock that can be moved."""

    @property
    def url(self) -> str: ...

    def advance(self, seconds: float) -> None: ...


class Player:
    """Plays one transcript."""

    def __init__(self, world: World, settle_ms: int) -> None:
        self.world = world
        self.settle_ms = settle_ms
        self.values = Values(f"run{next(PREFIXES):06}-")  # as long as when it was recorded: some texts are cut
        self.connections: dict[str, pika.BlockingConnection] = {}
        self.channels: dict[str, BlockingChannel] = {}
        self.reported: set[str] = set()
        self.confirming: set[str] = set()
        self.events: dict[str, list[Any]] = {}
        self.frames: dict[str, list[Any]] = {}

    def play(self, steps: list[Step]) -> list[tuple[Any, dict[str, list[Any]]]]:
        """Return the result and the events of each step."""
        try:
            return [self.step(step) for step in steps]
        finally:
            for connection in self.connections.values():
                if connection.is_open:
                    connection.close()

    def step(self, step: Step) -> tuple[Any, dict[str, list[Any]]]:
        op, ref = step["op"], step.get("ch", "c:1")
        arguments = self.values.read({key: value for key, value in step.items() if key not in NOT_ARGUMENTS})
        self.events = {}
        settles = not step.get("nosettle") and op != "wait"
        try:
            result = self.operation(op)(ref, arguments, step)
            if settles and op in UNANSWERED:
                self.flush(ref)
        except Exception as error:  # noqa: BLE001  whatever a call raises is its result
            result = self.values.error(error)
            if result["error"] == "channel":
                self.reported.add(ref)
            elif result["error"] == "connection":
                self.reported.add(ref.split(":")[0])
        if settles:
            self.world.advance(self.settle_ms / 1000)
            self.pump()
        self.scan()
        return result, {name: self.events[name] for name in sorted(self.events)}

    def operation(self, op: str) -> Callable[[str, dict[str, Any], Step], Any]:
        return getattr(self, f"op_{op}") if op not in PLAIN else lambda ref, a, _: self.plain(op, ref, a)

    # connections and what arrives on them

    def connection(self, name: str) -> pika.BlockingConnection:
        if name not in self.connections:
            parameters = pika.URLParameters(self.world.url)
            parameters.heartbeat = 0
            self.connections[name] = pika.BlockingConnection(parameters)
            self.watch_frames(name, self.connections[name])
        return self.connections[name]

    def channel(self, ref: str) -> BlockingChannel:
        if ref not in self.channels:
            channel = self.connection(ref.split(":", maxsplit=1)[0]).channel()
            self.channels[ref] = channel
            channel.add_on_cancel_callback(
                lambda frame: self.tell(ref, {"ev": "cancel", "ctag": self.values.tag(frame.method.consumer_tag)})
            )
            channel.add_on_return_callback(
                lambda _, method, properties, body: self.tell(ref, self.values.returned(method, properties, body))
            )
        return self.channels[ref]

    def tell(self, ref: str, event: dict[str, Any]) -> None:
        self.events.setdefault(ref, []).append(event)

    def watch_frames(self, name: str, connection: pika.BlockingConnection) -> None:
        process = connection._impl._process_frame

        def watched(frame: Any) -> Any:
            method = getattr(frame, "method", None)
            log = self.frames.get(name)
            if log is not None and method is not None and method.NAME not in ("Exchange.DeclareOk", "Channel.OpenOk"):
                fields = ("delivery_tag", "multiple", "reply_code", "consumer_tag")
                told = [field for field in fields if hasattr(method, field) and method.NAME.startswith("Basic.")]
                log.append({"m": method.NAME} | {field: getattr(method, field) for field in told})
            return process(frame)

        connection._impl._process_frame = watched

    def flush(self, ref: str) -> None:
        """Wait for the broker to have done everything that was asked on the channel so far."""
        channel = self.channels.get(ref)
        if channel is not None and channel.is_open:
            channel.exchange_declare(exchange="amq.direct", exchange_type="direct", passive=True)

    def pump(self) -> None:
        for name, connection in list(self.connections.items()):
            if name in self.reported:
                continue
            if connection.is_closed:
                self.reported.add(name)
                continue
            try:
                connection.process_data_events(time_limit=0)
            except Exception as error:  # noqa: BLE001  whatever ends a connection is an event
                self.reported.add(name)
                self.tell(name, {**self.values.error(error), "ev": "connection_closed"})

    def scan(self) -> None:
        """Tell of channels that the broker closed while nobody was calling them."""
        for ref, channel in self.channels.items():
            if ref in self.reported or not channel.is_closed:
                continue
            self.reported.add(ref)
            name = ref.split(":")[0]
            if name in self.reported or self.connections[name].is_closed:
                continue
            told = self.values.error(channel._closing_reason)  # type: ignore[arg-type]  # an exception once it is closed
            if told["error"] == "channel":
                self.tell(ref, {"ev": "channel_closed", "code": told["code"], "text": told["text"]})

    # operations; each returns what a transcript holds

    def plain(self, op: str, ref: str, arguments: dict[str, Any]) -> str:
        getattr(self.channel(ref), op)(**arguments)
        return "ok"

    def op_wait(self, _ref: str, arguments: dict[str, Any], _step: Step) -> str:
        self.world.advance(arguments["ms"] / 1000)
        self.pump()
        return "ok"

    def op_sync(self, _ref: str, _arguments: dict[str, Any], _step: Step) -> str:
        return "ok"

    def op_close_channel(self, ref: str, _arguments: dict[str, Any], _step: Step) -> str:
        self.reported.add(ref)
        self.channel(ref).close()
        return "ok"

    def op_close_connection(self, _ref: str, _arguments: dict[str, Any], step: Step) -> str:
        self.reported.add(step["conn"])
        self.connections[step["conn"]].close()
        return "ok"

    def op_queue_declare(self, ref: str, arguments: dict[str, Any], step: Step) -> dict[str, Any]:
        declared = self.channel(ref).queue_declare(**arguments).method
        if "as" in step:
            self.values.made_up[step["as"]] = declared.queue
        return {
            "queue": self.values.text(declared.queue),
            "message_count": declared.message_count,
            "consumer_count": declared.consumer_count,
        }

    def op_queue_delete(self, ref: str, arguments: dict[str, Any], _step: Step) -> dict[str, Any]:
        return {"message_count": self.channel(ref).queue_delete(**arguments).method.message_count}

    def op_queue_purge(self, ref: str, arguments: dict[str, Any], _step: Step) -> dict[str, Any]:
        return {"message_count": self.channel(ref).queue_purge(**arguments).method.message_count}

    def op_flow(self, ref: str, arguments: dict[str, Any], _step: Step) -> dict[str, Any]:
        return {"active": self.channel(ref).flow(arguments["active"])}

    def op_confirm_select(self, ref: str, _arguments: dict[str, Any], _step: Step) -> str:
        self.channel(ref).confirm_delivery()
        self.confirming.add(ref)
        return "ok"

    def op_publish(self, ref: str, arguments: dict[str, Any], _step: Step) -> Any:
        if "bodies" not in arguments:
            return self.publish(ref, arguments, arguments.get("body", ""), arguments.get("properties"))
        told = []
        for each in arguments["bodies"]:
            own = each if isinstance(each, dict) else {"body": each}
            properties = own.get("properties", arguments.get("properties"))
            told.append(self.publish(ref, arguments, own.get("body", ""), properties))
        return told

    def publish(self, ref: str, arguments: dict[str, Any], body: Any, properties: dict[str, Any] | None) -> Any:
        try:
            self.channel(ref).basic_publish(
                arguments.get("exchange", ""),
                arguments.get("routing_key", ""),
                body.encode() if isinstance(body, str) else body,
                None if properties is None else pika.BasicProperties(**properties),
                arguments.get("mandatory", False),
            )
        except (UnroutableError, NackError) as error:
            returned = [self.values.returned(each.method, each.properties, each.body) for each in error.messages]
            return {"confirm": "nack" if isinstance(error, NackError) else "ack", "returned": returned}
        return "ack" if ref in self.confirming else "ok"

    def op_basic_get(self, ref: str, arguments: dict[str, Any], _step: Step) -> Any:
        times = arguments.pop("n", None)
        got = [self.get(ref, arguments) for _ in range(times or 1)]
        return got[0] if times is None else got

    def get(self, ref: str, arguments: dict[str, Any]) -> Any:
        method, properties, body = self.channel(ref).basic_get(**arguments)
        if method is None:
            return "empty"
        return {
            "tag": method.delivery_tag,
            "redelivered": method.redelivered,
            "message_count": method.message_count,
        } | self.values.message(method, properties, body)

    def op_basic_consume(self, ref: str, arguments: dict[str, Any], _step: Step) -> dict[str, Any]:
        def delivered(_channel: object, method: Any, properties: Any, body: bytes) -> None:
            self.keep_reply_address(properties.reply_to)
            head = {
                "ev": "deliver",
                "ctag": self.values.tag(method.consumer_tag),
                "tag": method.delivery_tag,
                "redelivered": method.redelivered,
            }
            self.tell(ref, head | self.values.message(method, properties, body))

        return {"ctag": self.values.tag(self.channel(ref).basic_consume(on_message_callback=delivered, **arguments))}

    def keep_reply_address(self, address: str | None) -> None:
        made_up = self.values.made_up
        if address and address.startswith("amq.rabbitmq.reply-to.") and address not in made_up.values():
            made_up[f"reply{1 + sum(name.startswith('reply') for name in made_up)}"] = address

    def op_basic_cancel(self, ref: str, arguments: dict[str, Any], _step: Step) -> dict[str, Any]:
        return {"pending": len(self.channel(ref).basic_cancel(**arguments) or [])}

    def op_wire_start(self, ref: str, _arguments: dict[str, Any], _step: Step) -> str:
        self.connection(ref.split(":", maxsplit=1)[0])
        self.frames[ref.split(":", maxsplit=1)[0]] = []
        return "ok"

    def op_wire(self, ref: str, _arguments: dict[str, Any], _step: Step) -> list[Any]:
        name = ref.split(":", maxsplit=1)[0]
        log, self.frames[name] = self.frames[name], []
        return log
