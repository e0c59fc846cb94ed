"""A trace as a browser shows it: every lane and message is there, its script runs, and nothing else does.

Runs where it is asked for, by `tox -e browser` (QUEUEY_BROWSER=1), for it needs Debian's package chromium.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pika
import pytest

from pytest_queuey.trace.page import page
from pytest_queuey.trace.recording import Recording
from pytest_queuey.trace.result import Result
from queuey_fake import FakeBroker
from queuey_rabbitmq import Envelope, QueueConfig
from tests.browser import picture
from tests.browser.chromium import DARK, dom_of, screenshot_of

pytestmark = pytest.mark.skipif(os.environ.get("QUEUEY_BROWSER") != "1", reason="runs by itself: tox -e browser")

EMAILS = QueueConfig("emails", prefetch=5)


class Trap(BaseHTTPRequestHandler):
    """Takes note of whoever comes."""

    came: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.came.append(self.path)
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def trap() -> Iterator[str]:
    """The URL of a server that nobody should ask for anything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Trap)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(timeout=10)
    server.server_close()


def publish(broker: FakeBroker, count: int) -> None:
    """Publish jobs, defer the first, and handle the others, a second each."""
    with broker.backend() as backend:
        backend.declare([EMAILS])
        for number in range(count):
            envelope = Envelope(
                job_id=uuid.uuid4(), job_type="send", queue="emails", enqueued_at_ms=backend.now_ms(), payload=number
            )
            backend.publish(envelope)
        with backend.consume(EMAILS) as deliveries:
            first = next(deliveries)
            first.defer(first.envelope.deferred(5), 30)
            for _ in range(count - 1):
                broker.advance(1)
                next(deliveries).ack()


def lose(broker: FakeBroker, name: str, body: bytes) -> None:
    """Lose a message: publish it to a queue that has no room, and one to no queue."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-max-length": 1})
        for _ in range(2):
            channel.basic_publish("", name, body, pika.BasicProperties(message_id=name, type=name))
        channel.basic_publish("", "nowhere", body)
        channel.queue_declare(name, passive=True)


def write(broker: FakeBroker, folder: Path, test: str = "test_emails.py::test_it") -> tuple[Path, Recording]:
    recording = Recording.of(broker)
    path = folder / "page.html"
    path.write_text(page(Result(test, "passed"), recording), encoding="utf-8")
    return path, recording


@pytest.mark.parametrize("messages", [3, 200])
def test_every_lane_and_every_message_is_there(tmp_path: Path, messages: int) -> None:
    with FakeBroker() as broker:
        publish(broker, messages)
        lose(broker, "short", b"x")
        path, recording = write(broker, tmp_path)
    dom, console = dom_of(path, tmp_path / "profile")
    assert console == []
    queues = {event[3] for life in recording.lives for event in life.events} - {""}
    assert set(re.findall(r'data-queue="([^"]*)"', dom)) == queues | {""}
    assert {int(number) for number in re.findall(r'data-n="(\d+)"', dom)} == {life.number for life in recording.lives}
    assert len(re.findall(r">LOST</text>", dom)) == len(recording.lost) == 2
    stories = re.findall(r'<article id="j(\d+)"', dom)
    assert set(re.findall(r'data-j="(\d+)"', dom)) == set(stories)


def test_a_message_that_is_chosen_stands_out_and_tells_its_story(tmp_path: Path) -> None:
    with FakeBroker() as broker:
        publish(broker, 1)
        path, _ = write(broker, tmp_path)
    dom, console = dom_of(path, tmp_path / "profile", fragment="#j1")
    assert console == []
    assert dom.count('<a class="m on"') == 2  # the job's two messages: published, and deferred
    (panel,) = re.findall(r'<div id="panel" class="up">(.*?)</div>', dom, re.DOTALL)
    assert "queued in 'emails.deferred.30000'" in unescape(panel)


def test_it_is_readable_in_the_light_and_in_the_dark(tmp_path: Path) -> None:
    with FakeBroker() as broker:
        publish(broker, 10)
        path, _ = write(broker, tmp_path)
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html>")
    empty = screenshot_of(blank, tmp_path / "blank")
    light = screenshot_of(path, tmp_path / "light")
    dark = screenshot_of(path, tmp_path / "dark", *DARK)
    assert min(len(light), len(dark)) > 5 * len(empty)  # compressed: a blank page takes next to nothing
    assert light != dark


def test_the_picture_in_the_documentation_can_be_made_again(tmp_path: Path) -> None:
    made = tmp_path / "trace.png"
    picture.main(str(made))
    assert 50_000 < made.stat().st_size < 150_000


def test_nothing_that_a_test_says_is_run_or_fetched(tmp_path: Path, trap: str) -> None:
    hostile = f"</script><script>document.title='taken'</script><img src={trap}/i onerror=document.title='taken'>\"'"
    with FakeBroker() as broker:
        lose(broker, hostile, hostile.encode())
        path, _ = write(broker, tmp_path, test=f"test_it.py::test_it[{hostile}]")
    dom, console = dom_of(path, tmp_path / "profile")
    assert console == []
    assert "<title>test_it[&lt;/script&gt;" in dom
    assert hostile in unescape(dom)
    assert Trap.came == []


def test_even_what_is_not_escaped_would_be_neither_run_nor_fetched(tmp_path: Path, trap: str) -> None:
    injected = f"<script>document.title='taken'</script><img src={trap}/fetched>"
    with FakeBroker() as broker:
        publish(broker, 1)
        path, _ = write(broker, tmp_path)
    path.write_text(path.read_text().replace("<main>", f"<main>{injected}"))
    dom, console = dom_of(path, tmp_path / "profile")
    assert "<title>test_it: passed</title>" in dom
    assert len(console) == 2
    assert all("Content Security Policy" in line for line in console)
    assert Trap.came == []
    without_policy = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text())
    path.write_text(without_policy)
    dom, _ = dom_of(path, tmp_path / "other")
    assert "<title>taken</title>" in dom
    assert Trap.came == ["/fetched"]
