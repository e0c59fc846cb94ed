"""Looking through any queue: its messages in order, each held unacked until the looking ends, raw as they are.

A window of messages at a time, each with a consumer of its own on a channel of its own: a full window takes no more,
and the next consumer is handed what follows. So nothing is lost whatever happens, memory holds one window of bodies,
and closing the channels puts everything back in its place (scenario requeue_after_newer_published). It judges no
message and changes nothing by itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Self

from queuey_rabbitmq.core.errors import BackendError, ConnectionLostError, QueueyError
from queuey_rabbitmq.session.consuming import CHECK_PAUSES_S, ConsumerChannel, Ended

if TYPE_CHECKING:
    from queuey_rabbitmq.amqp import ReadableProperties
    from queuey_rabbitmq.session.operations import Message, PublishOperation
    from queuey_rabbitmq.session.session import Session

log = logging.getLogger("queuey_rabbitmq")

WINDOW = 500
"""How many messages one consumer holds."""

MAX_WINDOWS = 2000
"""A connection has 2047 channels, RabbitMQ's default channel_max; so a million messages can be held at a time."""


@dataclass(frozen=True, slots=True)
class Held:
    """One message of the queue, held unacked."""

    body: bytes
    properties: ReadableProperties
    redelivered: bool
    window: _Window
    delivery_tag: int


class Browsing:
    """The messages that were ready in a queue at the start, oldest first: an iterator and a context manager.

    Closing gives back, in order, what was neither discarded nor moved. Iterating raises the BackendError that ended
    it; then everything is back in the queue. For one thread.
    """

    def __init__(self, session: Session, queue: str) -> None:
        self._session = session
        self._windows: list[_Window] = []
        self._queue = queue
        self._left = 0
        self.total = 0
        """How many messages were ready at the start; what comes later is not looked at."""
        try:
            first = self._open_window(WINDOW)
        except BaseException:
            self.close()
            raise
        self.total = self._left = first.depth

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Held]:
        return self

    def __next__(self) -> Held:
        while self._left:
            window = self._windows[-1]
            window.check_current()
            if window.held:
                self._left -= 1
                return window.held.popleft()
            if not window.was_full:
                break  # another consumer has the rest
            for earlier in self._windows:
                earlier.check_current()
            if len(self._windows) >= MAX_WINDOWS:
                raise BackendError(
                    f"looking through queue '{self._queue}': no more than {MAX_WINDOWS * WINDOW} messages can be held "
                    f"at a time, and {self._left} follow. Nothing is lost: take off some of these, then start again."
                )
            self._open_window(min(self._left, WINDOW))
        raise StopIteration

    def discard(self, held: Held) -> None:
        """Take a message off the queue. Raises DeliveryLost where it has gone back already."""
        self._session.settle(held.window.consumer, held.window.channel, held.delivery_tag, "ack")

    def move(self, held: Held, message: Message) -> PublishOperation:
        """Start to publish `message`; when the broker has confirmed it, the held one is taken off the queue.

        Waits as `publish_nowait` does. `wait` tells how it ended.
        """
        window = held.window
        self._session.check_current(window.consumer, window.channel)
        return self._session.publish(
            message, then=partial(window.consumer.settle, window.channel, held.delivery_tag, "ack")
        )

    def wait(self, operation: PublishOperation) -> None:
        """Wait until a move has ended. Raises its error; the held message is still on the queue then."""
        self._session.wait(operation)

    def close(self) -> None:
        """Give back what is held, each message to its place. Idempotent."""
        windows, self._windows = self._windows, []
        for window in windows:
            try:
                self._session.stop([window.consumer])
            except QueueyError as error:
                # The broker gives back what it held, as soon as it knows that the connection is gone.
                log.warning("%s; what was held goes back with its connection", error)

    def _open_window(self, size: int) -> _Window:
        window = _Window(self._session, self._queue, size)
        self._windows.append(window)
        window.fill()
        return window


class _Window:
    """A consumer that holds up to `size` messages."""

    def __init__(self, session: Session, queue: str, size: int) -> None:
        self._session = session
        self._size = size
        self._mailbox = session.mailbox()
        self.held: deque[Held] = deque()
        self.was_full = False
        self.depth = 0
        """How many messages were ready when it was opened."""
        self.consumer: ConsumerChannel = session.consume(queue, size, self._mailbox)
        self.channel = self.consumer.number

    def fill(self) -> None:
        """Take what is ready, and then no more: settling what is held must not bring others here."""
        pauses, is_sure = iter(CHECK_PAUSES_S), False
        while not self.was_full and (pause_s := next(pauses, None)) is not None:
            more = self._check()
            if self._take():
                pauses, is_sure = iter(CHECK_PAUSES_S), False
            elif more:
                sleep(pause_s)
            elif is_sure:
                break
            else:
                is_sure = True  # by the next answer: see CHECK_PAUSES_S
        if self.was_full:
            self._check()
        self.check_current()
        self._session.drain(self.consumer)

    def check_current(self) -> None:
        """Raise ConnectionLostError where the broker has taken back what was held."""
        if not self.consumer.is_current(self.channel):
            raise ConnectionLostError(
                f"looking through queue '{self.consumer.queue}': the channel was lost, so the broker has put back what "
                "was held, and nothing is lost. Start again."
            )

    def _check(self) -> bool:
        more = self._session.check(self.consumer)
        self.depth = max(self.depth, self.consumer.depth)
        return more

    def _take(self) -> bool:
        """Take what has come; tell whether there was anything."""
        before = len(self.held)
        while not self.was_full and (item := self._mailbox.get(0)) is not None:
            event = item[1]
            if isinstance(event, Ended):
                raise event.error
            if event.channel == self.channel:
                self.held.append(Held(event.body, event.properties, event.redelivered, self, event.delivery_tag))
            self.was_full = len(self.held) == self._size
        return len(self.held) > before
