"""A broker that is only its port: what `python -m queuey_fake` serves.

Puts the model, its engine and the AMQP server together, and makes them anew for a reset. Knows nothing of job queues.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self, TypeVar

from queuey_fake.clock import Clock, ManualClock
from queuey_fake.engine import Engine
from queuey_fake.model.broker import Broker
from queuey_fake.wire.server import Server

T = TypeVar("T")


class Service:
    """A broker on a port, living by a clock."""

    def __init__(
        self,
        version: str,
        *,
        permit: Collection[str] = (),
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Open the port; 0 takes a free one. Raises OSError where it cannot be had."""
        self.clock = clock
        self._version = version
        self._permit = permit
        self._host = host
        self._start(port=port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _start(self, *, port: int = 0, listener: socket.socket | None = None) -> None:
        broker = Broker(version=self._version, permit=self._permit, now_ms=self.clock.now_ms())
        self._engine = Engine(broker, self.clock)
        self._server = Server(self._engine, host=self._host, port=port, listener=listener)

    @property
    def url(self) -> str:
        """The URL of the port."""
        return self._server.url

    def look(self, read: Callable[[Broker], T]) -> T:
        """Read something of the model, as it is now."""
        return self._engine.look(lambda: read(self._engine.model))

    def advance_ms(self, ms: int) -> None:
        """Move time on; everything due happens, each thing at its own instant.

        Raises ValueError on a clock that moves by itself, and for a negative duration.
        """
        if not isinstance(self.clock, ManualClock):
            raise ValueError("this broker lives on real time; start it with --clock virtual to move its time")  # noqa: TRY004  the clock's value is wrong for this
        if ms < 0:
            raise ValueError(f"time advances forwards, not by {ms} ms")
        self.clock.move_to_ms(self.clock.now_ms() + ms)

    def reset(self) -> None:
        """Forget everything and drop every client; the port and the time stay.

        The port is open all the while: who connects meanwhile is served, and nobody else can take it.
        """
        listener = self._server.same_listener()
        self.close()
        self._start(listener=listener)

    def close(self) -> None:
        """Close the port. Idempotent."""
        self._server.close()
        self._engine.close()
