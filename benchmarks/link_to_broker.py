"""The production path on a real broker, against a bare socket, pika's BlockingConnection and aio-pika.

    python benchmarks/link_to_broker.py amqp://guest:guest@127.0.0.1:5672/%2f [repetitions]

Prints medians of interleaved repetitions as rates and ratios; only the ratios mean anything on a shared machine. All
send messages of the same size to the byte, so that what the broker does for them is the same. What an application
hands over is made before the clock starts: envelopes here, body and properties elsewhere; the bare socket's frames too,
and it is one thread: the ceiling.
"""

import asyncio
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from itertools import islice
from typing import Any

import aio_pika
import pika
from bare_socket import BareSocket
from interleaved import interleaved, rate_of, report

from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend, RabbitMqDelivery, codec

QUEUE = "queuey.benchmark"
DEAD = f"{QUEUE}.dead"
PAYLOAD = {"to": "someone@example.com", "subject": "x" * 60, "body": "y" * 40}
COUNT = 10_000
ONE_BY_ONE = 1_000
WINDOW = 1_000
CALLERS = 8
PREFETCH = 256


def envelope(now_ms: int) -> Envelope:
    return Envelope(job_id=uuid.uuid4(), job_type="send_email", queue=QUEUE, enqueued_at_ms=now_ms, payload=PAYLOAD)


BODY = envelope(1_700_000_000_000).to_bytes()
PROPERTIES = codec.props_for(envelope(1_700_000_000_000))
ENCODED_PROPERTIES = b"".join(PROPERTIES.encode())


def in_threads(count: int, work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Queuey:
    """This project: what applications call."""

    def __init__(self, url: str) -> None:
        self.backend = RabbitMqBackend.connect(url)
        self.config = QueueConfig(QUEUE, prefetch=PREFETCH)
        self.backend.declare([self.config])

    def prepare(self, count: int) -> None:
        """Make the envelopes that are published next: each has an id of its own."""
        now_ms = self.backend.now_ms()
        self.envelopes = iter([envelope(now_ms) for _ in range(count)])

    def publish_in_window(self) -> None:
        errors = self.backend.publish_many(islice(self.envelopes, COUNT))
        assert not errors, f"not confirmed: {errors}"

    def publish_nowait(self) -> None:
        futures = [self.backend.publish_nowait(envelope) for envelope in islice(self.envelopes, COUNT)]
        for future in futures:
            future.result(60)

    def publish_one_by_one(self) -> None:
        self._publish(ONE_BY_ONE)

    def publish_from_callers(self) -> None:
        in_threads(CALLERS, lambda: self._publish(ONE_BY_ONE // 2))

    def _publish(self, count: int) -> None:
        for envelope in islice(self.envelopes, count):
            self.backend.publish(envelope)

    def consume_and_ack(self) -> None:
        self._consume(RabbitMqDelivery.ack)

    def dead_letter(self) -> None:
        self._consume(lambda delivery: delivery.dead_letter_nowait("as measured"))

    def _consume(self, settle: Callable[[RabbitMqDelivery], Future[None] | None]) -> None:
        """Settle all that there is in threads, as a worker does."""
        settled = threading.Semaphore(0)

        def take() -> None:
            for delivery in deliveries:
                future = settle(delivery)
                if future is None:
                    settled.release()
                else:
                    future.add_done_callback(lambda _: settled.release())

        with self.backend.consume(self.config) as deliveries:
            threads = [threading.Thread(target=take) for _ in range(CALLERS)]
            for thread in threads:
                thread.start()
            for _ in range(COUNT):
                settled.acquire()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        self.backend.close()


class AioPika:
    """aio-pika, used as its documentation does."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.connection = self.run(aio_pika.connect(f"{url}?heartbeat=0"))
        self.channels = self.run(self._open_channels())

    async def _open_channels(self) -> list[Any]:
        channels = [self.connection.channel() for _ in range(CALLERS)]
        for channel in channels:
            await channel.initialize()
        return channels

    def run(self, coroutine: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def _publish(self, channel: Any, queue: str = QUEUE) -> None:
        message = aio_pika.Message(
            BODY,
            content_type="application/json",
            delivery_mode=2,
            priority=0,
            message_id=PROPERTIES.message_id,
            type="send_email",
            headers=PROPERTIES.headers,
        )
        await channel.default_exchange.publish(message, queue)

    def publish_in_window(self) -> None:
        async def windows() -> None:
            for _ in range(COUNT // WINDOW):
                await asyncio.gather(*(self._publish(self.channels[0]) for _ in range(WINDOW)))

        self.run(windows())

    def publish_one_by_one(self) -> None:
        self.run(self._publish_some(self.channels[0], ONE_BY_ONE))

    def publish_from_callers(self) -> None:
        async def callers() -> None:
            await asyncio.gather(*(self._publish_some(channel, ONE_BY_ONE // 2) for channel in self.channels))

        self.run(callers())

    async def _publish_some(self, channel: Any, count: int) -> None:
        for _ in range(count):
            await self._publish(channel)

    def consume_and_ack(self) -> None:
        async def settle(message: Any, _channel: Any) -> None:
            await message.ack()

        self.run(self._consume(settle))

    def dead_letter(self) -> None:
        async def settle(message: Any, channel: Any) -> None:
            await self._publish(channel, DEAD)
            await message.ack()

        self.run(self._consume(settle))

    async def _consume(self, settle: Callable[[Any, Any], Awaitable[None]]) -> None:
        done = asyncio.Event()
        left = COUNT

        async def take(message: Any) -> None:
            nonlocal left
            await settle(message, publisher)
            left -= 1
            if left == 0:
                done.set()

        channel, publisher = await self.connection.channel(), self.channels[0]
        await channel.set_qos(PREFETCH)
        queue = await channel.get_queue(QUEUE)
        await queue.consume(take)
        await done.wait()
        await channel.close()

    def close(self) -> None:
        self.run(self.connection.close())
        self.loop.close()


class Bare:
    """A bare socket for each purpose."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.socket = BareSocket(url)
        self.socket.confirm_select()
        for channel in range(2, CALLERS + 1):
            self.socket.open_channel(channel)
            self.socket.confirm_select(channel)

    def _publish(self, count: int, window: int) -> None:
        self.socket.publish_confirmed(QUEUE, BODY, count=count, window=window, properties=ENCODED_PROPERTIES)

    def publish_in_window(self) -> None:
        self._publish(COUNT, WINDOW)

    def publish_one_by_one(self) -> None:
        self._publish(ONE_BY_ONE, 1)

    def publish_from_callers(self) -> None:
        self._publish(CALLERS * ONE_BY_ONE // 2, CALLERS)

    def publish_on_channels(self) -> None:
        self.socket.publish_confirmed_on_channels(
            QUEUE, BODY, count=CALLERS * ONE_BY_ONE // 2, channels=CALLERS, properties=ENCODED_PROPERTIES
        )

    def consume_and_ack(self) -> None:
        consumer = BareSocket(self.url)
        consumer.consume_and_ack(QUEUE, count=COUNT, prefetch=PREFETCH)
        consumer.close()

    def dead_letter(self) -> None:
        consumer = BareSocket(self.url)
        consumer.confirm_select()
        consumer.republish_and_ack(QUEUE, DEAD, BODY, count=COUNT, prefetch=PREFETCH, properties=ENCODED_PROPERTIES)
        consumer.close()

    def close(self) -> None:
        self.socket.close()


class Blocking:
    """pika's BlockingConnection."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=0"))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def publish_one_by_one(self) -> None:
        for _ in range(ONE_BY_ONE):
            self.channel.basic_publish("", QUEUE, BODY, PROPERTIES, mandatory=True)

    def empty(self) -> None:
        for queue in (QUEUE, DEAD):
            self.channel.queue_purge(queue)

    def close(self) -> None:
        for queue in (QUEUE, DEAD):
            self.channel.queue_delete(queue)
        self.connection.close()


class Benchmark:
    """The contestants, who take turns."""

    def __init__(self, url: str, repetitions: int) -> None:
        self.repetitions = repetitions
        self.queuey, self.aio_pika, self.bare, self.blocking = Queuey(url), AioPika(url), Bare(url), Blocking(url)

    def run(self, title: str, works: dict[str, Callable[[], None]], *, count: int, filled: bool = False) -> None:
        def measure(work: Callable[[], None]) -> float:
            if filled:
                self.bare.publish_in_window()
            else:
                self.queuey.prepare(count)
            rate = rate_of(count, work)
            self.blocking.empty()
            return rate

        contestants = {name: lambda work=work: measure(work) for name, work in works.items()}
        report(title, interleaved(contestants, repetitions=self.repetitions), against="bare socket")

    def publish(self) -> None:
        self.run(
            f"confirmed publish, up to {WINDOW} in flight",
            {
                "bare socket": self.bare.publish_in_window,
                "queuey, publish_many": self.queuey.publish_in_window,
                "queuey, publish_nowait": self.queuey.publish_nowait,
                "aio-pika": self.aio_pika.publish_in_window,
            },
            count=COUNT,
        )
        self.run(
            f"confirmed publish, {CALLERS} callers of one each",
            {
                "bare socket": self.bare.publish_on_channels,
                "bare socket, one channel": self.bare.publish_from_callers,
                "queuey": self.queuey.publish_from_callers,
                "aio-pika": self.aio_pika.publish_from_callers,
            },
            count=CALLERS * ONE_BY_ONE // 2,
        )
        self.run(
            "confirmed publish, one outstanding",
            {
                "bare socket": self.bare.publish_one_by_one,
                "queuey": self.queuey.publish_one_by_one,
                "aio-pika": self.aio_pika.publish_one_by_one,
                "pika BlockingConnection": self.blocking.publish_one_by_one,
            },
            count=ONE_BY_ONE,
        )

    def consume(self) -> None:
        self.run(
            f"consume and ack, prefetch {PREFETCH} (queuey: {CALLERS} threads; bare socket: single acks)",
            {
                "bare socket": self.bare.consume_and_ack,
                "queuey": self.queuey.consume_and_ack,
                "aio-pika": self.aio_pika.consume_and_ack,
            },
            count=COUNT,
            filled=True,
        )
        self.run(
            f"consume, publish to another queue and ack when that is confirmed, prefetch {PREFETCH}",
            {
                "bare socket": self.bare.dead_letter,
                "queuey": self.queuey.dead_letter,
                "aio-pika": self.aio_pika.dead_letter,
            },
            count=COUNT,
            filled=True,
        )

    def close(self) -> None:
        for contestant in (self.queuey, self.aio_pika, self.bare, self.blocking):
            contestant.close()


def main(url: str, repetitions: int) -> None:
    print(f"body of {len(BODY)} bytes, persistent, mandatory, durable classic queue, {repetitions} repetitions")
    benchmark = Benchmark(url, repetitions)
    benchmark.publish()
    benchmark.consume()
    benchmark.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
