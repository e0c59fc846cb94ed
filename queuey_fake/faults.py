"""What can be made to fail on a fake broker, on demand.

The face only: silence and refusals stand in `traffic`, what becomes of publishes, alarms and restarts in the model.
The calls mean the same on a real broker, where pytest_queuey makes them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta

from queuey_fake.clock import duration_ms
from queuey_fake.engine import Engine
from queuey_fake.model.publish_faults import PublishFaults
from queuey_fake.model.restart import restart


class Faults:
    """The faults of one broker; durations are seconds or timedelta, in the broker's time.

    They strike every client, whichever door it came through.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ------------------------------------------------------------------------------------------ connections

    def drop_connections(self, *, after_publishes: int | None = None, before_confirm: bool = True) -> None:
        """Cut every connection: now, or after the n-th publish from now, right before or after its confirm.

        The broker has taken that publish in either case.
        """
        model = self._engine.model
        if after_publishes is None:
            self._engine.run(model.lose_connections)
            return
        left = positive(after_publishes, "after_publishes")
        faults = self._publish_faults()
        faults.left = left
        faults.confirms_last = not before_confirm

    def refuse_connections(self, *, for_: timedelta | float) -> None:
        """Refuse every new connection for a while; those that are open stay."""
        ms = not_negative_ms(for_, "for_")
        self._engine.traffic.refused_until_ms = self._engine.look(self._engine.elapsed_ms) + ms

    def hang(self) -> AbstractContextManager[object]:
        """Let nothing pass in either direction until `resume`, or until the end of a `with` block.

        New connections are taken and get no answer.
        """
        self._engine.run(self._engine.traffic.hang)
        ending = ExitStack()
        ending.callback(self.resume)
        return ending

    def resume(self) -> None:
        """End a hang: what was on its way arrives."""
        self._engine.run(self._engine.traffic.resume)

    def delay(self, seconds: timedelta | float) -> None:
        """Let everything arrive so much later, in each direction; 0 ends it."""
        ms = not_negative_ms(seconds, "delay")
        self._engine.run(lambda: self._engine.traffic.delay(ms))

    # ------------------------------------------------------------------------------------------ publishes

    def block(self, reason: str = "low on memory") -> None:
        """Raise a resource alarm: from a connection that publishes, nothing more is read until `unblock`."""
        self._engine.run(lambda: self._engine.model.set_alarm(reason))

    def unblock(self) -> None:
        """End the resource alarm; what was not read is."""
        self._engine.run(lambda: self._engine.model.set_alarm(None))

    def nack_next(self, n: int = 1) -> None:
        """Answer the next n publishes on confirming channels with basic.nack, and enqueue none of them."""
        nacks = positive(n, "n")
        self._publish_faults().nacks = nacks

    def return_next(self, n: int = 1) -> None:
        """Return the next n mandatory publishes as unroutable."""
        returns = positive(n, "n")
        self._publish_faults().returns = returns

    # ------------------------------------------------------------------------------------------ the broker

    def cancel_consumers(self, queue: str) -> None:
        """Cancel every consumer of a queue, and tell their clients; what they have not settled stays with them."""

        def cancel() -> None:
            for vhost in self._engine.model.vhosts.values():
                if queue in vhost.queues:
                    for consumer in vhost.queues[queue].dismiss():
                        consumer.mailbox.consumer_gone(consumer)
                    vhost.queues[queue].renew_lease()

        self._engine.run(cancel)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue behind the application's back, with what is in it."""

        def delete() -> None:
            for vhost in self._engine.model.vhosts.values():
                if queue in vhost.queues:
                    vhost.queues[queue].delete(if_unused=False, if_empty=False)
            self._engine.model.deliver_mail()

        self._engine.run(delete)

    def restart(self) -> None:
        """Restart the broker in good order: every connection ends, and what is not durable is gone."""
        self._engine.run(lambda: restart(self._engine.model))

    def clear(self) -> None:
        """End every fault: what hangs arrives, and nothing more is asked of publishes or new connections."""
        traffic = self._engine.traffic
        self._engine.model.publish_faults = None
        traffic.refused_until_ms = 0
        traffic.delay(0)
        traffic.resume()
        self.unblock()

    def _publish_faults(self) -> PublishFaults:
        model = self._engine.model
        if model.publish_faults is None:
            model.publish_faults = PublishFaults()
        return model.publish_faults


def positive(number: int, name: str) -> int:
    """Return a number of publishes; raise ValueError where it is none."""
    if type(number) is not int or number < 1:
        raise ValueError(f"{name}: expected an integer, 1 or more, got {number!r}")
    return number


def not_negative_ms(duration: timedelta | float, name: str) -> int:
    """Return a duration in ms; raise ValueError where it is below zero."""
    ms = duration_ms(duration)
    if ms < 0:
        raise ValueError(f"{name}: expected 0 or more, got {duration!r}")
    return ms
