"""A virtual host: its exchanges, queues and bindings, and the way of a message from one to the others.

Owns declaring, deleting and binding with their checks, routing over exchanges behind exchanges and alternate exchanges,
and what goes with a queue or exchange that goes. Knows no channel and writes no reply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from queuey_fake.model import arguments as queue_arguments
from queuey_fake.model import dead_letter, direct_reply, errors, exchanges
from queuey_fake.model.arguments import QueueProperties
from queuey_fake.model.bindings import Binding, Bindings, Destination
from queuey_fake.model.direct_reply import ReplyConsumer, ReplyConsumers
from queuey_fake.model.fields import Table, octets_of
from queuey_fake.model.message import Message
from queuey_fake.model.names import Names
from queuey_fake.model.queue import Queue, QueueIdentity
from queuey_fake.model.quorum import new_queue

if TYPE_CHECKING:
    from queuey_fake.model.exchanges import Exchange
    from queuey_fake.model.observer import Observer
    from queuey_fake.model.timers import Timers
    from queuey_fake.model.versions import Version

# How often a message may be dead-lettered at one instant. 3.10 turns x-death round and so misses cycles, in which it
# sends a message round and round without end; in a model that would never return, the message is dropped there.
MAX_HOPS = 1000

Target = Queue | ReplyConsumer
Post = Callable[[Callable[[Any], object], Any], None]


class VHost:
    """One virtual host. `post` has a call made after the operation at work is done, in order of posting."""

    def __init__(self, name: str, *, timers: Timers, version: Version, names: Names, post: Post) -> None:
        self.name = name
        self.timers = timers
        self.version = version
        self.observer: Observer | None = None
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.bindings = Bindings()
        self.replies = ReplyConsumers()
        self._names = names
        self._post = post
        for exchange in exchanges.predeclared_exchanges(version):
            self.exchanges[exchange.name] = exchange

    # ------------------------------------------------------------------------------------------------ routing

    def exchange(self, name: str) -> Exchange:
        """Return the exchange. Raises ChannelException where there is none."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise errors.not_found("exchange", name, self.name)
        return exchange

    def has_exchange(self, name: str) -> bool:
        """Return whether there is such an exchange."""
        return name in self.exchanges

    def route(self, exchange: Exchange, message: Message) -> list[Target]:
        """Return the queues that get the message, each once, in the order in which they get it (rabbit_exchange:route).

        That is by their names: backwards, but forwards from RabbitMQ 4 on where an exchange other than the default
        one leads to them (the lists on the way are turned round three or four times). Direct replies are on their way
        with that where they do not count as routed. Raises ConnectionException.
        """
        if not exchange.name:
            if not message.other_keys and (queue := self.queues.get(message.routing_key)) is not None:
                return [queue]
            return [*self.queues_named(message.routing_keys), *self._reply_consumers(message)]
        seen = {exchange.name}
        work = [exchange]
        found: set[str] = set()
        while work:
            for kind, name in self._destinations(work.pop(), message):
                if kind == "queue":
                    found.add(name)
                elif name not in seen:
                    seen.add(name)
                    if name in self.exchanges:
                        work.append(self.exchanges[name])
        in_order = sorted(found, key=octets_of, reverse=not self.version.message_containers)
        return [self.queues[name] for name in in_order]

    def queues_named(self, names: Iterable[str]) -> list[Target]:
        """Return the queues of these names, each once, in the order in which the default exchange leads to them."""
        in_order = sorted(set(names), key=octets_of, reverse=True)
        return [queue for name in in_order if (queue := self.queues.get(name)) is not None]

    def _reply_consumers(self, message: Message) -> list[Target]:
        is_dead = message.died_at_ms is not None
        if is_dead and not self.version.dead_letters_are_replies:
            return []
        found: list[Target] = []
        for key in sorted(set(message.routing_keys), key=octets_of, reverse=True):
            if not key.startswith(direct_reply.PREFIX):
                continue
            consumer = self.replies.at(key)
            if consumer is None:
                if not is_dead and self.version.reply_to_returns_mandatory and direct_reply.crashes_its_reader(key):
                    raise errors.internal_error()
            elif self.version.reply_to_returns_mandatory:
                self._post(consumer.publish, message)  # beside the queues: it does not count as routed
            else:
                found.append(consumer)
        return found

    def _destinations(self, exchange: Exchange, message: Message) -> Collection[Destination]:
        headers = dead_letter.routing_headers(message) if exchange.type == "headers" else None
        found = exchange.matcher.match(message.routing_keys, headers)
        if not found and exchange.alternate_exchange is not None:
            return (Destination("exchange", exchange.alternate_exchange),)
        return found

    def dead_letter(self, message: Message, queue: Queue, *, reason: str, delivery_count: int) -> None:
        """Route a dead message through the queue's dead-letter exchange; it arrives after this operation."""
        exchange = queue.settings.dead_letter_exchange
        assert exchange is not None, "dead-lettering from a queue without a dead-letter exchange"
        try:
            dead = dead_letter.dead_lettered(
                message,
                reason=reason,
                queue=queue.name,
                exchange=exchange,
                routing_key=queue.settings.dead_letter_routing_key,
                delivery_count=delivery_count,
                now_ms=self.timers.now_ms,
                version=self.version,
            )
        except dead_letter.MalformedDeathError:
            self._report("dropped", message, queue.name, f"{reason}, with an x-death that is no table of deaths")
            if not queue.is_settled_by_channels:
                self.queue_crashed(queue)  # a classic queue's process dies of it (scenario x_death_crashes_queue)
            return
        if dead.hops > MAX_HOPS:
            self._report("dropped", dead, queue.name, "a dead-letter cycle without end")
            return
        targets = self.route(self.exchanges[exchange], dead)
        is_cycle = dead_letter.cycle_check(dead, reason) if targets else None
        for target in targets:
            if is_cycle is not None and is_cycle(target.name):
                self._report("dropped", dead, target.name, "dead-letter cycle")
                continue
            self._report("dead-lettered", dead, target.name, reason)
            self._post(target.publish, dead)
        if not targets:
            self._report("dropped", dead, queue.name, f"{reason}, and the dead-letter exchange leads to no queue")

    def _report(self, what: str, message: Message, queue: str, detail: str) -> None:
        if self.observer is not None:
            self.observer.report(what, message, queue=queue, detail=detail, at_ms=self.timers.now_ms)

    # ------------------------------------------------------------------------------------------------ queues

    def queue(self, name: str) -> Queue:
        """Return the queue. Raises ChannelException where there is none."""
        queue = self.queues.get(name)
        if queue is None:
            raise errors.not_found("queue", name, self.name)
        return queue

    def accessible_queue(self, name: str, connection: object) -> Queue:
        """Return the queue. Raises ChannelException where there is none or it is another connection's."""
        queue = self.queue(name)
        if queue.owner is not None and queue.owner is not connection:
            raise errors.resource_locked(name, self.name)
        return queue

    def declare_queue(self, name: str, properties: QueueProperties, connection: object, *, renews_lease: bool) -> Queue:
        """Return the queue, made if there was none; an empty name asks for a made-up one.

        A declaration that wants no answer renews no lease, for RabbitMQ then does not ask the queue (maybe_stat).
        Raises ChannelException or ConnectionException for what is refused or differs from the first declaration.
        """
        if not name:
            queue_arguments.check_server_named(properties.arguments, version=self.version)
            name = self._names.queue()
        elif name.startswith("amq."):
            raise errors.reserved_prefix("queue", name)
        owner = connection if properties.exclusive else None
        current = self.queues.get(name)
        if current is not None:
            if current.owner is not owner:
                raise errors.resource_locked(name, self.name)
            queue_arguments.assert_equivalent(
                current.identity.properties, properties, queue=name, vhost=self.name, version=self.version
            )
            if renews_lease:
                current.declared_again()
            return current
        settings = queue_arguments.queue_settings(properties, queue=name, vhost=self.name, version=self.version)
        queue = new_queue(QueueIdentity(name, properties, settings, owner), self)
        self.queues[name] = queue
        return queue

    def check_reply_address(self, name: str) -> None:
        """Raise ChannelException or ConnectionException unless somebody listens for direct replies at the address.

        The pseudo queue itself can always be declared.
        """
        if name == direct_reply.PSEUDO_QUEUE:
            return
        consumer = self.replies.at(name)
        always_crashes = self.version.malformed_reply_to_is_internal_error
        if consumer is None and (always_crashes or direct_reply.crashes_its_reader(name)):
            raise errors.internal_error()
        if consumer is None or consumer.is_gone:
            raise errors.not_found("queue", name, self.name)

    def is_reply_queue(self, name: str) -> bool:
        """Return whether this RabbitMQ takes the name for a queue of direct replies, whoever listens there."""
        return self.version.reply_addresses_are_queues and self.replies.at(name) is not None

    def check_reply_address_is_free(self, name: str, channel: object) -> None:
        """Raise ChannelException where the name is a queue of direct replies: it has its one consumer."""
        if self.is_reply_queue(name):
            consumer = self.replies.at(name)
            is_own = consumer is not None and consumer.mailbox is channel and not consumer.is_gone
            raise (errors.reply_address_consumed if is_own else errors.reply_address_of_another)(name, self.name)

    def queue_stopped(self, queue: Queue) -> None:
        """Take a queue out that is gone, with its bindings, and tell the channels that know it."""
        del self.queues[queue.name]
        self._unbind_destination(Destination("queue", queue.name))
        self._tell_of_end(queue)

    def queue_crashed(self, queue: Queue) -> None:
        """Put another queue in the place of one that crashed: the persistent messages stay, the consumers do not."""
        if queue.is_deleted:
            return  # two messages of one operation were each enough
        outlived = queue.abandon()
        for queued in outlived:
            queued.redelivered = True  # they all count as delivered
        self._tell_of_end(queue)
        queue.dismiss()  # it may be amid an operation, which is to find nothing more to do
        queue.ready.clear()
        self.queues[queue.name] = new_queue(queue.identity, self)
        self.queues[queue.name].recover(outlived)

    def queue_restarted(self, queue: Queue) -> None:
        """Put another queue in the place of one that went down in good order, with the persistent messages."""
        outlived = queue.abandon()
        if self.version.redelivered_if_delivery_count:
            for queued in outlived:
                queued.redelivered = queued.delivery_count > 0
        fresh = self.queues[queue.name] = new_queue(queue.identity, self)
        fresh.recover(outlived)

    def forget_transient(self) -> None:
        """Take out the exchanges that are not durable, with their bindings."""
        for exchange in [exchange for exchange in self.exchanges.values() if not exchange.durable]:
            if exchange.name in self.exchanges:  # one that goes can take others with it
                self._remove_exchange(exchange.name)

    def _tell_of_end(self, queue: Queue) -> None:
        consumers = [*queue.consumers.active]
        for record in queue.consumers.records.values():
            consumers += record.blocked
        for consumer in sorted(consumers, key=lambda each: octets_of(each.tag)):
            self._post(consumer.mailbox.consumer_gone, consumer)
        for mailbox in queue.consumers.records:
            mailbox.queue_gone(queue)

    # ------------------------------------------------------------------------------------------------ exchanges

    def declare_exchange(
        self, name: str, type_: str, *, durable: bool, auto_delete: bool, internal: bool, arguments: Table
    ) -> None:
        """Make the exchange, or compare with the one there is."""
        exchanges.check_type(type_, version=self.version)
        if not name:
            raise errors.default_exchange_operation()
        current = self.exchanges.get(name)
        if current is None:
            if name.startswith("amq."):
                raise errors.reserved_prefix("exchange", name)
            self.exchanges[name] = exchanges.new_exchange(
                name,
                type_,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
                vhost=self.name,
                version=self.version,
            )
            return
        exchanges.assert_equivalent(
            current,
            type_=type_,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
            vhost=self.name,
        )

    def check_exchange(self, name: str) -> None:
        """Raise ChannelException unless there is such an exchange, and not the default one (passive declaration)."""
        if not name:
            raise errors.default_exchange_operation()
        self.exchange(name)

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete the exchange; one that there is not is deleted already."""
        if not name:
            raise errors.default_exchange_operation()
        if name.startswith("amq."):
            raise errors.system_exchange_deletion(name, self.name)
        if name not in self.exchanges:
            return
        if if_unused and self.bindings.has_source(name):
            raise errors.in_use("exchange", name, self.name)
        self._remove_exchange(name)

    def _remove_exchange(self, name: str) -> None:
        exchange = self.exchanges.pop(name)
        for binding in self.bindings.of_source(exchange.name):
            self.bindings.remove(binding)
        self._unbind_destination(Destination("exchange", name))

    # ------------------------------------------------------------------------------------------------ bindings

    def bind(
        self, source: str, destination: Destination, *, routing_key: str, arguments: Table, connection: object
    ) -> None:
        """Add a binding; one that there is stays. The exchange is checked before the queue (scenario bind_errors)."""
        self._check_ends(source, destination)
        exchange = self.exchange(source)
        queue_type = None
        if destination.kind == "exchange":
            self.exchange(destination.name)
        else:
            queue_type = self.queue(destination.name).settings.queue_type
        binding = Binding(source, routing_key, destination, arguments)
        exchange.matcher.check(binding, queue_type)
        if destination.kind == "queue":  # behind what is wrong with the binding (rabbit_binding:binding_checks)
            self.accessible_queue(destination.name, connection)
        if self.bindings.add(binding):
            exchange.matcher.add(binding)

    def unbind(
        self, source: str, destination: Destination, *, routing_key: str, arguments: Table, connection: object
    ) -> None:
        """Take a binding away; none that there is not, nor a missing end, is an error.

        Only for a binding that there is does RabbitMQ look at whose queue it leads to (rabbit_binding:remove). Raises
        ChannelException where it is another connection's.
        """
        self._check_ends(source, destination)
        binding = Binding(source, routing_key, destination, arguments)
        if binding not in self.bindings:
            return
        if destination.kind == "queue":
            self.accessible_queue(destination.name, connection)
        self.bindings.remove(binding)
        self._removed(binding)

    def _check_ends(self, source: str, destination: Destination) -> None:
        is_address = destination.kind == "queue" and destination.name.startswith(direct_reply.PREFIX)
        if is_address and self.version.reply_addresses_are_queues:
            raise errors.binding_to_reply_address()
        if not source or destination == ("exchange", ""):
            raise errors.default_exchange_operation()

    def _unbind_destination(self, destination: Destination) -> None:
        for binding in self.bindings.of_destination(destination):
            self.bindings.remove(binding)
            self._removed(binding)

    def _removed(self, binding: Binding) -> None:
        """Let the source forget the binding; an auto-delete exchange goes with its last one (maybe_auto_delete)."""
        source = self.exchanges.get(binding.source)
        if source is None:
            return
        source.matcher.remove(binding)
        if source.auto_delete and not self.bindings.has_source(source.name):
            self._remove_exchange(source.name)
