"""A channel: what a client publishes, consumes and settles on one channel number.

Owns delivery tags, what is not settled, confirms, returns, prefetch and transactions. Its methods are AMQP's and return
nothing: replies are events in the connection's outbox. Replies come before the deliveries that the same method causes,
for in RabbitMQ those are later messages of the queue's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import direct_reply, errors, events
from queuey_fake.model.arguments import consumer_settings
from queuey_fake.model.dead_letter import delivered_properties
from queuey_fake.model.declaring import DeclaringChannel
from queuey_fake.model.delivery import Consumer, PendingAck, SettlingQueue
from queuey_fake.model.direct_reply import ReplyConsumer
from queuey_fake.model.door import method
from queuey_fake.model.limiter import ChannelLimiter, Waiting
from queuey_fake.model.properties import NO_PROPERTIES, Properties
from queuey_fake.model.publish_faults import Fate
from queuey_fake.model.publishing import published_message
from queuey_fake.model.queue import Queue
from queuey_fake.model.quorum import QuorumQueue
from queuey_fake.model.transaction import Settlement, Transaction
from queuey_fake.model.unacked import Unacked, in_groups

if TYPE_CHECKING:
    from queuey_fake.model.connection import Connection
    from queuey_fake.model.fields import Table
    from queuey_fake.model.message import Message, QueuedMessage
    from queuey_fake.model.vhost import Target


class Channel(DeclaringChannel):
    """One channel of a connection."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number)
        self.consumers: dict[str, tuple[Consumer, Queue]] = {}
        self.limiter = ChannelLimiter(self)
        self.unacked = Unacked()
        self._next_delivery_tag = 1
        self._next_publish_tag = 1
        self._is_confirming = False
        self._transaction: Transaction | None = None
        self._prefetch_count = 0
        self._reply_consumer: ReplyConsumer | None = None
        self._held_back: list[events.Deliver] | None = None
        self._known_queues: dict[Queue, None] = {}

    def release(self) -> None:
        """Give all unsettled deliveries back and forget all consumers, queues of consumers first (notify_queues)."""
        queues = dict.fromkeys(queue for _, queue in self.consumers.values())
        self.consumers = {}
        self.unacked = Unacked()
        for queue in [*queues, *(known for known in self._known_queues if known not in queues)]:
            if not queue.is_deleted:
                queue.channel_closed(self)
        self._known_queues = {}
        self._end_reply_consumer()

    # ------------------------------------------------------------------------------------------------ publishing

    @method(60, 40)
    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties = NO_PROPERTIES,
        body: bytes = b"",
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """basic.publish with its content."""
        if immediate:
            raise errors.immediate()
        target = self._vhost.exchange(exchange)
        if target.internal:
            raise errors.internal_exchange_publish(exchange, self._vhost.name)
        message = published_message(
            next(self._broker.message_numbers),
            exchange,
            routing_key,
            properties,
            body,
            user=self.connection.user,
            reply_queue=self._reply_consumer.name if self._reply_consumer else None,
            version=self._version,
        )
        queues = self._vhost.route(target, message)
        if self._transaction is not None:
            self._transaction.publishes.append((message, queues, mandatory))
            return
        faults = self._broker.publish_faults
        fate = None
        if faults is not None:
            fate = faults.next_fate(is_mandatory=mandatory, is_confirming=self._is_confirming)
            queues = [] if fate is Fate.RETURNED else queues
        is_accepted = fate is not Fate.NACKED and self._deliver_to_queues(message, queues, mandatory=mandatory)
        if self._is_confirming:
            self.turns += 1
            tag = self._next_publish_tag
            self._next_publish_tag = tag + 1
            if fate is not Fate.LAST_UNCONFIRMED:
                # Nothing before it is unconfirmed; RabbitMQ then says so of a refusal (coalesce_and_send), and not of
                # a single confirm (send_confirms).
                self._send(
                    events.Ack(self.number, tag) if is_accepted else events.Nack(self.number, tag, multiple=True)
                )
        if fate is Fate.LAST or fate is Fate.LAST_UNCONFIRMED:
            self._broker.post(lambda broker: broker.lose_connections(), self._broker)

    def _deliver_to_queues(self, message: Message, queues: list[Target], *, mandatory: bool) -> bool:
        """Hand the message to each queue, or return it; return False where a queue refuses it."""
        observer = self._vhost.observer
        if observer is not None:
            observer.report("published", message, queue="", detail="", at_ms=self._vhost.timers.now_ms)
        if not queues:
            if observer is not None:
                what = "returned" if mandatory else "unroutable"
                observer.report(what, message, queue="", detail="", at_ms=self._vhost.timers.now_ms)
            if mandatory:
                self._return(message)
            return True
        is_accepted = True
        for queue in queues:
            if not queue.publish(message, self) and not self._overlooks_refusal_of(queue):
                is_accepted = False
        return is_accepted

    def _overlooks_refusal_of(self, queue: Target) -> bool:
        """Return whether a transaction at its commit completes although the queue refuses.

        A full quorum queue is refused for by the channel itself, and what tx.commit then sets the transaction to hides
        that; a classic queue's refusal comes later (rabbit_quorum_queue:deliver, rabbit_channel:record_rejects).
        """
        return self._held_back is not None and isinstance(queue, QuorumQueue)

    def _return(self, message: Message) -> None:
        self._send(
            events.Return(
                self.number,
                312,
                "NO_ROUTE",
                message.exchange,
                message.routing_key,
                message.properties,
                message.body,
            )
        )

    @method(85, 10)
    def confirm_select(self, *, nowait: bool = False) -> None:
        """confirm.select."""
        if self._transaction is not None:
            raise errors.tx_to_confirm()
        self._is_confirming = True
        if not nowait:
            self._send(events.ConfirmSelectOk(self.number))

    # ------------------------------------------------------------------------------------------------ transactions

    @method(90, 10)
    def tx_select(self) -> None:
        """tx.select."""
        if self._is_confirming:
            raise errors.confirm_to_tx()
        if self._transaction is None:
            self._transaction = Transaction()
        self._send(events.TxSelectOk(self.number))

    @method(90, 20)
    def tx_commit(self) -> None:
        """tx.commit: all publishes first, then the settlements.

        What the channel itself is delivered comes after the reply, and not at all where that closes the channel.
        """
        transaction = self._current_transaction()
        self._transaction = Transaction()
        self._held_back = []
        is_accepted = True
        for message, routed, mandatory in transaction.publishes:
            queues, are_all_there = self._queues_at_commit(message, routed)
            is_accepted = (
                self._deliver_to_queues(message, queues, mandatory=mandatory) and are_all_there and is_accepted
            )
        for settlement in transaction.settlements:
            self._carry_out(settlement.verb, settlement.pending, counts=settlement.counts)
        held_back, self._held_back = self._held_back, None
        if not is_accepted:
            raise errors.partial_tx_completion()
        self._send(events.TxCommitOk(self.number))
        for delivery in held_back:
            self._send(delivery)

    def _queues_at_commit(self, message: Message, routed: list[Target]) -> tuple[list[Target], bool]:
        """Return the queues that the message goes to, and whether it is accepted as far as those that are gone go.

        3.10 has kept their names and looks for them now, also for one that is new (deliver_to_queues). 4.x has kept the
        queues: a classic one that was deleted since refuses the message. Raises ConnectionException where 4.3 does.
        """
        if self._version.tx_looks_for_queues_at_commit:
            if not message.exchange:
                return self._vhost.queues_named(message.routing_keys), True
            return [queue for one in routed if (queue := self._vhost.queues.get(one.name)) is not None], True
        gone = [queue for queue in routed if isinstance(queue, Queue) and queue.is_deleted]
        for queue in gone if self._version.tx_needs_queues_at_commit else []:
            if queue.name not in self._vhost.queues:
                raise errors.undeliverable(queue.name, self._vhost.name)
        return routed, all(isinstance(queue, QuorumQueue) for queue in gone)

    @method(90, 30)
    def tx_rollback(self) -> None:
        """tx.rollback: what was settled in the transaction is unsettled again."""
        transaction = self._current_transaction()
        self._transaction = Transaction()
        for settlement in transaction.settlements:
            self.unacked.put_back(settlement.pending)
        self._send(events.TxRollbackOk(self.number))

    def _current_transaction(self) -> Transaction:
        if self._transaction is None:
            raise errors.not_transactional()
        return self._transaction

    # ------------------------------------------------------------------------------------------------ consuming

    @method(60, 10)
    def basic_qos(self, prefetch_count: int = 0, *, prefetch_size: int = 0, global_: bool = False) -> None:
        """basic.qos: for consumers that start later, or with `global_` a limit that the channel's consumers share."""
        if prefetch_size:
            raise errors.prefetch_size(prefetch_size)
        self._send(events.QosOk(self.number))
        if self._version.qos_global_is_per_consumer:
            self._prefetch_count = prefetch_count
            return
        if global_ and prefetch_count:
            was_limited = self.limiter.is_active
            self.limiter.limit(prefetch_count, len(self.unacked))
            if not was_limited:
                for queue in self._consumed_queues():
                    queue.activate_limit(self)
            return
        if not global_:
            self._prefetch_count = prefetch_count
        if (
            self.limiter.is_active
        ):  # lifted by any later qos, for running consumers too (scenario fact_qos_global_lifted)
            self.limiter.unlimit()
            for queue in self._consumed_queues():
                queue.lift_limit(self)

    def _consumed_queues(self) -> list[Queue]:
        return list(dict.fromkeys(queue for _, queue in self.consumers.values()))

    @method(60, 20)
    def basic_consume(
        self,
        queue: str = "",
        consumer_tag: str = "",
        *,
        no_local: bool = False,  # noqa: ARG002  RabbitMQ does not implement it either
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Table | None = None,
        nowait: bool = False,
    ) -> None:
        """basic.consume."""
        name = self._named(queue)
        if consumer_tag in self.consumers:
            raise errors.consumer_tag_reused(consumer_tag)
        if name == direct_reply.PSEUDO_QUEUE:
            self._consume_replies(consumer_tag, no_ack=no_ack, nowait=nowait)
            return
        self._vhost.check_reply_address_is_free(name, self)
        consumed = self._vhost.accessible_queue(name, self.connection)
        settings = consumer_settings(
            arguments or {},
            queue=name,
            queue_type=consumed.settings.queue_type,
            vhost=self._vhost.name,
            version=self._version,
        )
        consumed.check_consumer(exclusive=exclusive)
        tag = consumer_tag or self._broker.names.consumer_tag()
        consumer = Consumer(self, tag, no_ack, self._prefetch_count, settings.priority, exclusive)
        self.consumers[tag] = (consumer, consumed)
        self._known_queues[consumed] = None
        consumed.add_consumer(consumer)
        if not nowait:
            self._send(events.ConsumeOk(self.number, tag))
        consumed.run()

    @method(60, 30)
    def basic_cancel(self, consumer_tag: str, *, nowait: bool = False) -> None:
        """basic.cancel; an unknown tag is no error."""
        if not nowait:
            self._send(events.CancelOk(self.number, consumer_tag))
        if self._reply_consumer is not None and self._reply_consumer.consumer_tag == consumer_tag:
            self._end_reply_consumer()
            return
        found = self.consumers.pop(consumer_tag, None)
        if found is not None:
            consumer, queue = found
            queue.remove_consumer(consumer)

    @method(60, 70)
    def basic_get(self, queue: str = "", *, no_ack: bool = False) -> None:
        """basic.get; it renews the queue's lease even when there is nothing."""
        name = self._named(queue)
        if self._vhost.is_reply_queue(name):
            raise errors.get_from_reply_address(name, self._vhost.name)
        source = self._vhost.accessible_queue(name, self.connection)
        queued = source.get(no_ack=no_ack)
        if queued is None:
            self._send(events.GetEmpty(self.number))
            return
        tag = self._next_delivery_tag
        self._next_delivery_tag = tag + 1
        if not no_ack:
            pending = PendingAck(tag, None, source, queued)
            self.unacked.add(pending)
            source.hold_unacked(self, pending)
            self._known_queues[source] = None
        message = queued.message
        properties = message.properties
        if message.deaths is not None or queued.annotations is not None:
            properties = delivered_properties(message, queued.annotations)
        self._send(
            events.GetOk(
                self.number,
                tag,
                queued.redelivered,
                message.exchange,
                message.routing_key,
                source.ready.count,
                properties,
                message.body,
            )
        )

    # direct replies

    def _consume_replies(self, consumer_tag: str, *, no_ack: bool, nowait: bool) -> None:
        if not no_ack:
            raise errors.reply_consumer_acknowledges()
        if self._reply_consumer is not None:
            raise errors.reply_consumer_set()
        tag = consumer_tag or self._broker.names.consumer_tag()
        self._reply_consumer = ReplyConsumer(self._broker.names.reply_queue(), self, tag)
        self._vhost.replies.add(self._reply_consumer)
        if not nowait:
            self._send(events.ConsumeOk(self.number, tag))

    def _end_reply_consumer(self) -> None:
        if self._reply_consumer is not None:
            self._reply_consumer.is_gone = True
            self._reply_consumer = None

    def deliver_reply(self, consumer_tag: str, message: Message) -> None:
        """Send a direct reply to the consumer. Before 4.3 replies do not use delivery tags up (rabbit_channel)."""
        tag = self._next_delivery_tag
        if not self._version.reply_to_returns_mandatory:
            self._next_delivery_tag = tag + 1
        self._send_delivery(consumer_tag, tag, message, delivered_properties(message), is_redelivered=False)

    # what queues say (delivery.Mailbox)

    @property
    def is_limited(self) -> bool:
        """Whether the channel's consumers share a limit."""
        return self.limiter.is_active

    def take_room(self, queue: SettlingQueue, *, ack_required: bool) -> bool:
        """Take room for one delivery under the shared limit, or note that the queue waits for some; return which."""
        return self.limiter.take_room(queue, ack_required=ack_required)

    def deliver(self, consumer: Consumer, queued: QueuedMessage) -> PendingAck | None:
        """Send a message to the consumer; return what is to be settled, None where nothing is."""
        tag = self._next_delivery_tag
        self._next_delivery_tag = tag + 1
        message = queued.message
        properties = message.properties
        if message.deaths is not None or queued.annotations is not None:
            properties = delivered_properties(message, queued.annotations)
        self._send_delivery(consumer.tag, tag, message, properties, is_redelivered=queued.redelivered)
        queue = self.consumers[consumer.tag][1]
        if consumer.no_ack and not (self.connection.is_refused and queue.is_settled_by_channels):
            return None
        pending = PendingAck(tag, consumer.tag, queue, queued)
        self.unacked.add(pending)
        return pending

    def _send_delivery(
        self, consumer_tag: str, delivery_tag: int, message: Message, properties: Properties, *, is_redelivered: bool
    ) -> None:
        delivery = events.Deliver(
            self.number,
            consumer_tag,
            delivery_tag,
            is_redelivered,
            message.exchange,
            message.routing_key,
            properties,
            message.body,
        )
        if self._held_back is None:
            self._send(delivery)
        else:
            self._held_back.append(delivery)

    def consumer_gone(self, consumer: Consumer) -> None:
        """Hear that the queue of a consumer is gone; the client is told if it understands that."""
        if (
            self.consumers.pop(consumer.tag, None) is not None
            and "consumer_cancel_notify" in self.connection.capabilities
        ):
            self._send(events.Cancel(self.number, consumer.tag))

    def known_to(self, queue: Queue) -> None:
        """Hear that a queue knows the channel, and wants to hear of its end."""
        self._known_queues[queue] = None

    def queue_gone(self, queue: Queue) -> None:
        """Hear that a queue is gone that knew the channel."""
        self._known_queues.pop(queue, None)

    # ------------------------------------------------------------------------------------------------ settling

    @method(60, 80)
    def basic_ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """basic.ack."""
        self._settle("acknowledge", self.unacked.take(delivery_tag, multiple=multiple))

    @method(60, 120)
    def basic_nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack; in 4.3, unlike basic.reject, it raises no delivery count (scenario quorum_delivery_limit)."""
        self._settle("requeue" if requeue else "discard", self.unacked.take(delivery_tag, multiple=multiple))

    @method(60, 90)
    def basic_reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """basic.reject."""
        verb = "requeue" if requeue else "discard"
        counts = self._version.redelivered_if_delivery_count
        self._settle(verb, self.unacked.take(delivery_tag, multiple=False), counts=counts)

    @method(60, 110)
    def basic_recover(self, *, requeue: bool = False) -> None:
        """basic.recover: everything that is not settled goes back to its queue."""
        self._recover(requeue=requeue, is_synchronous=True)

    @method(60, 100)
    def basic_recover_async(self, *, requeue: bool = False) -> None:
        """basic.recover-async: basic.recover without a reply."""
        self._recover(requeue=requeue, is_synchronous=False)

    def _recover(self, *, requeue: bool, is_synchronous: bool) -> None:
        if not requeue:
            raise errors.recover_without_requeue()
        if is_synchronous:
            self._send(events.RecoverOk(self.number))
        self._carry_out("requeue", self.unacked.take_all(), counts=False)

    def _settle(self, verb: str, pending: list[PendingAck], *, counts: bool = False) -> None:
        if self._transaction is None:
            self._carry_out(verb, pending, counts=counts)
        else:
            self._transaction.settle(Settlement(verb, counts, pending))

    def _carry_out(self, verb: str, pending: list[PendingAck], *, counts: bool) -> None:
        """Give the room under the shared limit back and settle group by group (settle_acks, internal_reject).

        RabbitMQ's channel does it the other way round, but asks nobody to answer: its limiter has the room back before
        a queue has settled what it was told to and asks for some (transcript qos_global_requeue_keeps_room).
        """
        waiting: Waiting = ()
        if self.limiter.prefetch_count:
            delivered = sum(one.consumer_tag is not None for one in pending)
            if delivered:
                waiting = self.limiter.give_room(delivered)
        for group in in_groups(pending):
            queue = group[0].queue
            if verb == "acknowledge":
                queue.acknowledge(self, group)
            elif verb == "requeue":
                queue.requeue(self, group, counts=counts)
            else:
                queue.discard(self, group, counts=counts)
        self.limiter.wake(waiting)
