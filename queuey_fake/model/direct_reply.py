"""Direct reply-to: replies that go straight to the channel that asked for them, without a queue.

Owns the addresses that were given out, and who listens at each. An address whose listener is gone stays known, for
RabbitMQ tells it from one that was never given out.
"""

from __future__ import annotations

from typing import Protocol

from queuey_fake.model.message import Message

PSEUDO_QUEUE = "amq.rabbitmq.reply-to"
PREFIX = PSEUDO_QUEUE + "."


def crashes_its_reader(address: str) -> bool:
    """Return whether RabbitMQ before 4.3 crashes when it reads an address that nobody gave out.

    It takes two words for an encoded process and a key, without a doubt (rabbit_direct_reply_to:decode_reply_to_v1).
    """
    return sum(map(bool, address.removeprefix(PREFIX).split("."))) == 2  # noqa: PLR2004  process and key


class ReplyMailbox(Protocol):
    """The channel of a reply consumer."""

    def deliver_reply(self, consumer_tag: str, message: Message) -> None:
        """Send a reply to the consumer."""


class ReplyConsumer:
    """One consumer of direct replies, at its address."""

    __slots__ = ("consumer_tag", "is_gone", "mailbox", "name")

    def __init__(self, name: str, mailbox: ReplyMailbox, consumer_tag: str) -> None:
        self.name = name
        self.mailbox = mailbox
        self.consumer_tag = consumer_tag
        self.is_gone = False

    def publish(self, message: Message, publisher: object = None) -> bool:  # noqa: ARG002  as queues are published to
        """Deliver a reply if somebody still listens; a reply is never refused."""
        if not self.is_gone:
            self.mailbox.deliver_reply(self.consumer_tag, message)
        return True


class ReplyConsumers:
    """All addresses of one virtual host that were ever given out."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, ReplyConsumer] = {}

    def add(self, consumer: ReplyConsumer) -> None:
        """Give the consumer's address out."""
        self._by_name[consumer.name] = consumer

    def at(self, name: str) -> ReplyConsumer | None:
        """Return who listens or listened at the address; None for an address that was never given out."""
        return self._by_name.get(name)
