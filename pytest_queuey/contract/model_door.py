"""Owns the contract's second way into the broker in memory, which opens no port: straight to its model.

Answers as `AmqpDoor` does, in the model's own words. Refuses to be anything for a test to see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_queuey.contract.broker_door import DoorRefusedError, RawMessage
from queuey_rabbitmq.amqp import Properties

if TYPE_CHECKING:
    from queuey_fake import FakeBroker
    from queuey_fake.engine import Engine
    from queuey_fake.model.channel import Channel
    from queuey_fake.model.connection import Connection

_NO_PROPERTIES: Final = Properties()


class ModelDoor:
    """The door in process; a connection for each operation, in a turn of the broker's engine."""

    def __init__(self, broker: FakeBroker) -> None:
        self._engine: Engine = broker._engine  # noqa: SLF001 -- only the broker holds the engine of its model
        self._answers: list[Any] = []

    def declare(self, queue: str, *, durable: bool = True, arguments: Mapping[str, Any] | None = None) -> None:
        """Declare a queue."""
        from queuey_fake.model.fields import table_from_python

        self._ask(lambda channel: channel.queue_declare(queue, durable=durable, arguments=table_from_python(arguments)))

    def delete(self, queue: str) -> None:
        """Delete a queue with everything in it."""
        self._ask(lambda channel: channel.queue_delete(queue))

    def publish(self, queue: str, body: bytes, properties: Properties = _NO_PROPERTIES) -> None:
        """Put a message on a queue."""
        from queuey_fake.link import to_model

        answers = self._ask(
            lambda channel: channel.basic_publish("", queue, to_model(properties), body, mandatory=True),
        )
        if "Return" in answers:
            raise DoorRefusedError(f"publishing to queue '{queue}': unroutable")

    def get(self, queue: str) -> RawMessage | None:
        """Take the first message off a queue."""
        from queuey_fake.link import to_python

        got = self._ask(lambda channel: channel.basic_get(queue, no_ack=True)).get("GetOk")
        return None if got is None else RawMessage(got.body, to_python(got.properties))

    def depth(self, queue: str) -> int | None:
        """Return how many messages of a queue are ready."""
        try:
            answers = self._ask(lambda channel: channel.queue_declare(queue, passive=True))
        except DoorRefusedError as error:
            if str(error).startswith("404 "):
                return None
            raise
        count: int = answers["QueueDeclareOk"].message_count
        return count

    def close(self) -> None:
        """Hold nothing to let go of."""

    def _ask(self, operate: Callable[[Channel], object]) -> dict[str, Any]:
        """Do something on a new channel; return what the model said, by the kind of event."""
        connections: list[Connection] = []

        def operate_on_a_new_channel() -> None:
            connection = self._engine.model.connect()
            connections.append(connection)
            self._engine.own(connection, self)
            operate(connection.open_channel(1))

        def disconnect() -> None:
            connections[0].close()
            self._engine.disown(connections[0])

        self._answers = []
        self._engine.run(operate_on_a_new_channel)
        self._engine.run(disconnect)
        answers = {type(event).__name__: event for event in self._answers}
        for refusal in ("ChannelClose", "ConnectionClose"):
            if refusal in answers:
                raise DoorRefusedError(f"{answers[refusal].code} {answers[refusal].text}")
        return answers

    # what the engine calls (FrontEnd)

    def take_output(self, connection: Connection) -> None:
        """Take what the model says."""
        self._answers.extend(connection.outbox)
        connection.outbox.clear()

    def end_of_turn(self) -> None:
        """Do nothing at the end of a turn."""

    def next_deadline_ms(self) -> int | None:
        """Have nothing due."""
        return None

    def on_time(self) -> None:
        """Do nothing when time has moved."""
