"""dramatiq's README example, ported: an actor becomes a job and its handler. Run it: `from_dramatiq.py URL`."""

import sys
from urllib.request import urlopen

from queuey_rabbitmq import Job, Producer, Queue, QueueSet, RabbitMqBackend, handles, job


class Words(QueueSet):
    """The queues."""

    counting = Queue()


@job(Words.counting)
class CountWords(Job[Words]):
    """Count the words of a page."""

    url: str


@handles(CountWords)
def count_words(job: CountWords) -> None:
    with urlopen(job.url) as response:  # noqa: S310 -- the example is to count any page
        count = len(response.read().split())
    print(f"There are {count} words at {job.url!r}.")


if __name__ == "__main__":
    with RabbitMqBackend.connect("amqp://guest:guest@localhost:5672/%2f") as backend:
        Producer(backend, Words).enqueue(CountWords(sys.argv[1]))
