"""A restart of the broker in good order: what outlives it, and in which state.

As `rabbitmqctl stop_app` and `start_app` do it, in no time; measured on 3.10.8, 4.0.5 and 4.3.6. Durable queues and
exchanges stay (in 4.3 transient exchanges too), and persistent messages in their old order; of a classic queue,
transient messages go. What had been delivered is redelivered, in 4.3 unless basic.nack brought it back, and nothing
else is (after a SIGKILL everything is). A message's deadline runs on, a lease starts anew. Of a quorum queue everything
stays, and what was out counts as returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuey_fake.model import errors
from queuey_fake.model.queue import RESTARTED
from queuey_fake.model.quorum import QuorumQueue

if TYPE_CHECKING:
    from queuey_fake.model.broker import Broker


def restart(broker: Broker) -> None:
    """Stop and start the broker; every client is told so and loses its connection."""
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            queue.dismiss()  # so that nobody is delivered what another connection gives back as it ends
    broker.set_alarm(None)
    broker.cuts += 1
    for connection in list(broker.connections):
        connection.refuse(errors.shutdown(), 0, 0)
    broker.deliver_mail()
    for vhost in broker.vhosts.values():
        if not broker.version.keeps_transient_exchanges:
            vhost.forget_transient()
        for queue in list(vhost.queues.values()):
            if not queue.identity.properties.durable:
                queue.stop(RESTARTED)
            elif isinstance(queue, QuorumQueue):
                queue.renew_lease()
            else:
                vhost.queue_restarted(queue)
    broker.deliver_mail()
