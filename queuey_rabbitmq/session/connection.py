"""One connection of a session: its state, its channel numbers, and which channel an event belongs to.

Decides nothing about messages; a channel's owner does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from queuey_rabbitmq import amqp
from queuey_rabbitmq.core.errors import BackendError, ConnectionLostError

CONNECTION_FORCED = 320
"""The code with which an operator, or a broker that goes down, closes connections."""

State = Literal["closed", "opening", "open", "closing"]


class ConnectionWatcher(Protocol):
    """Who is told of a connection's changes of state."""

    def connection_opened(self, connection: SessionConnection) -> None:
        """Learn that it takes commands now."""

    def comes_back(self, connection: SessionConnection, event: amqp.ConnectionLost) -> bool:
        """Say whether a connection that is gone will be opened again; asked before its channels are told."""

    def connection_lost(self, connection: SessionConnection, event: amqp.ConnectionLost) -> None:
        """Learn that it is gone, or could not be opened; its channels know already."""

    def connection_unblocked(self, connection: SessionConnection) -> None:
        """Learn that the broker reads from it again."""


class SessionConnection:
    """A connection by its name, in the sessions' sense: it is opened again under the same name when it was lost."""

    def __init__(self, link: amqp.Link, name: str, watcher: ConnectionWatcher) -> None:
        self.name = name
        self.state: State = "closed"
        self.is_ready = False
        """Whether it is open and what was declared exists again, so that channels may be opened for their work."""
        self.comes_back = False
        """Whether a connection that was lost is going to be opened again."""
        self.republishes = False
        """Whether what was sent on it and not confirmed is to be sent again when it has come back."""
        self.was_lost_in_silence = False
        """Whether it was last lost for no reason that lies in what was sent on it."""
        self.blocked: str | None = None
        """What the broker said when it stopped reading from this connection."""
        self.server_properties: Mapping[str, Any] = {}
        self._link = link
        self._watcher = watcher
        self._port: amqp.Connection | None = None
        self._owners: dict[int, ManagedChannel] = {}
        self._channels = 0

    def open(self) -> None:
        """Start to connect."""
        self.state = "opening"
        self._port = self._link.open(self.name, self._on_event)

    def close(self) -> None:
        """Start to close with a handshake."""
        if self.state in ("open", "opening") and self._port is not None:
            self.state = "closing"
            self._port.close()

    def abort(self) -> None:
        """Drop the connection."""
        if self.state != "closed" and self._port is not None:
            self.state = "closing"
            self._port.abort()

    def send(self, commands: Sequence[amqp.Command]) -> None:
        """Write commands as one, where there is a connection to write to."""
        if self._port is not None and self.state == "open":
            self._port.send(commands)

    def open_channel(self, owner: ManagedChannel, *, confirms: bool) -> int:
        """Start to open a channel for `owner`; return its number."""
        self._channels += 1
        self._owners[self._channels] = owner
        self.send([amqp.OpenChannel(self._channels, confirms)])
        return self._channels

    def hand_over_channel(self, number: int, owner: ManagedChannel) -> None:
        """Tell another owner from now on what happens on a channel."""
        self._owners[number] = owner

    def monotonic_ms(self) -> int:
        """Return the present on the timeline of deadlines."""
        return self._link.monotonic_ms()

    def forget_channel(self, number: int) -> None:
        """Hear no more of a channel."""
        self._owners.pop(number, None)

    def _on_event(self, event: amqp.Event) -> None:
        channel = getattr(event, "channel", None)
        if channel is not None:
            owner = self._owners.get(channel)
            if owner is None:
                return
            if type(event) is amqp.ChannelClosed:
                del self._owners[channel]
            owner.dispatch[type(event)](event)
        elif isinstance(event, amqp.ConnectionOpened):
            self.state = "open"
            self.server_properties = event.server_properties
            self._watcher.connection_opened(self)
        elif isinstance(event, amqp.ConnectionLost):
            self._lost(event)
        elif isinstance(event, amqp.ConnectionBlocked):
            self.blocked = event.reason or "no reason given"
        elif isinstance(event, amqp.ConnectionUnblocked):
            self.blocked = None
            self._watcher.connection_unblocked(self)

    def _lost(self, event: amqp.ConnectionLost) -> None:
        self.state = "closed"
        self.is_ready = False
        self.blocked = None
        self._port = None
        self.was_lost_in_silence = event.code in (0, CONNECTION_FORCED)
        self.comes_back = self._watcher.comes_back(self, event)
        error = lost_error(self.name, event)
        owners = list(self._owners.values())
        self._owners.clear()
        for owner in owners:
            owner.connection_lost(error)
        self._watcher.connection_lost(self, event)


def lost_error(name: str, event: amqp.ConnectionLost) -> BackendError:
    """Say how a connection that was open went away."""
    said = f"{event.code} {event.text}" if event.code else event.text
    error = ConnectionLostError(f"the {name} connection to the broker is gone ({said})")
    error.__cause__ = event.cause
    return error


class ManagedChannel(ABC):
    """A channel of a session: opened when it is first needed, and again after it was lost.

    A subclass says what it does when it is `opened` or `not_opened`, `closed` by the broker or `lost` with its
    connection, when a command of its own is `refused`, and which other events it handles.
    """

    handlers: ClassVar[Mapping[type[amqp.Event], str]] = {}
    """Names of the methods that take the events of the channel's own work."""
    confirms: ClassVar[bool] = False
    opens_early: ClassVar[bool] = False
    """Whether it may open before its connection is ready: it is what makes it so."""

    def __init__(self, connection: SessionConnection) -> None:
        self.connection = connection
        self.state: State = "closed"
        self.number = 0
        self.dispatch: dict[type[amqp.Event], Callable[[Any], None]] = {
            kind: getattr(self, name) for kind, name in self.handlers.items()
        }
        """Who takes an event of this channel, by its class."""
        self.dispatch[amqp.ChannelOpened] = self._on_opened
        self.dispatch[amqp.ChannelClosed] = self._on_closed
        self.dispatch[amqp.CommandRefused] = self._on_refused

    def open(self) -> None:
        """Start to open the channel, unless it is open or opening, or its connection is not ready."""
        connection = self.connection
        if self.state == "closed" and (connection.is_ready or (self.opens_early and connection.state == "open")):
            self.state = "opening"
            self.number = self.connection.open_channel(self, confirms=self.confirms)

    def connection_lost(self, error: BackendError) -> None:
        """Learn that the connection is gone, and the channel with it."""
        self.state = "closed"
        self.lost(error)

    @abstractmethod
    def opened(self) -> None:
        """Do what waited for the channel."""

    @abstractmethod
    def not_opened(self, error: BackendError) -> None:
        """Do what follows where no channel can be opened, though the connection is there."""

    @abstractmethod
    def refused(self, event: amqp.CommandRefused) -> None:
        """Do what follows where the link cannot write a command."""

    @abstractmethod
    def closed(self, code: int, text: str) -> None:
        """Do what follows from the broker closing the channel, or from its having been asked to."""

    @abstractmethod
    def lost(self, error: BackendError) -> None:
        """Do what follows from the connection's loss."""

    def _on_opened(self, _event: amqp.ChannelOpened) -> None:
        self.state = "open"
        self.opened()

    def _on_refused(self, event: amqp.CommandRefused) -> None:
        if not isinstance(event.command, amqp.OpenChannel):
            self.refused(event)
            return
        self.state = "closed"
        self.connection.forget_channel(event.channel)
        error = BackendError(f"no channel can be opened on the {self.connection.name} connection: {event.error}")
        error.__cause__ = event.error
        self.not_opened(error)

    def _on_closed(self, event: amqp.ChannelClosed) -> None:
        self.state = "closed"
        self.closed(event.code, event.text)
