"""The production path on a real broker, against a bare socket and pika's BlockingConnection.

    python benchmarks/link_to_broker.py amqp://guest:guest@127.0.0.1:5672/%2f [repetitions]

Prints medians of interleaved repetitions as rates and ratios; only the ratios mean anything on a shared machine.
"""

import sys
import uuid
from collections.abc import Callable

import pika
from bare_socket import BareSocket
from interleaved import interleaved, rate_of, report

from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, codec

QUEUE = "queuey.benchmark"
PAYLOAD = {"to": "someone@example.com", "subject": "x" * 60, "body": "y" * 40}
COUNT = 10_000
BLOCKING_COUNT = 1_000


def envelope(now_ms: int) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="send_email", queue=QUEUE, enqueued_at_ms=now_ms, payload=PAYLOAD)


BODY = envelope(1_700_000_000_000).to_bytes()
PROPERTIES = b"".join(codec.props_for(envelope(1_700_000_000_000)).encode())
"""The bare socket sends the same message, to the byte: what the broker does for it is the same."""


class Broker:
    """The connections that take part."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.backend = RabbitMqBackend.connect(url)
        self.config = QueueConfig(QUEUE, prefetch=256, max_priority=None)
        self.backend.declare([self.config])
        self.bare = BareSocket(url)
        self.bare.confirm_select()
        self.pika = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.pika.channel()
        self.channel.confirm_delivery()

    def close(self) -> None:
        for queue in (QUEUE, f"{QUEUE}.dead"):
            self.channel.queue_delete(queue)
        self.backend.close()
        self.bare.close()
        self.pika.close()


def publish(broker: Broker, repetitions: int) -> None:
    def queuey() -> None:
        backend = broker.backend
        futures = [backend.publish_nowait(envelope(backend.now_ms())) for _ in range(COUNT)]
        for future in futures:
            future.result(60)

    def bare() -> None:
        broker.bare.publish_confirmed(QUEUE, BODY, count=COUNT, window=1000, properties=PROPERTIES)

    def blocking() -> None:
        properties = codec.props_for(envelope(1_700_000_000_000))
        for _ in range(BLOCKING_COUNT):
            broker.channel.basic_publish("", QUEUE, BODY, properties, mandatory=True)

    def then_purged(count: int, work: Callable[[], object]) -> float:
        rate = rate_of(count, work)
        broker.channel.queue_purge(QUEUE)
        return rate

    medians = interleaved(
        {
            "bare socket": lambda: then_purged(COUNT, bare),
            "queuey": lambda: then_purged(COUNT, queuey),
            "pika BlockingConnection": lambda: then_purged(BLOCKING_COUNT, blocking),
        },
        repetitions=repetitions,
    )
    report("confirmed publish, up to 1000 in flight (BlockingConnection: 1)", medians, against="bare socket")
    print(f"  queuey is {medians['queuey'] / medians['pika BlockingConnection']:.1f} times BlockingConnection")


def consume(broker: Broker, repetitions: int) -> None:
    def bare() -> None:
        consumer = BareSocket(broker.url)
        consumer.consume_and_ack(QUEUE, count=COUNT, prefetch=256)
        consumer.close()

    def queuey() -> None:
        taken = 0
        with broker.backend.consume(broker.config) as deliveries:
            for delivery in deliveries:
                delivery.ack()
                taken += 1
                if taken == COUNT:
                    break

    def filled(work: Callable[[], object]) -> float:
        broker.bare.publish_confirmed(QUEUE, BODY, count=COUNT, window=1000, properties=PROPERTIES)
        rate = rate_of(COUNT, work)
        broker.channel.queue_purge(QUEUE)
        return rate

    medians = interleaved(
        {"bare socket": lambda: filled(bare), "queuey": lambda: filled(queuey)}, repetitions=repetitions
    )
    report("consume and ack, prefetch 256, one consumer (bare socket: single acks)", medians, against="bare socket")


def main(url: str, repetitions: int) -> None:
    print(f"body of {len(BODY)} bytes, persistent, mandatory, durable classic queue, {repetitions} repetitions")
    broker = Broker(url)
    publish(broker, repetitions)
    consume(broker, repetitions)
    broker.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
