"""aio-pika, its robust connection included."""

import asyncio
from typing import Any

import pytest

from queuey_fake import FakeBroker

aio_pika = pytest.importorskip("aio_pika")
TIMEOUT_S = 10


async def work_off(url: str, arguments: dict[str, str]) -> tuple[list[Any], list[Any]]:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=1)
        dead = await channel.declare_queue("dead", durable=True)
        work = await channel.declare_queue("work", durable=True, arguments=arguments)
        for body in (b"acked", b"returned", b"rejected"):
            await channel.default_exchange.publish(aio_pika.Message(body, delivery_mode=2), "work")
        with pytest.raises(aio_pika.exceptions.PublishError):
            await channel.default_exchange.publish(aio_pika.Message(b"lost"), "nowhere")
        seen = []
        async with asyncio.timeout(TIMEOUT_S), work.iterator() as messages:
            async for message in messages:
                seen.append((message.body, message.redelivered))
                if message.body == b"acked":
                    await message.ack()
                else:
                    await message.nack(requeue=message.body == b"returned" and not message.redelivered)
                if message.body == b"rejected":
                    break
        return seen, [(await dead.get(no_ack=True, timeout=TIMEOUT_S)) for _ in range(2)]


def test_aio_pika_works_a_queue_off(broker: FakeBroker, dead_lettered: dict[str, str]) -> None:
    seen, dead = asyncio.run(work_off(broker.url, dead_lettered))
    assert seen == [(b"acked", False), (b"returned", False), (b"returned", True), (b"rejected", False)]
    assert [(message.body, message.headers["x-death"][0]["reason"]) for message in dead] == [
        (b"returned", "rejected"),
        (b"rejected", "rejected"),
    ]


async def receive_across_a_cut(broker: FakeBroker) -> set[bytes]:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def keep(message: Any) -> None:
        async with message.process():
            await received.put(message.body)

    async with await aio_pika.connect_robust(broker.url, reconnect_interval=0.05) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("work", durable=True)
        await queue.consume(keep)
        await channel.default_exchange.publish(aio_pika.Message(b"before"), "work")
        bodies = {await asyncio.wait_for(received.get(), TIMEOUT_S)}
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        restored = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: restored.set())
        broker.faults.drop_connections()
        await asyncio.wait_for(restored.wait(), TIMEOUT_S)
        await channel.default_exchange.publish(aio_pika.Message(b"after"), "work")
        while b"after" not in bodies:  # the first comes once more where the cut was before its ack
            bodies.add(await asyncio.wait_for(received.get(), TIMEOUT_S))
        return bodies


def test_aio_pika_restores_its_consumers_after_a_cut(broker: FakeBroker) -> None:
    assert asyncio.run(receive_across_a_cut(broker)) == {b"before", b"after"}


async def hold(broker: FakeBroker) -> tuple[bytes, str]:
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        work = await channel.declare_queue("work", durable=True)
        arguments = {"x-message-ttl": 3_600_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
        await channel.declare_queue("held", durable=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b"later"), "held")
        broker.advance(3600)
        message = await work.get(no_ack=True, timeout=TIMEOUT_S)
        return message.body, message.headers["x-death"][0]["reason"]


def test_time_is_moved_from_the_loop_that_runs_the_client() -> None:
    with FakeBroker() as broker:
        assert asyncio.run(hold(broker)) == (b"later", "expired")
