"""The one door of the model: how a call of a client comes in, and what becomes of a refusal.

Owns the life of a channel from open to closed, and `method`, which every AMQP method of a channel goes through. It
drops calls on a channel that is closing, turns a refusal into the event that closes the channel or the connection, and
delivers what the queues posted to each other.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from queuey_fake.model import errors, events
from queuey_fake.model.errors import AmqpException, ConnectionException

if TYPE_CHECKING:
    from queuey_fake.model.connection import Connection

_P = ParamSpec("_P")
_D = TypeVar("_D", bound="Door")
_Body = Callable[Concatenate[_D, _P], None]


class ChannelState(Enum):
    """Where a channel is between channel.open and the end of its close."""

    OPEN = "open"
    CLOSING = "closing"  # the broker sent channel.close and waits for the client's close-ok
    CLOSED = "closed"


_BASIC_PUBLISH = (60, 40)


def method(class_id: int, method_id: int) -> Callable[[_Body[_D, _P]], _Body[_D, _P]]:
    """Make a function the body of an AMQP method of these ids, entered through the door."""
    turns = int((class_id, method_id) != _BASIC_PUBLISH)

    def door(body: _Body[_D, _P]) -> _Body[_D, _P]:
        @functools.wraps(body)
        def entered(self: _D, *args: _P.args, **kwargs: _P.kwargs) -> None:
            if self.state is not ChannelState.OPEN:
                return
            try:
                body(self, *args, **kwargs)
            except AmqpException as refusal:
                self.refuse(refusal, class_id, method_id)
            self.turns += turns
            if self._broker.mail:
                self._broker.deliver_mail()

        return cast("_Body[_D, _P]", entered)

    return door


class Door(ABC):
    """A channel number of a connection, as far as opening and closing goes."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.state = ChannelState.OPEN
        self.turns = 0
        self._broker = connection.broker
        self._vhost = connection.vhost
        self._version = connection.broker.version
        self._send = connection.send

    @abstractmethod
    def release(self) -> None:
        """Give everything back that the channel holds."""

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

    @method(20, 20)
    def flow(self, *, active: bool) -> None:
        """channel.flow."""
        if not active:
            raise errors.flow_inactive()
        self._send(events.FlowOk(self.number, active=True))

    def refuse(self, refusal: AmqpException, class_id: int, method_id: int) -> None:
        """Close the channel, or the connection, for what its client did."""
        told = errors.as_sent(refusal, octets=self._version.texts_are_octets)
        if told is not refusal:
            refusal, class_id, method_id = told, 0, 0
        if isinstance(refusal, ConnectionException):
            self.connection.refuse(refusal, class_id, method_id, channel=self)
            return
        self.state = ChannelState.CLOSING
        self.release()
        self._send(events.ChannelClose(self.number, refusal.code, refusal.text, class_id, method_id))
