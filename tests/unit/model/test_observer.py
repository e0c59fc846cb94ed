from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queuey_fake.model.message import Message

if TYPE_CHECKING:
    from tests.unit.model.conftest import Client


class Recorder:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        self.numbers: set[int] = set()

    def report(self, what: str, message: Message, *, queue: str, detail: str, at_ms: int) -> None:
        assert at_ms >= 0
        self.heard.append((what, queue, detail))
        self.numbers.add(message.number)


@pytest.fixture
def recorder(client: Client) -> Recorder:
    recorder = Recorder()
    client.broker.observe(recorder)
    return recorder


def test_the_story_of_a_message_that_expires_and_is_settled(client: Client, recorder: Recorder) -> None:
    client.declare("d")
    client.declare("q", arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"})
    client.consume("d", "t")
    client.publish("q", "a")
    client.wait(10)
    client.channel.basic_nack(1)
    client.channel.basic_ack(2)
    assert recorder.heard == [
        ("published", "", ""),
        ("queued", "q", ""),
        ("expired", "q", ""),
        ("dead-lettered", "d", "expired"),
        ("queued", "d", ""),
        ("delivered", "d", "t"),
        ("requeued", "d", ""),
        ("delivered", "d", "t"),
        ("acknowledged", "d", ""),
    ]
    assert len(recorder.numbers) == 1


def test_every_loss_says_why(client: Client, recorder: Recorder) -> None:
    client.declare("q", arguments={"x-max-length": 1})
    client.publish("nowhere", "a")
    client.publish("nowhere", "b", mandatory=True)
    client.publish("q", "c", "d")
    client.channel.queue_delete("q")
    assert [told for told in recorder.heard if told[0] not in {"published", "queued"}] == [
        ("unroutable", "", ""),
        ("returned", "", ""),
        ("overflowed", "q", ""),
        ("dropped", "q", "maxlen"),
        ("lost", "q", "the queue was deleted"),
    ]


def test_a_dead_letter_that_leads_nowhere_is_a_loss(client: Client, recorder: Recorder) -> None:
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "missing"})
    client.publish("q", "a")
    client.get("q", ack=False)
    client.channel.basic_reject(1, requeue=False)
    assert recorder.heard[-2:] == [
        ("rejected", "q", ""),
        ("dropped", "q", "rejected, and the dead-letter exchange leads to no queue"),
    ]


def test_nothing_is_told_after_the_observer_was_taken_away(client: Client, recorder: Recorder) -> None:
    client.broker.observe(None)
    client.publish("nowhere", "a")
    assert recorder.heard == []
