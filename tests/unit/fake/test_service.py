"""The development broker: a process with a port, and control over HTTP for test suites in other languages."""

import json
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from queuey_fake.__main__ import _end, _parse, _serve, _ToldToEndError
from queuey_fake.clock import ManualClock, SystemClock
from queuey_fake.control import ControlServer, plain
from queuey_fake.model.fields import Field, longstr
from queuey_fake.model.properties import Properties
from queuey_fake.service import Service

TIMEOUT_S = 10.0


@pytest.fixture
def service() -> Iterator[Service]:
    with Service("4.3", clock=ManualClock()) as service:
        yield service


@pytest.fixture
def control(service: Service) -> Iterator[ControlServer]:
    with ControlServer(service) as control:
        yield control


def ask(url: str, body: Any = None, *, method: str = "GET") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, method=method)  # noqa: S310  the URL is the test's own
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  as above
        return json.load(answer)


def refusal(url: str, body: Any = None, *, method: str = "POST") -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(url, body, method=method)
    with caught.value as answer:
        return answer.code, json.load(answer)["error"]


def publish(url: str, queue: str, *, expiration: str | None = None) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"job", pika.BasicProperties(expiration=expiration, headers={"a": 1}))
    connection.close()


def test_time_is_moved_over_http(service: Service, control: ControlServer) -> None:
    publish(service.url, "q", expiration="30000")
    before = ask(f"{control.url}/now")["now_ms"]
    [pending] = ask(f"{control.url}/pending")
    assert (pending["queue"], pending["due_at_ms"] - before, pending["what"]) == ("q", 30_000, "message expires")
    assert ask(f"{control.url}/advance", {"ms": 30_000}, method="POST") == {"now_ms": before + 30_000}
    assert ask(f"{control.url}/queues")[0]["ready"] == 0


def test_queues_are_shown_in_plain_words(service: Service, control: ControlServer) -> None:
    publish(service.url, "q")
    [queue] = ask(f"{control.url}/queues")
    assert (queue["name"], queue["ready"], queue["durable"], queue["type"]) == ("q", 1, True, "classic")
    [message] = queue["messages"]
    assert (message["body"], message["properties"]) == ("job", {"headers": {"a": 1}})


def test_a_reset_forgets_everything_and_keeps_the_port(service: Service, control: ControlServer) -> None:
    publish(service.url, "q")
    url = service.url
    assert ask(f"{control.url}/reset", method="POST") == {}
    assert ask(f"{control.url}/queues") == []
    assert service.url == url
    publish(url, "q")


def test_the_port_is_open_while_everything_is_forgotten(service: Service, control: ControlServer) -> None:
    def listening_sockets() -> list[str]:
        address, listens = f"0100007F:{urlsplit(service.url).port:04X}", "0A"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return [
            inode for _, local, _, state, _, _, _, _, _, inode, *_ in lines[1:] if (local, state) == (address, listens)
        ]

    [inode] = listening_sockets()
    assert ask(f"{control.url}/reset", method="POST") == {}
    assert listening_sockets() == [inode]


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"ms": "1"}', b'{"ms": true}'])
def test_a_request_that_makes_no_sense_is_refused(control: ControlServer, body: bytes) -> None:
    code, text = refusal(f"{control.url}/advance", body)
    assert code == 400
    assert "ms" in text or "JSON" in text


def test_time_does_not_go_back(control: ControlServer) -> None:
    assert refusal(f"{control.url}/advance", {"ms": -1}) == (409, "time advances forwards, not by -1 ms")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_there_is_not_is_not_found(control: ControlServer, method: str) -> None:
    assert refusal(f"{control.url}/nope", method=method)[0] == 404


def test_real_time_is_not_moved() -> None:
    with Service("4.3", clock=SystemClock()) as service, ControlServer(service) as control:
        code, text = refusal(f"{control.url}/advance", {"ms": 1})
    assert code == 409
    assert "--clock virtual" in text


def test_values_that_json_has_no_word_for_are_written_with_the_words_it_has() -> None:
    assert plain({"a": Field("array", (longstr("x"), Field("bool", True)))}) == {"a": ["x", True]}
    assert plain(b"\xff") == {"base64": "/w=="}
    assert plain(Field("table", {"\udcff": longstr("x")})) == {"\ufffd": "x"}
    assert plain(Properties(priority=3)) == {"priority": 3}


def test_a_flood_of_connections_is_waited_out() -> None:
    command = [sys.executable, "-m", "queuey_fake", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603  as below
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        port = int(url.split(":")[-1].partition("/")[0])
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (32, 32))
        flood = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(60)]
        for each in flood:
            each.close()
        publish(url, "q")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_the_process_ends_however_often_it_is_told() -> None:
    command = [sys.executable, "-m", "queuey_fake", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  as below
        assert process.stdout is not None
        assert process.stdout.readline()
        for _ in range(50):
            process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_a_signal_may_come_while_the_thread_holds_any_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(_ToldToEndError):
        _end(signal.SIGTERM, None)


def test_closing_a_service_twice_is_fine(service: Service) -> None:
    service.close()
    service.close()
    service.clock.advance(1)  # type: ignore[attr-defined]  # a manual one


def test_a_port_that_cannot_be_had_is_said_in_a_sentence(service: Service) -> None:
    taken = service.url.rpartition(":")[2].partition("/")[0]
    with pytest.raises(SystemExit, match=f"port {taken} of 127.0.0.1 cannot be opened: .*in use"):
        _serve(_parse(["--port", taken]))
    with pytest.raises(SystemExit, match=f"port {taken} of 127.0.0.1, for the control, cannot be opened"):
        _serve(_parse(["--port", "0", "--control", taken]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "argument --port: expected a port, 0 to 65535, got '70000'"),
        (["--control", "x"], "argument --control: expected a port, 0 to 65535, got 'x'"),
        (["--permit", "streams"], "argument --permit: invalid choice: 'streams'"),
    ],
)
def test_options_that_can_never_work_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        _parse(arguments)
    assert said in capsys.readouterr().err


def test_the_process_says_where_it_is_and_ends_when_it_is_told() -> None:
    command = [sys.executable, "-m", "queuey_fake", "--port", "0", "--clock", "virtual", "--control", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  the command is the test's own
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        control = process.stdout.readline().split()[-1]
        publish(url, "q")
        assert [queue["name"] for queue in ask(f"{control}/queues")] == ["q"]
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
