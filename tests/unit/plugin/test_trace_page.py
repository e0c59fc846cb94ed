"""A page of a test shows where each message was and when, in order, within bounds, and lets nothing of a test run."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser

import pika
import pytest

from pytest_queuey.trace.axis import axis_of
from pytest_queuey.trace.chosen import MAX_EVENTS, MAX_MESSAGES, choose
from pytest_queuey.trace.lanes import LOST, NO_QUEUE, Scene, Stay, scene_of
from pytest_queuey.trace.page import page
from pytest_queuey.trace.recording import Recording
from pytest_queuey.trace.result import Result
from pytest_queuey.trace.steps import steps_of
from queuey_fake import FakeBroker, ManualClock
from queuey_fake.journal import Journal
from queuey_fake.model.message import Message
from queuey_fake.model.properties import Properties
from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqBackend

EMAILS = QueueConfig("emails", prefetch=1)
DAY_S = 86_400
HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(clock=ManualClock(datetime(2030, 1, 1, tzinfo=UTC))) as broker:
        yield broker


@pytest.fixture
def backend(broker: FakeBroker) -> RabbitMqBackend:
    backend = broker.backend()
    backend.declare([EMAILS])
    return backend


@pytest.fixture
def channel(broker: FakeBroker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


class Tags(HTMLParser):
    """What a browser makes of a page: its tags, their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.values: set[str | None] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.values |= {value for _, value in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def job(backend: RabbitMqBackend, payload: object = None) -> Envelope:
    return Envelope(
        job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=payload
    )


def scene(broker: FakeBroker) -> Scene:
    return scene_of(steps_of(broker.journal.lives()))


def stays_in(broker: FakeBroker, queue: str) -> list[Stay]:
    return [stay for stay in scene(broker).stays if stay.queue == queue]


def html_of(broker: FakeBroker, test: str = "test_it.py::test_it") -> str:
    return page(Result(test, "passed"), Recording.of(broker))


# ------------------------------------------------------------------------------------------------ lanes


def test_a_deferred_job_is_in_hand_then_held_then_back_in_its_queue(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    backend.publish(job(backend))
    with backend.consume(EMAILS) as deliveries:
        delivery = next(deliveries)
        delivery.defer(delivery.envelope.deferred(5), 30)
        next(deliveries).ack()
    seen = scene(broker)
    assert [lane.queue for lane in seen.lanes] == ["emails", "emails.deferred.30000"]
    first, held, back = seen.stays
    assert first.out == [(1, 3)]  # delivered, and acknowledged once the other was published
    assert (held.queue, held.first, held.last, held.held) == ("emails.deferred.30000", 2, 4, True)
    assert (back.queue, back.first, back.out) == ("emails", 4, [(5, 6)])
    assert [(link.origin, link.target, link.is_same_message) for link in seen.links] == [
        (first, held, False),
        (held, back, True),
    ]


def test_marks_of_a_message_are_in_the_order_in_which_they_happened(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    for number in range(3):
        backend.publish(job(backend, number))
    with backend.consume(EMAILS) as deliveries:
        for _ in range(3):
            next(deliveries).ack()
    for stay in stays_in(broker, "emails"):
        assert [mark.kind for mark in stay.marks] == ["published", "delivered", "acknowledged"]
        columns = [mark.column for mark in stay.marks]
        assert columns == sorted(set(columns))


def test_columns_never_contradict_the_order_of_events(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with backend.consume(EMAILS) as deliveries:
        for number in range(20):
            backend.publish(job(backend, number))
            delivery = next(deliveries)
            delivery.defer(delivery.envelope.deferred(0), 1 + number % 3)
            broker.advance(0.5)
    columns = [step.column for step in steps_of(broker.journal.lives())]
    assert columns == sorted(columns)


def test_messages_that_are_published_at_once_share_a_column_and_no_row(
    broker: FakeBroker, backend: RabbitMqBackend
) -> None:
    for number in range(50):
        backend.publish(job(backend, number))
    stays = stays_in(broker, "emails")
    assert {stay.first for stay in stays} == {0}
    assert [stay.row for stay in stays] == list(range(50))


def test_a_row_is_used_again_when_its_message_has_left(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    with backend.consume(EMAILS) as deliveries:
        for number in range(5):
            backend.publish(job(backend, number))
            next(deliveries).ack()
            broker.advance(1)
    (lane,) = scene(broker).lanes
    assert (lane.rows, lane.messages) == (1, 5)


def test_what_is_still_there_at_the_end_has_no_last_column(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    (stay,) = stays_in(broker, "emails")
    assert (stay.last, stay.out) == (None, [])
    assert 'href="#still"' in html_of(broker)


def test_a_message_that_needs_no_acknowledgement_leaves_as_it_is_taken(
    broker: FakeBroker,
    backend: RabbitMqBackend,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    backend.publish(job(backend))
    channel.basic_get("emails", auto_ack=True)
    (stay,) = stays_in(broker, "emails")
    assert [mark.kind for mark in stay.marks] == ["published", "got", "acknowledged"]
    assert stay.last is not None


# ------------------------------------------------------------------------------------------------ losses


def test_a_loss_is_marked_in_words_where_it_happened(
    broker: FakeBroker,
    backend: RabbitMqBackend,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    backend.defer(job(backend), 30)
    channel.queue_delete("emails")
    broker.advance(30)
    seen = scene(broker)
    (lane,) = seen.lanes
    assert (lane.queue, lane.losses) == ("emails.deferred.30000", 1)
    assert [mark.kind for mark in seen.stays[0].marks] == ["published", LOST]
    assert ">LOST</text>" in html_of(broker)
    assert "✖ dropped in 'emails.deferred.30000' (expired, and the dead-letter exchange" in html_of(broker)
    broker.journal.expect_loss(reason="expired")
    assert ">lost, as expected</text>" in html_of(broker)


def test_what_no_queue_takes_is_in_a_lane_of_its_own(
    broker: FakeBroker, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.basic_publish("", "nowhere", b"x")
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    channel.exchange_declare("amq.direct", passive=True)  # answered when the publishes before it are done
    seen = scene(broker)
    assert [lane.queue for lane in seen.lanes] == [NO_QUEUE]
    assert [mark.kind for stay in seen.stays for mark in stay.marks] == [LOST, "returned"]


def test_what_a_full_queue_drops_and_what_somebody_asked_for_are_not_the_same(
    broker: FakeBroker, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare("short", durable=True, arguments={"x-max-length": 1})
    for _ in range(2):
        channel.basic_publish("", "short", b"x")
    method, _, _ = channel.basic_get("short")
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.queue_declare("short", passive=True)
    assert [stay.marks[-1].kind for stay in stays_in(broker, "short")] == [LOST, "dropped"]


# ------------------------------------------------------------------------------------------------ time


def test_the_axis_keeps_the_order_and_shortens_the_gaps() -> None:
    axis = axis_of([0, 0, 30_000, 24 * DAY_S * 1000, 24 * DAY_S * 1000], 24 * DAY_S * 1000)
    assert axis.columns == sorted(set(axis.columns))
    assert [instant.gap for instant in axis.instants] == ["", "30 s later", "23 d 23 h later"]
    assert [instant.since_start for instant in axis.instants] == ["start", "+30 s", "+24 d"]
    assert axis.width < 700


def test_labels_of_instants_do_not_run_into_each_other() -> None:
    axis = axis_of([number * 3_600_000 for number in range(30)], 30 * 3_600_000)
    for before, instant in zip(axis.instants, axis.instants[1:], strict=False):
        assert instant.gap_left == before.right
        assert instant.left - instant.gap_left >= 6 * len(instant.gap)
        assert instant.right - instant.left >= 6 * len(instant.clock)


def test_time_that_goes_back_is_said_to() -> None:
    axis = axis_of([DAY_S * 1000, 0], 0)
    assert [instant.gap for instant in axis.instants] == ["", "1 d earlier"]
    assert axis.columns[0] < axis.columns[1]


def test_the_end_of_the_test_is_on_the_axis(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    broker.advance(24 * DAY_S)
    assert "24 d later" in html_of(broker)
    assert "24 d of virtual time from 2030-01-01T00:00:00.000+00:00" in html_of(broker)


# ------------------------------------------------------------------------------------------------ bounds


def made_up(messages: int, *, laps: int = 0, lost: int = 0) -> Recording:
    """Record messages that came back to their queue so many times, and others that no queue took."""
    journal = Journal()
    taken = [Message(number, "", "work", Properties(), b"x") for number in range(1, messages + 1)]
    for message in taken:
        journal.report("published", message, queue="", detail="", at_ms=0)
        journal.report("queued", message, queue="work", detail="", at_ms=0)
        for _ in range(laps):
            journal.report("delivered", message, queue="work", detail="tag", at_ms=0)
            journal.report("requeued", message, queue="work", detail="", at_ms=0)
    for number in range(messages + 1, messages + lost + 1):
        message = Message(number, "", "nowhere", Properties(), b"x")
        journal.report("unroutable", message, queue="", detail="", at_ms=0)
    return Recording(
        version="4.3",
        lives=journal.lives(),
        forgotten=journal.forgotten,
        lost=frozenset(loss.number for loss in journal.losses),
        expected=frozenset(),
        begun_ms=0,
        ended_ms=0,
        at_the_end="",
    )


def test_of_thousands_of_messages_the_lost_and_the_first_are_shown_and_the_page_says_so() -> None:
    recording = made_up(5_000, lost=1)
    chosen = choose(recording.lives, lost=recording.lost, forgotten=7)
    assert [life.number for life in chosen.lives] == [*range(1, MAX_MESSAGES), 5_001]
    assert chosen.left_out[0].startswith("300 of 5,001 messages are shown: lost ones before all others")
    assert chosen.left_out[1] == "7 older messages are forgotten."
    html = page(Result("test_it", "passed"), recording)
    assert "300 of 5,001 messages are shown" in html
    assert len(html) < 200_000


def test_events_are_bounded_too_and_a_long_life_says_what_is_left_out() -> None:
    recording = made_up(30, laps=150)
    chosen = choose(recording.lives, lost=frozenset(), forgotten=0)
    assert sum(len(life.events) for life in chosen.lives) <= MAX_EVENTS
    assert chosen.left_out[0].startswith("12 of 30 messages are shown")
    assert chosen.left_out[1] == "1,224 events from the middle of the very long lives of 12 messages are left out."
    assert len(page(Result("test_it", "passed"), recording)) < 400_000


def test_a_typical_page_is_small(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    for number in range(20):
        backend.publish(job(backend, number))
    with backend.consume(EMAILS) as deliveries:
        for _ in range(20):
            delivery = next(deliveries)
            delivery.retry(delivery.envelope.next_attempt(), 5)
    assert len(html_of(broker)) < 60_000


# ------------------------------------------------------------------------------------------------ safety


def test_hostile_names_and_bodies_are_text_and_nothing_else(
    broker: FakeBroker, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare(HOSTILE, durable=True)
    properties = pika.BasicProperties(message_id=HOSTILE, type=HOSTILE)
    channel.basic_publish("", HOSTILE, HOSTILE.encode(), properties)
    channel.queue_declare(HOSTILE, passive=True)
    html = html_of(broker, test=f"test_it.py::test_it[{HOSTILE}]")
    tags = Tags()
    tags.feed(html)
    assert tags.seen["script"] == 1
    assert not {name for name in tags.attributes if name.startswith("on")} | (tags.seen.keys() & {"iframe", "img"})
    assert tags.text.count(HOSTILE) >= 5  # the test, the queue, the id, the type, the body
    assert HOSTILE in tags.values


def test_a_page_asks_for_nothing_outside_itself(broker: FakeBroker, backend: RabbitMqBackend) -> None:
    backend.publish(job(backend))
    html = html_of(broker)
    assert re.findall(r"(?:https?:)?//[a-z]|@import|url\(", html.partition("<script>")[0]) == []
    assert "default-src 'none'" in html


def test_a_page_without_messages_says_so(broker: FakeBroker) -> None:
    assert "Nothing was published." in html_of(broker)
