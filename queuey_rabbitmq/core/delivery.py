"""What a job looks like to whoever handles it: an envelope and exactly one outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from queuey_rabbitmq.core.envelope import Envelope


class Delivery(Protocol):
    """A job handed out by a backend, waiting for exactly one outcome.

    A second outcome raises AlreadySettledError. An outcome that raises before the broker had the job's new copy
    leaves the delivery unsettled, so another may be chosen. A delivery that is never settled goes back to its queue
    when its consumer closes.
    """

    @property
    def envelope(self) -> Envelope:
        """The job."""

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""

    @property
    def redelivered(self) -> bool:
        """Whether the broker has handed this job out before."""

    def ack(self) -> None:
        """Report the job as done; it is gone."""

    def give_back(self, *, after: timedelta | float = 0) -> None:
        """Put the job back on its queue, `after` a while (seconds or timedelta); it is delivered again as redelivered.

        It is settled at once: another outcome raises AlreadySettledError.
        """

    def retry(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Publish `envelope` to return after `delay` (seconds or timedelta), then ack this delivery."""

    def defer(self, envelope: Envelope, delay: timedelta | float) -> None:
        """Publish `envelope` to return after `delay` (seconds or timedelta), then ack this delivery."""

    def dead_letter(self, reason: str) -> None:
        """Move the job to its queue's dead queue with `reason`, then ack this delivery."""


@runtime_checkable
class SettlesWithoutWaiting(Protocol):
    """A delivery whose outcomes need not be waited for; a worker's threads then take the next job meanwhile.

    The futures end as the calls without `nowait` do. What can be refused without the broker is raised at once.
    """

    def retry_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Start to publish `envelope`, to return after `delay` (seconds or timedelta); the ack follows the confirm."""

    def defer_nowait(self, envelope: Envelope, delay: timedelta | float) -> Future[None]:
        """Start to publish `envelope`, to return after `delay` (seconds or timedelta); the ack follows the confirm."""

    def dead_letter_nowait(self, reason: str) -> Future[None]:
        """Start to move the job to its queue's dead queue with `reason`; the ack follows the confirm."""
