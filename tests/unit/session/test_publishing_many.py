"""Many jobs at once, on a backend that ends meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from queuey_fake import FakeBroker
from queuey_rabbitmq import Envelope, QueueConfig, ShutDownError
from tests.unit.session.conftest import job

EMAILS = QueueConfig("emails")


def test_a_backend_that_is_closed_in_between_says_which_jobs_it_has_not_taken() -> None:
    with FakeBroker() as broker:
        backend = broker.backend()
        backend.declare([EMAILS])

        def jobs() -> Iterator[Envelope]:
            yield job()
            backend.close()
            yield job()
            yield job()

        errors = backend.publish_many(jobs())
        assert {place: type(error) for place, error in errors.items()} == {1: ShutDownError, 2: ShutDownError}
        queue = broker.queue(EMAILS.name)
        assert queue is not None
        assert queue.ready == 1
