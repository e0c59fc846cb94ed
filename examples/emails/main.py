"""Show the application at work: an email deferred by a 429, its return ahead of the backlog, retries, a dead letter.

Run without arguments it uses the RabbitMQ in memory, whose time is moved: a story of more than a minute takes a
moment. With `--url amqp://...` the same program runs on a real RabbitMQ, where it really waits; so there the story is
told ten times as fast (`--pace 0.1`), and its queues are deleted at the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from emails import AddressRefused, ApiUnavailable, Emails, EmailSender, SendEmail, TooManyRequests, welcome

from queuey_fake import FakeBroker
from queuey_rabbitmq import (
    ConnectError,
    DeadLetters,
    Hooks,
    InvalidConfigError,
    JobContext,
    Producer,
    RabbitMqBackend,
    RabbitMqOptions,
    RetryPolicy,
    Worker,
    pika,
    topology,
)

log = logging.getLogger("emails.story")

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


class Told(Hooks):
    """Tells what becomes of emails that were not sent."""

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """Tell of one that was too early."""
        del took
        seconds, who = delay.total_seconds(), context.correlation_id
        log.info("%s: %s. Deferred by %g s, still attempt %d", who, reason, seconds, context.attempt)

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """Tell of one that may work next time."""
        del took
        seconds, who = delay.total_seconds(), context.correlation_id
        log.info("%s: %s. Attempt %d follows in %g s", who, error, context.attempt + 1, seconds)

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """Tell of one that will never work."""
        del reason, took
        log.info("%s: %s. That will never work: moved to the dead queue", context.correlation_id, error)


def tell(backend: RabbitMqBackend, api: SlowApi, *, pace: float) -> None:
    """Queue the emails and handle them until none is left; the backoff is the story's, and not drawn at random."""
    retry = RetryPolicy.exponential(3, base=5 * pace, jitter=False)
    producer = Producer(backend, Emails)
    with Worker(backend, Emails, retry={Emails.emails: retry}, hooks=[Told()]) as worker:
        worker.register(SendEmail, EmailSender(api))

        def handle(count: int) -> None:
            for _ in range(count):
                if not worker.step(timeout=60):
                    raise TimeoutError("no email came back within a minute")

        welcome(producer, "ada")
        handle(1)
        for name in BACKLOG:
            welcome(producer, name)
        log.info("(meanwhile %d more pile up: %s)", len(BACKLOG), ", ".join(BACKLOG))
        handle(3)
        log.info("(the deferral is over: ada is next, ahead of barbara and nobody, who have waited all along)")
        handle(5)
    letters = DeadLetters(backend, Emails.emails)
    for letter in letters:
        log.info("(dead queue: %s, because %s)", letter.decode(SendEmail).to, letter.reason)
    letters.purge()


def on_fake(pace: float) -> None:
    """Run on the RabbitMQ in memory."""
    print("Emails through an API with a rate limit, on a RabbitMQ in memory. Seconds of virtual time:")
    begun = time.perf_counter()
    with FakeBroker() as broker, broker.backend() as backend, times_shown(backend):
        began_ms = backend.now_ms()
        tell(backend, SlowApi(broker.advance, pace=pace), pace=pace)
        seconds = (backend.now_ms() - began_ms) / 1000
    print(f"{seconds:g} s of virtual time took {time.perf_counter() - begun:.2f} s.")


def on_rabbitmq(url: str, pace: float) -> None:
    """Run on a real RabbitMQ that has no such queues yet."""
    options = RabbitMqOptions(retry_granularity=0.1, deferred_granularity=0.1)
    with RabbitMqBackend.with_options(url, options) as backend, times_shown(backend), own_queues(url):
        print(f"Emails through an API with a rate limit, on a real RabbitMQ, {1 / pace:g} times as fast.")
        print(f"It really waits, about {75 * pace:g} s in all. Seconds:")
        tell(backend, SlowApi(time.sleep, pace=pace), pace=pace)


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
    logging.getLogger("queuey_rabbitmq.worker").addHandler(logging.NullHandler())  # the story is told by the hooks
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def own_queues(url: str) -> Iterator[None]:
    """Delete the queues at the end; end the program where they are there already, for they may be somebody's."""
    queue = Emails.emails.name
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        connection.channel().queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        pass
    else:
        connection.close()
        sys.exit(
            f"queue '{queue}' is there already, and the story would handle its jobs and delete it at the end. "
            "Use another virtual host; or, if a story was broken off here, delete the queue"
        )
    try:
        yield
    finally:
        channel = connection.channel()
        channel.queue_delete(queue)
        channel.queue_delete(topology.dead_queue_name(queue, topology.DEFAULT_DEAD_SUFFIX))
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
