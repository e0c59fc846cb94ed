"""The job in dramatiq; publishes are confirmed."""

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from peers import measured

broker = RabbitmqBroker(url=measured.URL, confirm_delivery=True)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="benchmark.dramatiq")
def noop(sent_ns: int) -> None:
    measured.handled(sent_ns)


def send_all(many: list[int]) -> None:
    for sent_ns in many:
        noop.send(sent_ns)


if __name__ == "__main__":
    measured.enqueue(send_all, noop.send)
