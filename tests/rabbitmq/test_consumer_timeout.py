"""A delivery that is held longer than the broker's consumer_timeout allows.

For it RabbitMQ 3.10 and 4.0 close the channel; 4.3 cancels the consumer, and of quorum queues alone. Seen on all three.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from queuey_rabbitmq import DeliveryLost, Envelope, QueueConfig, RabbitMqBackend
from tests.rabbitmq.private_broker import PrivateBroker

SET = """
application:set_env(rabbit, consumer_timeout, {}), application:set_env(rabbit, channel_tick_interval, {}), <<"set">>
"""


@pytest.fixture
def hasty_broker(private_broker: PrivateBroker) -> Iterator[PrivateBroker]:
    """A broker that waits for half a second for an acknowledgement."""
    private_broker.evaluate(SET.format(500, 200))
    yield private_broker
    private_broker.evaluate(SET.format(1_800_000, 60_000))


def test_it_comes_again_and_the_consumer_goes_on_and_the_late_outcome_is_counted(hasty_broker: PrivateBroker) -> None:
    config = QueueConfig(f"queuey-test-{uuid.uuid4()}", prefetch=2, queue_type="quorum")

    def job(payload: str) -> Envelope:
        return Envelope(job_id=uuid.uuid4(), job_type="x", queue=config.name, enqueued_at_ms=0, payload=payload)

    with RabbitMqBackend.connect(hasty_broker.url) as backend:
        backend.declare([config])
        backend.publish(job("held"))
        with backend.consume(config) as deliveries:
            held = deliveries.get(timeout=5)
            assert held is not None
            again = deliveries.get(timeout=15)
            assert again is not None
            assert again.envelope == held.envelope
            with pytest.raises(DeliveryLost):
                held.ack()
            again.ack()
            backend.publish(job("next"))
            following = deliveries.get(timeout=5)
            assert following is not None
            assert following.envelope.payload == "next"
            following.ack()
        assert backend.stale_settlements == 1
