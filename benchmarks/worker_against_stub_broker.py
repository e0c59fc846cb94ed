"""Enqueue and process no-op jobs in memory: Producer and Worker on a FakeBroker, against dramatiq on its StubBroker.

    python benchmarks/worker_against_stub_broker.py [repetitions]

What a test suite pays for each job. dramatiq is measured with the number of threads that suits it best; its worker
only runs in threads of its own. Prints medians of interleaved repetitions as rates and ratios, by the clock and by
processor time: on a busy machine many threads get more turns than one, so only the latter compares there.
"""

import sys
from collections.abc import Callable
from functools import partial

import dramatiq
from dramatiq.brokers.stub import StubBroker
from interleaved import cpu_rate_of, interleaved, rate_of, report

from queuey_fake import FakeBroker
from queuey_rabbitmq import Job, Producer, Queue, QueueSet, Worker, job

JOBS = 2_000
THREADS = (1, 8)
RateOf = Callable[[int, Callable[[], object]], float]


class Emails(QueueSet, prefix="benchmark"):
    """The queues."""

    welcome = Queue()


@job(Emails.welcome)
class SendEmail(Job[Emails]):
    """Send an e-mail."""

    to: str
    subject: str


def on_fake(rate_of: RateOf, *, fill: bool) -> float:
    """Enqueue all jobs and then process them, or with `fill` off process each as it comes."""
    with FakeBroker() as broker, broker.backend() as backend:
        producer, worker = Producer(backend, Emails), Worker(backend, Emails)
        handled = []
        worker.register(SendEmail, lambda email: handled.append(email.to))

        def work() -> None:
            if fill:
                for number in range(JOBS):
                    producer.enqueue(SendEmail(to=f"{number}@example.com", subject="welcome"))
                worker.run(burst=True)
            else:
                for number in range(JOBS):
                    producer.enqueue(SendEmail(to=f"{number}@example.com", subject="welcome"))
                    worker.step()

        rate = rate_of(JOBS, work)
        assert len(handled) == JOBS, "a job was not handled"
        worker.close()
        return rate


def on_stub(threads: int, rate_of: RateOf, *, fill: bool) -> float:
    """Do the same with dramatiq; joining the queue is how its tests wait for jobs."""
    broker = StubBroker()
    handled = []

    @dramatiq.actor(broker=broker)
    def send_email(to: str, subject: str) -> None:
        del subject
        handled.append(to)

    worker = dramatiq.Worker(broker, worker_threads=threads)
    if not fill:
        worker.start()

    def work() -> None:
        for number in range(JOBS):
            send_email.send(f"{number}@example.com", "welcome")
            if not fill:
                broker.join("default")
        if fill:
            worker.start()
            broker.join("default")

    rate = rate_of(JOBS, work)
    worker.stop()
    assert len(handled) == JOBS, "a job was not handled"
    return rate


def compare(title: str, repetitions: int, *, fill: bool) -> None:
    """Let both take turns."""
    for by, rates in {"the clock": rate_of, "processor time": cpu_rate_of}.items():
        peers = {f"dramatiq, threads: {threads}": partial(on_stub, threads, rates, fill=fill) for threads in THREADS}
        medians = interleaved({**peers, "queuey": partial(on_fake, rates, fill=fill)}, repetitions=repetitions)
        report(f"{title}, by {by}", medians, against=max(peers, key=medians.__getitem__))


def main(repetitions: int) -> None:
    """Measure both ways of working."""
    compare("all enqueued, then processed", repetitions, fill=True)
    compare("each processed as it is enqueued", repetitions, fill=False)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
