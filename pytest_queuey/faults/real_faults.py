"""Owns the faults of one test on a real broker: the face over the proxy, and what is done to the broker itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from time import sleep
from typing import Final

from pytest_queuey.broker_under_test import NotOnThisBrokerError
from pytest_queuey.faults.proxy import Proxy
from queuey_fake.clock import MS_PER_SECOND
from queuey_fake.faults import not_negative_ms, positive
from queuey_fake.real_time import monotonic_s
from queuey_rabbitmq import broker_urls

_LOOK_EVERY: Final = 0.005
_CANCELLED_WITHIN: Final = 5.0


class RealFaults:
    """What can be made to fail on a real broker; see `Faults`. Clients reach it at `url`."""

    def __init__(self, url: str, restart: Callable[[], None]) -> None:
        """Put a proxy before the broker at a URL; `restart` restarts it, or raises NotOnThisBrokerError.

        Raises NotOnThisBrokerError for TLS and for several nodes.
        """
        node, *others = broker_urls.parse(url)
        if node.tls is not None or others:
            what = f"TLS with {node}" if node.tls is not None else f"{', '.join(map(str, [node, *others]))}"
            raise NotOnThisBrokerError(
                "faults (queuey_faults) are made by a proxy that reads what one node and its clients say: it reads no "
                f"TLS and stands before one address, and --queuey-rabbitmq-url says {what}. Give it the amqp:// URL "
                "of one node, or run these tests on a private server (--queuey-rabbitmq-source=local)"
            )
        self._upstream = url
        self._restart = restart
        self._proxy = Proxy(node.host, node.port)
        parts = broker_urls.split(url)
        user, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{user}{at}127.0.0.1:{self._proxy.port}").geturl()

    def drop_connections(self, *, after_publishes: int | None = None, before_confirm: bool = True) -> None:
        """Cut every connection: now, or after the n-th publish from now, right before or after its confirm."""
        if after_publishes is None:
            self._proxy.do("cutting every connection", self._proxy.cut)
            return
        left = positive(after_publishes, "after_publishes")

        def count() -> None:
            self._proxy.script.left = left
            self._proxy.script.confirms_last = not before_confirm

        self._proxy.do(f"counting {left} publishes", count)

    def refuse_connections(self, *, for_: timedelta | float) -> None:
        """Refuse every new connection for a while, by a reset; those that are open stay."""
        self._set("refused_until", monotonic_s() + not_negative_ms(for_, "for_") / MS_PER_SECOND)

    def hang(self) -> AbstractContextManager[object]:
        """Let nothing pass in either direction until `resume`, or until the end of a `with` block."""
        self._set("is_hung", True)
        ending = ExitStack()
        ending.callback(self.resume)
        return ending

    def resume(self) -> None:
        """End a hang: what was on its way arrives."""
        self._set("is_hung", False)

    def delay(self, seconds: timedelta | float) -> None:
        """Let everything arrive so much later, in each direction; 0 ends it."""
        self._set("delay", not_negative_ms(seconds, "delay") / MS_PER_SECOND)

    def block(self, reason: str = "low on memory") -> None:
        """Read nothing more from a connection that publishes, and tell it what a broker with an alarm does."""

        def block() -> None:
            self._proxy.script.alarm = reason

        self._proxy.do("raising an alarm", block)

    def unblock(self) -> None:
        """End the resource alarm; what was not read is."""

        def unblock() -> None:
            self._proxy.script.alarm = None
            for conversation in self._proxy.conversations():
                conversation.unblock()

        self._proxy.do("ending an alarm", unblock)

    def nack_next(self, n: int = 1) -> None:
        """Answer the next n publishes on confirming channels with basic.nack, and let none of them pass."""
        nacks = positive(n, "n")
        self._proxy.do(f"nacking {nacks} publishes", lambda: setattr(self._proxy.script, "nacks", nacks))

    def return_next(self, n: int = 1) -> None:
        """Return the next n mandatory publishes as unroutable, and let none of them pass."""
        returns = positive(n, "n")
        self._proxy.do(f"returning {returns} publishes", lambda: setattr(self._proxy.script, "returns", returns))

    def cancel_consumers(self, queue: str) -> None:
        """Cancel every consumer of a queue: at the broker in its client's name, at the client in the broker's."""

        def cancel() -> None:
            for conversation in self._proxy.conversations():
                conversation.cancel_consumers(queue.encode())

        doing = f"cancelling the consumers of queue '{queue}'"
        self._proxy.do(doing, cancel)
        give_up = monotonic_s() + _CANCELLED_WITHIN
        while self._proxy.do(doing, lambda: any(said.awaits_cancel for said in self._proxy.conversations())):
            if monotonic_s() > give_up:
                raise TimeoutError(f"the broker did not cancel the consumers of queue '{queue}': does it hang?")
            sleep(_LOOK_EVERY)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue behind the application's back, with what is in it."""
        from pytest_queuey import blocking_connection

        connection = blocking_connection.connect(
            self._upstream, name="queuey: deletes a queue", within=_CANCELLED_WITHIN
        )
        try:
            connection.channel().queue_delete(queue)
        finally:
            connection.close()

    def restart(self) -> None:
        """Restart the broker in good order; raises NotOnThisBrokerError where it is not this process's alone."""
        self._restart()

    def clear(self) -> None:
        """End every fault."""

        def clear() -> None:
            script = self._proxy.script
            script.nacks = script.returns = script.left = 0
            self._proxy.delay = self._proxy.refused_until = 0.0
            self._proxy.is_hung = False

        self._proxy.do("ending every fault", clear)
        self.unblock()

    def close(self) -> None:
        """Cut every connection, and take the proxy away. Idempotent."""
        self._proxy.close()

    def _set(self, name: str, value: object) -> None:
        self._proxy.do(f"setting {name} to {value}", lambda: setattr(self._proxy, name, value))
