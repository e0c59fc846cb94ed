"""Every error that queuey raises on purpose.

QueueyError
|-- InvalidConfigError (ValueError)     a declaration, option or argument that can never work
|-- SerializationError (ValueError)     bytes that are not an envelope, a payload that is not the job type
|-- UnknownQueueError                   holding on a queue that this backend has not declared
|-- JobsNotConfirmedError               some of many jobs were not enqueued; says which
|-- AlreadySettledError                 a delivery was settled twice
|-- ShutDownError                       the backend or consumer was closed
|-- NothingPending                      a wait in virtual time that nothing can ever end
`-- BackendError                        whatever the broker or the link to it causes
    |-- UnroutableError                 no queue took a mandatory message
    |-- PublishRefusedError             the broker nacked a publish
    |-- DeclareRefusedError             the broker refused a declaration and said why
    |-- DelayTooLongError (ValueError)  longer than a hold queue can wait
    |-- QueueNameTooLongError (ValueError)
    |-- ConnectError                    no connection could be made; says at which stage
    |-- ConnectionLostError             the connection went away under an operation
    |-- ChannelClosedError              the broker closed the channel under an operation
    |-- OutcomeUnknownError             sent, but never confirmed: the broker may or may not have it
    |-- DeadlineExceededError (TimeoutError)
    |-- DeliveryLost                    settling a delivery that the broker has taken back
    `-- ConsumerCancelledError          the broker cancelled a consumer

Messages are written for the person who reads them at 3 a.m.: what was being done, to which queue, what the broker
said, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid


class QueueyError(Exception):
    """Be the base of every error that queuey raises on purpose."""


class InvalidConfigError(QueueyError, ValueError):
    """A declaration, option or argument can never work; nothing has been changed."""


class SerializationError(QueueyError, ValueError):
    """Bytes are not an envelope, or a payload is not the job type that it was decoded as."""


class UnknownQueueError(QueueyError):
    """A job can only be held for a queue that was declared through this backend.

    Otherwise the hold queue would be guessed, and a job that expires into a queue that does not exist is discarded
    by the broker without a trace.
    """

    def __init__(self, queue: str, *, doing: str) -> None:
        super().__init__(
            f"{doing} on queue '{queue}': it was not declared through this backend, so nothing was sent. "
            f"Call backend.declare([QueueConfig('{queue}', ...)]) first."
        )
        self.queue = queue


class JobsNotConfirmedError(QueueyError):
    """Some of many jobs were not confirmed by the broker; all others are enqueued.

    After an OutcomeUnknownError the broker may have the job all the same.
    """

    def __init__(self, job_ids: Sequence[uuid.UUID], errors: Mapping[int, QueueyError]) -> None:
        first = min(errors)
        super().__init__(
            f"{len(errors)} of {len(job_ids)} jobs were not confirmed; the first is number {first}: {errors[first]}"
        )
        self.job_ids = list(job_ids)
        """The ids of all jobs, in the order in which they were given."""
        self.errors = dict(errors)
        """Why a job was not confirmed, by its place in that order, from 0."""


class AlreadySettledError(QueueyError):
    """A delivery takes exactly one outcome, once."""


class ShutDownError(QueueyError):
    """The backend, or the consumer, was closed."""


class NothingPending(QueueyError):  # noqa: N818 -- a name that DESIGN fixes
    """A wait without a deadline, in virtual time, with nothing ready and nothing due: it would never end."""


class BackendError(QueueyError):
    """The broker, or the link to it, made an operation fail; the cause is chained where there is one."""


class UnroutableError(BackendError):
    """No queue took a mandatory message; the broker returned it."""


class PublishRefusedError(BackendError):
    """The broker answered a publish with basic.nack: it does not have the message."""


class ChannelClosedError(BackendError):
    """The broker closed the channel under an operation."""

    def __init__(self, message: str, *, code: int, text: str) -> None:
        super().__init__(message)
        self.code = code
        """AMQP reply code, 406 for PRECONDITION_FAILED."""
        self.text = text
        """The broker's own words."""


class DeclareRefusedError(ChannelClosedError):
    """The broker refused a declaration; `text` names what differs."""


class DelayTooLongError(BackendError, ValueError):
    """A delay is longer than a hold queue can wait; nothing has been sent."""


class QueueNameTooLongError(BackendError, ValueError):
    """The longest name that a queue's topology needs passes AMQP's 255 bytes; nothing has been declared."""


class ConnectError(BackendError):
    """No connection could be made; the message says at which stage it failed."""


class ConnectionLostError(BackendError):
    """The connection went away under an operation that had not been sent, or that is safe to repeat."""


class OutcomeUnknownError(BackendError):
    """A publish was sent and never confirmed: the broker may or may not have the message."""


class DeadlineExceededError(BackendError, TimeoutError):
    """An operation did not end within its deadline."""


class DeliveryLost(BackendError):  # noqa: N818 -- a name that DESIGN fixes
    """The channel of a delivery is gone, so the broker has taken the message back and will deliver it again."""


class ConsumerCancelledError(BackendError):
    """The broker cancelled a consumer: its queue was deleted, or the node that held it is gone."""
