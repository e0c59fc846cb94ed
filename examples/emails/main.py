"""Show the application at work: an email deferred by a 429, its return ahead of the backlog, retries, a dead letter.

Run without arguments it uses the RabbitMQ in memory, whose time is moved: a story of more than a minute takes a
moment. With `--url amqp://...` the same program runs on a real RabbitMQ, where it really waits; so there the story is
told ten times as fast (`--pace 0.1`), in a queue of its own that is deleted at the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from emails import EMAILS, AddressRefused, ApiUnavailable, SendEmail, TooManyRequests, enqueue, handle

from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    ConnectError,
    InvalidConfigError,
    QueueConfig,
    RabbitMqBackend,
    RabbitMqOptions,
    RetryPolicy,
    pika,
    topology,
)

BACKLOG = ("grace", "alan", "edsger", "barbara", "nobody")


class SlowApi:
    """Stands in for the real API: takes its time, and answers as the story has it."""

    def __init__(self, wait: Callable[[float], None], *, pace: float) -> None:
        self._wait = wait
        self._pace = pace
        self._answers: dict[str, list[Exception]] = {
            "ada": [TooManyRequests(30 * pace)],
            "barbara": [ApiUnavailable("503 Service Unavailable"), ApiUnavailable("503 Service Unavailable")],
            "nobody": [AddressRefused("400 no such mailbox")],
        }

    def send(self, email: SendEmail) -> None:
        """Raise the next answer that the story has for an address, or send, which takes 12 seconds."""
        answers = self._answers.get(email.to)
        if answers:
            raise answers.pop(0)
        self._wait(12 * self._pace)


def tell(backend: RabbitMqBackend, queue: QueueConfig, api: SlowApi) -> None:
    """Queue the emails and handle them until none is left."""
    log = logging.getLogger("emails.story")
    backend.declare([queue])
    with backend.consume(queue) as deliveries:

        def handle_next() -> None:
            delivery = deliveries.get(timeout=60)
            assert delivery is not None, "no email came back within a minute"
            handle(delivery, api, queue=queue)

        enqueue(backend, SendEmail("ada", "Welcome"), queue=queue)
        handle_next()
        for name in BACKLOG:
            enqueue(backend, SendEmail(name, "Welcome"), queue=queue)
        log.info("(meanwhile %d more pile up: %s)", len(BACKLOG), ", ".join(BACKLOG))
        for _ in range(3):
            handle_next()
        log.info("(the deferral is over: ada is next, ahead of barbara and nobody, who have waited all along)")
        for _ in range(5):
            handle_next()
    with backend.consume(QueueConfig(topology.dead_queue_name(queue.name, ".dead"))) as dead_letters:
        dead = dead_letters.get(timeout=60)
        assert dead is not None, "the dead letter is not there"
        reason = (dead.properties.headers or {})["x-death-reason"]
        log.info("(dead queue: %s, because %s)", dead.envelope.decode(SendEmail).to, reason)
        dead.ack()


def on_fake(pace: float) -> None:
    """Run on the RabbitMQ in memory."""
    print("Emails through an API with a rate limit, on a RabbitMQ in memory. Seconds of virtual time:")
    begun = time.perf_counter()
    with FakeBroker() as broker, broker.backend() as backend, times_shown(backend):
        began_ms = backend.now_ms()
        tell(backend, story_queue(EMAILS.name, pace), SlowApi(broker.advance, pace=pace))
        seconds = (backend.now_ms() - began_ms) / 1000
    print(f"{seconds:g} s of virtual time took {time.perf_counter() - begun:.2f} s.")


def on_rabbitmq(url: str, pace: float) -> None:
    """Run on a real RabbitMQ, in a queue of this run alone."""
    queue = story_queue(f"{EMAILS.name}.{uuid.uuid4()}", pace)
    options = RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1)
    with RabbitMqBackend.with_options(url, options) as backend, times_shown(backend):
        print(f"Emails through an API with a rate limit, on a real RabbitMQ, {1 / pace:g} times as fast.")
        print(f"It really waits, about {75 * pace:g} s in all. Seconds:")
        try:
            tell(backend, queue, SlowApi(time.sleep, pace=pace))
        finally:
            delete(url, [queue.name, topology.dead_queue_name(queue.name, options.dead_suffix)])


def story_queue(name: str, pace: float) -> QueueConfig:
    """Return the application's queue under a name, its backoff to the story's pace and not drawn at random."""
    return replace(EMAILS, name=name, retry=RetryPolicy.exponential(3, base=5 * pace, jitter=False))


@contextmanager
def times_shown(backend: RabbitMqBackend) -> Iterator[None]:
    """Print what the application logs, with the seconds that have passed by the backend's clock."""
    began_ms = backend.now_ms()

    class Times(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"{(backend.now_ms() - began_ms) / 1000:6.1f}  {record.getMessage()}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Times())
    logger = logging.getLogger("emails")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def delete(url: str, queues: list[str]) -> None:
    """Delete queues."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for queue in queues:
        channel.queue_delete(queue)
    connection.close()


def main(arguments: list[str] | None = None) -> None:
    """Run the story where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a real RabbitMQ, amqp://user:password@host:port/vhost; default: one in memory")
    parser.add_argument("--pace", type=float, help="how long a second of the story is; default: 1, with --url 0.1")
    given = parser.parse_args(arguments)
    pace = given.pace if given.pace is not None else 1 if given.url is None else 0.1
    if pace <= 0:
        parser.error("--pace: it must be more than 0")
    if given.url is None:
        on_fake(pace)
        return
    try:
        on_rabbitmq(given.url, pace)
    except (ConnectError, InvalidConfigError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
