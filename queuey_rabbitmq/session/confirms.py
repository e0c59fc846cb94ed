"""The confirm ledger of one channel: which publish a confirm, a nack or a return speaks of. Sends nothing.

What RabbitMQ promises and what it does not (measured on 3.10.8, 4.0.5 and 4.3.6): confirms come out of order, an
unroutable message being confirmed at once while earlier ones are pending; `multiple` covers numbers that were settled
before; a return precedes the confirm of its publish and carries no number, and returns come in publish order.
"""

from __future__ import annotations

from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.session.operations import PublishOperation


class ConfirmLedger:
    """Unsettled publishes of one channel by their number, oldest first."""

    def __init__(self) -> None:
        self._unsettled: dict[int, PublishOperation] = {}
        self._published = 0

    def __len__(self) -> int:
        return len(self._unsettled)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody still waits for an answer to one of them."""
        return any(not operation.finished for operation in self._unsettled.values())

    def published(self, operation: PublishOperation) -> None:
        """Note the next publish on the channel."""
        self._published += 1
        self._unsettled[self._published] = operation

    def returned(self, routing_key: str, message_id: str | None, text: str) -> bool:
        """Mark the publish that a return speaks of; tell whether there was one.

        It is the oldest unsettled one, not yet returned, with the same routing key and message id: returns keep
        publish order, so this is right even where two messages look the same.
        """
        for operation in self._unsettled.values():
            message = operation.message
            if (
                operation.returned is None
                and message.queue == routing_key
                and message.properties.message_id == message_id
            ):
                operation.returned = text
                return True
        return False

    def refused(self, properties: Properties) -> PublishOperation | None:
        """Take out the publish with these very properties: the link could not write it, so the broker counts on."""
        for number, operation in self._unsettled.items():
            if operation.message.properties is properties:
                del self._unsettled[number]
                self._unsettled = {other - (other > number): kept for other, kept in self._unsettled.items()}
                self._published -= 1
                return operation
        return None

    def settle(self, tag: int, *, multiple: bool) -> list[PublishOperation]:
        """Take out the publishes that a confirm or nack speaks of, in publish order."""
        if not multiple:
            operation = self._unsettled.pop(tag, None)
            return [] if operation is None else [operation]
        covered = []
        for number in self._unsettled:
            if number > tag:
                break
            covered.append(number)
        return [self._unsettled.pop(number) for number in covered]

    def take_all(self) -> list[PublishOperation]:
        """Take out everything: the channel is gone, and no answer will come."""
        operations = list(self._unsettled.values())
        self._unsettled.clear()
        return operations
