"""A channel: AMQP's methods, as one client may call them on one channel number.

Owns delivery tags, what is not settled, confirms, returns, prefetch, transactions, and the queue that was declared
last. Every method goes through one door (`_method`), which drops calls on a channel that is closing, turns a refusal
into the event that closes the channel or the connection, and delivers what the queues posted to each other.

Methods return nothing: replies are events in the connection's outbox. Replies come before the deliveries that the same
method causes, for in RabbitMQ those are later messages of the queue's process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Concatenate, ParamSpec, cast

from queuey_fake.model import errors, events
from queuey_fake.model.arguments import QueueProperties, consumer_settings
from queuey_fake.model.bindings import Destination
from queuey_fake.model.dead_letter import delivered_properties
from queuey_fake.model.delivery import Consumer, PendingAck, SettlingQueue
from queuey_fake.model.errors import AmqpException, ConnectionException
from queuey_fake.model.limiter import ChannelLimiter
from queuey_fake.model.properties import NO_PROPERTIES, Properties
from queuey_fake.model.publishing import published_message
from queuey_fake.model.transaction import Settlement, Transaction
from queuey_fake.model.unacked import Unacked, in_groups

if TYPE_CHECKING:
    from queuey_fake.model.connection import Connection
    from queuey_fake.model.fields import Table
    from queuey_fake.model.message import Message, QueuedMessage
    from queuey_fake.model.queue import Queue

_P = ParamSpec("_P")


class ChannelState(Enum):
    """Where a channel is between channel.open and the end of its close."""

    OPEN = "open"
    CLOSING = "closing"  # the broker sent channel.close and waits for the client's close-ok
    CLOSED = "closed"


def _method(
    class_id: int, method_id: int
) -> Callable[[Callable[Concatenate[Channel, _P], None]], Callable[Concatenate[Channel, _P], None]]:
    """Make a function the body of an AMQP method of these ids, entered through the door of the model."""

    def door(body: Callable[Concatenate[Channel, _P], None]) -> Callable[Concatenate[Channel, _P], None]:
        @functools.wraps(body)
        def method(self: Channel, *args: _P.args, **kwargs: _P.kwargs) -> None:
            if self.state is not ChannelState.OPEN:
                return
            try:
                body(self, *args, **kwargs)
            except AmqpException as refusal:
                self._refused(refusal, class_id, method_id)
            if self._broker.mail:
                self._broker.deliver_mail()

        return cast("Callable[Concatenate[Channel, _P], None]", method)

    return door


class Channel:
    """One channel of a connection."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.state = ChannelState.OPEN
        self.consumers: dict[str, tuple[Consumer, Queue]] = {}
        self.limiter = ChannelLimiter(self)
        self.unacked = Unacked()
        self._broker = connection.broker
        self._vhost = connection.vhost
        self._version = connection.broker.version
        self._send = connection.send
        self._next_delivery_tag = 1
        self._next_publish_tag = 1
        self._is_confirming = False
        self._transaction: Transaction | None = None
        self._prefetch_count = 0
        self._last_declared_queue = ""
        self._known_queues: dict[Queue, None] = {}

    # ------------------------------------------------------------------------------------------------ the channel

    def close(self) -> None:
        """channel.close: what is not settled goes back; the reply follows, also where the broker is closing already."""
        if self.state is ChannelState.CLOSED:
            return
        if self.state is ChannelState.OPEN:
            self.release()
            self.state = ChannelState.CLOSED
            self.connection.forget(self)
        self._send(events.ChannelCloseOk(self.number))
        self._broker.deliver_mail()

    def close_ok(self) -> None:
        """channel.close-ok: the client has seen the broker's close; the number may be opened again."""
        if self.state is ChannelState.CLOSING:
            self.state = ChannelState.CLOSED
            self.connection.forget(self)

    @_method(20, 20)
    def flow(self, *, active: bool) -> None:
        """channel.flow."""
        if not active:
            raise errors.flow_inactive()
        self._send(events.FlowOk(self.number, active=True))

    def release(self) -> None:
        """Give all unsettled deliveries back and forget all consumers, queues of consumers first (notify_queues)."""
        queues = dict.fromkeys(queue for _, queue in self.consumers.values())
        self.consumers = {}
        self.unacked = Unacked()
        for queue in [*queues, *(known for known in self._known_queues if known not in queues)]:
            if not queue.is_deleted:
                queue.channel_closed(self)
        self._known_queues = {}

    def _refused(self, refusal: AmqpException, class_id: int, method_id: int) -> None:
        if isinstance(refusal, ConnectionException):
            self.connection.refuse(refusal, class_id, method_id)
            return
        self.state = ChannelState.CLOSING
        self.release()
        self._send(events.ChannelClose(self.number, refusal.code, refusal.text, class_id, method_id))

    # ------------------------------------------------------------------------------------------------ exchanges

    @_method(40, 10)
    def exchange_declare(
        self,
        exchange: str,
        type_: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        nowait: bool = False,
    ) -> None:
        """exchange.declare."""
        exchange = _without_line_ends(exchange)
        if passive:
            self._vhost.check_exchange(exchange)
        else:
            self._vhost.declare_exchange(
                exchange,
                type_,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments or {},
            )
        if not nowait:
            self._send(events.ExchangeDeclareOk(self.number))

    @_method(40, 20)
    def exchange_delete(self, exchange: str, *, if_unused: bool = False, nowait: bool = False) -> None:
        """exchange.delete."""
        self._vhost.delete_exchange(_without_line_ends(exchange), if_unused=if_unused)
        if not nowait:
            self._send(events.ExchangeDeleteOk(self.number))

    @_method(40, 30)
    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
        nowait: bool = False,
    ) -> None:
        """exchange.bind."""
        self._vhost.bind(
            _without_line_ends(source),
            Destination("exchange", _without_line_ends(destination)),
            routing_key=routing_key,
            arguments=arguments or {},
            connection=self.connection,
        )
        if not nowait:
            self._send(events.ExchangeBindOk(self.number))

    @_method(40, 40)
    def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
        nowait: bool = False,
    ) -> None:
        """exchange.unbind."""
        self._vhost.unbind(
            _without_line_ends(source),
            Destination("exchange", _without_line_ends(destination)),
            routing_key=routing_key,
            arguments=arguments or {},
        )
        if not nowait:
            self._send(events.ExchangeUnbindOk(self.number))

    # ------------------------------------------------------------------------------------------------ queues

    @_method(50, 10)
    def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        nowait: bool = False,
    ) -> None:
        """queue.declare; passive or not, it renews the lease of a queue that there is."""
        queue = _without_line_ends(queue)
        if passive:
            # The lease is renewed before exclusive access is checked (rabbit_channel: with_or_die, then check).
            self._vhost.queue(queue).renew_lease()
            declared = self._vhost.accessible_queue(queue, self.connection)
        else:
            # An exclusive queue ends with its connection, so RabbitMQ takes it for transient (scenario
            # fact_excl_durable2).
            properties = QueueProperties(
                durable=durable and not exclusive,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments or {},
            )
            declared = self._vhost.declare_queue(queue, properties, self.connection)
        self._last_declared_queue = declared.name
        if not nowait:
            ready, consumers = len(declared.ready), declared.consumers.count
            self._send(events.QueueDeclareOk(self.number, declared.name, ready, consumers))

    @_method(50, 20)
    def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: Table | None = None, nowait: bool = False
    ) -> None:
        """queue.bind."""
        queue, routing_key = self._named_for_binding(queue, routing_key)
        self._vhost.bind(
            _without_line_ends(exchange),
            Destination("queue", _without_line_ends(queue)),
            routing_key=routing_key,
            arguments=arguments or {},
            connection=self.connection,
        )
        if not nowait:
            self._send(events.QueueBindOk(self.number))

    @_method(50, 50)
    def queue_unbind(self, queue: str, exchange: str, routing_key: str = "", *, arguments: Table | None = None) -> None:
        """queue.unbind; RabbitMQ does not look at who owns the queue."""
        queue, routing_key = self._named_for_binding(queue, routing_key)
        self._vhost.unbind(
            _without_line_ends(exchange),
            Destination("queue", _without_line_ends(queue)),
            routing_key=routing_key,
            arguments=arguments or {},
        )
        self._send(events.QueueUnbindOk(self.number))

    @_method(50, 30)
    def queue_purge(self, queue: str = "", *, nowait: bool = False) -> None:
        """queue.purge."""
        count = self._vhost.accessible_queue(self._named(queue), self.connection).purge()
        if not nowait:
            self._send(events.QueuePurgeOk(self.number, count))

    @_method(50, 40)
    def queue_delete(
        self, queue: str = "", *, if_unused: bool = False, if_empty: bool = False, nowait: bool = False
    ) -> None:
        """queue.delete; to delete what there is not is no error."""
        queue = _without_line_ends(self._named(queue))
        count = 0
        if queue in self._vhost.queues:
            doomed = self._vhost.accessible_queue(queue, self.connection)
            count = doomed.delete(if_unused=if_unused, if_empty=if_empty)
        if not nowait:
            self._send(events.QueueDeleteOk(self.number, count))

    def _named(self, queue: str) -> str:
        """Return the name; an empty one stands for the queue declared last (expand_queue_name_shortcut)."""
        if queue:
            return queue
        if not self._last_declared_queue:
            raise errors.no_previously_declared_queue()
        return self._last_declared_queue

    def _named_for_binding(self, queue: str, routing_key: str) -> tuple[str, str]:
        """Return queue and routing key; where both are empty, the key is the name too (expand_routing_key_shortcut)."""
        named = self._named(queue)
        return named, (named if not queue and not routing_key else routing_key)

    # ------------------------------------------------------------------------------------------------ publishing

    @_method(60, 40)
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
            self._broker.next_message_number(),
            exchange,
            routing_key,
            properties,
            body,
            user=self.connection.user,
            reply_queue=None,
            version=self._version,
        )
        queues = self._vhost.route(target, message)
        if self._transaction is not None:
            self._transaction.publishes.append((message, queues, mandatory))
            return
        is_accepted = self._deliver_to_queues(message, queues, mandatory=mandatory)
        if self._is_confirming:
            tag = self._next_publish_tag
            self._next_publish_tag = tag + 1
            self._send(events.Ack(self.number, tag) if is_accepted else events.Nack(self.number, tag))

    def _deliver_to_queues(self, message: Message, queues: list[Queue], *, mandatory: bool) -> bool:
        """Hand the message to each queue, or return it; return False where a queue refuses it."""
        observer = self._vhost.observer
        if observer is not None:
            self._report("published", message)
        if not queues:
            if observer is not None:
                self._report("returned" if mandatory else "unroutable", message)
            if mandatory:
                self._return(message)
            return True
        is_accepted = True
        for queue in queues:
            is_accepted = queue.publish(message) and is_accepted
        return is_accepted

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

    def _report(self, what: str, message: Message) -> None:
        observer = self._vhost.observer
        if observer is not None:
            observer.report(what, message, queue="", detail="", at_ms=self._vhost.timers.now_ms)

    @_method(85, 10)
    def confirm_select(self, *, nowait: bool = False) -> None:
        """confirm.select."""
        if self._transaction is not None:
            raise errors.tx_to_confirm()
        self._is_confirming = True
        if not nowait:
            self._send(events.ConfirmSelectOk(self.number))

    # ------------------------------------------------------------------------------------------------ transactions

    @_method(90, 10)
    def tx_select(self) -> None:
        """tx.select."""
        if self._is_confirming:
            raise errors.confirm_to_tx()
        if self._transaction is None:
            self._transaction = Transaction()
        self._send(events.TxSelectOk(self.number))

    @_method(90, 20)
    def tx_commit(self) -> None:
        """tx.commit: all publishes first, then the settlements."""
        transaction = self._current_transaction()
        self._transaction = Transaction()
        is_accepted = True
        for message, queues, mandatory in transaction.publishes:
            is_accepted = self._deliver_to_queues(message, queues, mandatory=mandatory) and is_accepted
        for settlement in transaction.settlements:
            self._carry_out(settlement)
        if not is_accepted:
            raise errors.partial_tx_completion()
        self._send(events.TxCommitOk(self.number))

    @_method(90, 30)
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

    @_method(60, 10)
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

    @_method(60, 20)
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

    @_method(60, 30)
    def basic_cancel(self, consumer_tag: str, *, nowait: bool = False) -> None:
        """basic.cancel; an unknown tag is no error."""
        if not nowait:
            self._send(events.CancelOk(self.number, consumer_tag))
        found = self.consumers.pop(consumer_tag, None)
        if found is not None:
            consumer, queue = found
            queue.remove_consumer(consumer)

    @_method(60, 70)
    def basic_get(self, queue: str = "", *, no_ack: bool = False) -> None:
        """basic.get; it renews the queue's lease even when there is nothing."""
        source = self._vhost.accessible_queue(self._named(queue), self.connection)
        queued = source.get()
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
        properties = message.properties if message.deaths is None else delivered_properties(message)
        self._send(
            events.GetOk(
                self.number,
                tag,
                queued.redelivered,
                message.exchange,
                message.routing_key,
                len(source.ready),
                properties,
                message.body,
            )
        )

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
        properties = message.properties if message.deaths is None else delivered_properties(message)
        self._send(
            events.Deliver(
                self.number,
                consumer.tag,
                tag,
                queued.redelivered,
                message.exchange,
                message.routing_key,
                properties,
                message.body,
            )
        )
        if consumer.no_ack:
            return None
        pending = PendingAck(tag, consumer.tag, self.consumers[consumer.tag][1], queued)
        self.unacked.add(pending)
        return pending

    def consumer_gone(self, consumer: Consumer) -> None:
        """Hear that the queue of a consumer is gone; the client is told if it understands that."""
        if (
            self.consumers.pop(consumer.tag, None) is not None
            and "consumer_cancel_notify" in self.connection.capabilities
        ):
            self._send(events.Cancel(self.number, consumer.tag))

    def queue_gone(self, queue: Queue) -> None:
        """Hear that a queue is gone that knew the channel."""
        self._known_queues.pop(queue, None)

    # ------------------------------------------------------------------------------------------------ settling

    @_method(60, 80)
    def basic_ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """basic.ack."""
        self._settle("acknowledge", self.unacked.take(delivery_tag, multiple=multiple))

    @_method(60, 120)
    def basic_nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack; unlike basic.reject it raises no delivery count (scenario dlx_redelivered_*)."""
        self._settle("requeue" if requeue else "discard", self.unacked.take(delivery_tag, multiple=multiple))

    @_method(60, 90)
    def basic_reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """basic.reject."""
        verb = "requeue" if requeue else "discard"
        self._settle(verb, self.unacked.take(delivery_tag, multiple=False), counts=True)

    @_method(60, 110)
    def basic_recover(self, *, requeue: bool = False) -> None:
        """basic.recover: everything that is not settled goes back to its queue."""
        self._recover(requeue=requeue, is_synchronous=True)

    @_method(60, 100)
    def basic_recover_async(self, *, requeue: bool = False) -> None:
        """basic.recover-async: basic.recover without a reply."""
        self._recover(requeue=requeue, is_synchronous=False)

    def _recover(self, *, requeue: bool, is_synchronous: bool) -> None:
        if not requeue:
            raise errors.recover_without_requeue()
        if is_synchronous:
            self._send(events.RecoverOk(self.number))
        self._carry_out(Settlement("requeue", counts=False, pending=self.unacked.take_all()))

    def _settle(self, verb: str, pending: list[PendingAck], *, counts: bool = False) -> None:
        settlement = Settlement(verb, counts, pending)
        if self._transaction is None:
            self._carry_out(settlement)
        else:
            self._transaction.settle(settlement)

    def _carry_out(self, settlement: Settlement) -> None:
        """Settle group by group, then give the room under the shared limit back (settle_acks, internal_reject)."""
        for group in in_groups(settlement.pending):
            queue = group[0].queue
            if settlement.verb == "acknowledge":
                queue.acknowledge(self, group)
            elif settlement.verb == "requeue":
                queue.requeue(self, group, counts=settlement.counts)
            else:
                queue.discard(self, group, counts=settlement.counts)
        if self.limiter.is_active:
            delivered = sum(one.consumer_tag is not None for one in settlement.pending)
            if delivered:
                self.limiter.give_room(delivered)


def _without_line_ends(name: str) -> str:
    """Return the name as RabbitMQ takes it in declarations and bindings (strip_cr_lf)."""
    return name.replace("\n", "").replace("\r", "") if "\n" in name or "\r" in name else name
