"""What a backend must do, as protocols that others can implement; the contract suite checks the meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from queuey_rabbitmq.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from queuey_rabbitmq.core.delivery import Delivery
    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.errors import QueueyError
    from queuey_rabbitmq.core.queue_config import QueueConfig


class Deliveries(Protocol):
    """The jobs of some queues, as they come: an iterator and a context manager; any thread may take from it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __iter__(self) -> Iterator[Delivery]: ...
    def __next__(self) -> Delivery: ...

    def get(self, *, timeout: timedelta | float | None = None) -> Delivery | None:
        """Return the next delivery; None when `timeout` (seconds or timedelta) passes first.

        Without a timeout it waits until there is one. Raises ShutDownError once the consumer is closed, and the
        BackendError that ended it where the broker or the link did.
        """

    def get_ready(self) -> Delivery | None:
        """Return the next delivery that is ready now, None where there is none: no waiting for what may come.

        It may take as long as asking the broker does. For one thread at a time. Raises as `get` does.
        """

    def stop(self) -> None:
        """Take no more from the broker; what it has handed over can still be got, and then `get` raises ShutDownError.

        Returns at once.
        """

    def close(self) -> None:
        """Stop consuming; what was handed out and not settled goes back to the queue. Idempotent."""


class Backend(Protocol):
    """Keeps jobs on queues and hands them out; synchronous and thread-safe.

    `Envelope.headers` travel beside a job's bytes. A backend that has a place for them hands a job out with those it
    was given, after a retry, a deferral and a dead letter too; one that has none leaves them behind, and nothing but
    traces that end there follows from it.
    """

    def now_ms(self) -> int:
        """Return the backend's clock, in ms since the epoch; `Envelope.enqueued_at_ms` is stamped with it."""

    def declare(self, queues: Iterable[QueueConfig]) -> None:
        """Create the queues and what belongs to them; declaring the same twice changes nothing."""

    def publish(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> None:
        """Put a job on its queue, after `delay` where one is given; return when the backend holds it safely."""

    def publish_nowait(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        """Put a job on its queue; the future ends when the backend holds it safely, or with the error."""

    def publish_many(self, envelopes: Iterable[Envelope]) -> Mapping[int, QueueyError]:
        """Put many jobs on their queues, many in flight at a time; return the errors by the jobs' places, from 0."""

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Hold a job for `delay`; it comes back at the envelope's own priority."""

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Hold a job for `delay`; the future ends when the backend holds it safely, or with the error."""

    def consume(self, queue: QueueConfig, *more: QueueConfig) -> Deliveries:
        """Start to consume one or more queues; of each, at most its `prefetch` deliveries are out at a time."""

    def close(self) -> None:
        """End consumers, give back what was not settled, and let go of every resource. Idempotent."""


@runtime_checkable
class LinedUp(Protocol):
    """What a backend may have beside: publishing that waits for nothing, for callers that must not be kept waiting.

    Without it, asyncio code sends from threads.
    """

    def publish_in_line(self, envelope: Envelope, *, delay: timedelta | float | None = None) -> Future[None]:
        """Put a job on its queue as `publish_nowait` does, and where too much is in flight let it stand in line.

        The time that it stands there is part of the deadline. A future that is cancelled before the job was sent
        takes the job out of the line.
        """

    def defer_in_line(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Hold a job as `defer_nowait` does, and where too much is in flight let it stand in line."""


_METHODS = tuple(name for name in vars(Backend) if not name.startswith("_"))


def check_backend(what: str, value: object) -> None:
    """Raise InvalidConfigError for what is no backend; it names the method that is missing."""
    missing = next((name for name in _METHODS if not callable(getattr(value, name, None))), None)
    if missing is not None:
        raise InvalidConfigError(
            f"{what}: expected a backend, such as RabbitMqBackend.connect(url), got {value!r}, which has no `{missing}`"
        )
