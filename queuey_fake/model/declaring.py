"""AMQP's exchange and queue methods on a channel.

Owns the queue that was declared last, which an empty name stands for. What is declared, bound and refused is the
vhost's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import direct_reply, errors, events
from queuey_fake.model.arguments import QueueProperties
from queuey_fake.model.bindings import Destination
from queuey_fake.model.door import Door, method

if TYPE_CHECKING:
    from queuey_fake.model.connection import Connection
    from queuey_fake.model.fields import Table


class DeclaringChannel(Door):
    """A channel, as far as exchanges and queues are declared, bound and deleted on it."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number)
        self._last_declared_queue = ""

    # ------------------------------------------------------------------------------------------------ exchanges

    @method(40, 10)
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

    @method(40, 20)
    def exchange_delete(self, exchange: str, *, if_unused: bool = False, nowait: bool = False) -> None:
        """exchange.delete."""
        self._vhost.delete_exchange(_without_line_ends(exchange), if_unused=if_unused)
        if not nowait:
            self._send(events.ExchangeDeleteOk(self.number))

    @method(40, 30)
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

    @method(40, 40)
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
            connection=self.connection,
        )
        if not nowait:
            self._send(events.ExchangeUnbindOk(self.number))

    # ------------------------------------------------------------------------------------------------ queues

    @method(50, 10)
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
        if queue.startswith(direct_reply.PSEUDO_QUEUE):
            self._vhost.check_reply_address(queue)
            self._declared(queue, ready=0, consumers=1, nowait=nowait)
            return
        if passive:
            declared = self._vhost.queue(queue)
            if not nowait:  # before exclusive access is checked (rabbit_channel: with_or_die, then check)
                declared.declared_again()
            self._vhost.accessible_queue(queue, self.connection)
        else:
            # An exclusive queue ends with its connection, so RabbitMQ takes it for transient (scenario
            # fact_excl_durable2).
            properties = QueueProperties(
                durable=durable and not exclusive,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments or {},
            )
            declared = self._vhost.declare_queue(queue, properties, self.connection, renews_lease=not nowait)
        self._declared(declared.name, ready=declared.ready.count, consumers=declared.consumer_count, nowait=nowait)

    def _declared(self, queue: str, *, ready: int, consumers: int, nowait: bool) -> None:
        """Keep the queue for whoever leaves its name out, and say what it is like."""
        self._last_declared_queue = queue
        if not nowait:
            self._send(events.QueueDeclareOk(self.number, queue, ready, consumers))

    @method(50, 20)
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

    @method(50, 50)
    def queue_unbind(self, queue: str, exchange: str, routing_key: str = "", *, arguments: Table | None = None) -> None:
        """queue.unbind."""
        queue, routing_key = self._named_for_binding(queue, routing_key)
        self._vhost.unbind(
            _without_line_ends(exchange),
            Destination("queue", _without_line_ends(queue)),
            routing_key=routing_key,
            arguments=arguments or {},
            connection=self.connection,
        )
        self._send(events.QueueUnbindOk(self.number))

    @method(50, 30)
    def queue_purge(self, queue: str = "", *, nowait: bool = False) -> None:
        """queue.purge."""
        name = self._named(queue)
        is_empty_always = self._vhost.is_reply_queue(name)
        count = 0 if is_empty_always else self._vhost.accessible_queue(name, self.connection).purge()
        if not nowait:
            self._send(events.QueuePurgeOk(self.number, count))

    @method(50, 40)
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


def _without_line_ends(name: str) -> str:
    """Return the name as RabbitMQ takes it in declarations and bindings (strip_cr_lf)."""
    return name.replace("\n", "").replace("\r", "") if "\n" in name or "\r" in name else name
