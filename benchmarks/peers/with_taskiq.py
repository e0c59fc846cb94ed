"""The job in taskiq, through its broker on aio-pika; a plain function, which it runs in threads."""

import asyncio

from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType

from peers import measured

broker = AioPikaBroker(
    measured.URL,
    qos=measured.PREFETCH,
    exchange=Exchange(name="benchmark.taskiq"),
    task_queues=[Queue(name="benchmark.taskiq", type=QueueType.CLASSIC)],
)


@broker.task(task_name="noop")
def noop(sent_ns: int) -> None:
    measured.handled(sent_ns)


async def send_all(many: list[int]) -> None:
    for sent_ns in many:
        await noop.kiq(sent_ns)


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        runner.run(broker.startup())
        measured.enqueue(lambda many: runner.run(send_all(many)), lambda sent_ns: runner.run(send_all([sent_ns])))
        runner.run(broker.shutdown())
