"""The broker model alone, against kombu's in-memory transport: publish, get and ack of one message.

python benchmarks/model_against_kombu.py [repetitions]
"""

import sys

import kombu
from interleaved import interleaved, rate_of, report

from queuey_fake.model.broker import Broker
from queuey_fake.model.fields import Field
from queuey_fake.model.properties import Properties

COUNT = 5_000
BODY = b'{"to": "someone@example.com", "subject": "' + b"x" * 60 + b'", "body": "' + b"y" * 180 + b'"}'


def model() -> float:
    connection = Broker().connect()
    channel = connection.open_channel(1)
    channel.confirm_select()
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": Field("signedint", 10)})
    outbox = connection.outbox
    outbox.clear()
    properties = Properties(content_type="application/json", delivery_mode=2, priority=0, message_id="m")

    def work() -> None:
        for _ in range(COUNT):
            channel.basic_publish("", "q", properties, BODY, mandatory=True)
            outbox.popleft()
            channel.basic_get("q")
            channel.basic_ack(outbox.popleft().delivery_tag)

    return rate_of(COUNT, work)


def kombu_memory() -> float:
    with kombu.Connection("memory://") as connection:
        channel = connection.channel()
        channel.queue_declare("q")

        def work() -> None:
            for _ in range(COUNT):
                message = channel.prepare_message(BODY, content_type="application/json", content_encoding="utf-8")
                channel.basic_publish(message, "", "q")
                channel.basic_ack(channel.basic_get("q").delivery_tag)

        return rate_of(COUNT, work)


def main(repetitions: int) -> None:
    medians = interleaved({"kombu memory": kombu_memory, "queuey_fake.model": model}, repetitions=repetitions)
    report("publish (confirmed), get and ack, one message at a time", medians, against="kombu memory")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
