"""The job in queuey."""

import sys

from peers import measured
from queuey_rabbitmq import Job, Producer, Queue, QueueSet, RabbitMqBackend, Worker, handles, job


class Benchmark(QueueSet, prefix="benchmark"):
    """The queue."""

    queuey = Queue(prefetch=measured.PREFETCH)


@job(Benchmark.queuey)
class Noop(Job[Benchmark]):
    """The job."""

    sent_ns: int


@handles(Noop)
def noop(job: Noop) -> None:
    measured.handled(job.sent_ns)


if __name__ == "__main__":
    with RabbitMqBackend.connect(measured.URL) as backend:
        if sys.argv[1] == "work":
            Worker(backend, Benchmark, concurrency=measured.THREADS).run()
        else:
            producer = Producer(backend, Benchmark)
            measured.enqueue(
                lambda many: producer.enqueue_many([Noop(sent_ns=sent_ns) for sent_ns in many]),
                lambda sent_ns: producer.enqueue(Noop(sent_ns=sent_ns)),
            )
