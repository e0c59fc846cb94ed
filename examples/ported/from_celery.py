"""celery's first steps, ported: a task becomes a job and its handler.

`from_celery.py` enqueues, `from_celery.py worker` works. A result that somebody waits for is kept by the application,
where it can be found again: a job queue is no place for it.
"""

import sys

from queuey_rabbitmq import Job, Producer, Queue, QueueSet, RabbitMqBackend, Worker, handles, job


class Tasks(QueueSet, prefix="tasks"):
    """The queues."""

    sums = Queue()


@job(Tasks.sums)
class Add(Job[Tasks]):
    """Add two numbers."""

    x: int
    y: int


@handles(Add)
def add(job: Add) -> int:
    return job.x + job.y


if __name__ == "__main__":
    with RabbitMqBackend.connect("amqp://guest:guest@localhost:5672/%2f") as backend:
        if sys.argv[1:] == ["worker"]:
            Worker(backend, Tasks).run()
        else:
            Producer(backend, Tasks).enqueue(Add(4, 4))
