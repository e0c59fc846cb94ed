"""Makes docs/trace.png, what `--queuey-trace` shows of a test: `python -m tests.browser.picture docs/trace.png`.

The story: one email is deferred, one is retried, one can never be sent, and a letter is lost, as its queue is gone when
its 24 days are over.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pika

from pytest_queuey.trace.page import page
from pytest_queuey.trace.recording import Recording
from pytest_queuey.trace.result import Result
from queuey_fake import FakeBroker, ManualClock
from queuey_rabbitmq import Envelope, QueueConfig
from tests.browser.chromium import screenshot_of

EMAILS = QueueConfig("emails", prefetch=1)
LETTERS = QueueConfig("letters")
TEST = "tests/test_mail.py::test_every_mail_arrives_sooner_or_later"
SIZE = "1200,628"


def mail(broker: FakeBroker, number: int, queue: QueueConfig, to: str) -> Envelope:
    return Envelope(
        job_id=uuid.UUID(int=number),
        job_type=f"send_{queue.name.removesuffix('s')}",
        queue=queue.name,
        enqueued_at_ms=broker.now_ms(),
        payload={"to": to},
    )


def tell(broker: FakeBroker) -> None:
    """Let the story happen."""
    backend = broker.backend()
    backend.declare([EMAILS, LETTERS])
    for number, name in enumerate(("ada", "barbara", "nobody", "grace"), start=1):
        backend.publish(mail(broker, number, EMAILS, name))
    with backend.consume(EMAILS) as deliveries:
        ada = next(deliveries)
        ada.defer(ada.envelope.deferred(EMAILS.top_priority), 30)
        barbara = next(deliveries)
        barbara.retry(barbara.envelope.next_attempt(), 5)
        next(deliveries).dead_letter("400 no such mailbox")
        grace = next(deliveries)
        broker.advance(2)
        grace.ack()
        for _ in range(2):
            next(deliveries).ack()
    backend.defer(mail(broker, 5, LETTERS, "alan"), 24 * 86_400)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_delete(LETTERS.name)
    broker.advance(24 * 86_400)


def main(picture: str) -> None:
    """Write the picture."""
    with FakeBroker(clock=ManualClock(datetime(2030, 1, 1, 9, tzinfo=UTC))) as broker:
        tell(broker)
        (loss,) = broker.journal.losses
        html = page(Result(TEST, "error", str(loss)), Recording.of(broker))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        path.write_text(html, encoding="utf-8")
        Path(picture).write_bytes(screenshot_of(path, Path(folder, "profile"), size=SIZE))


if __name__ == "__main__":
    main(*sys.argv[1:])
