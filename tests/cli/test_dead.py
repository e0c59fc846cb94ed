"""`queuey dead`: what an operator sees of dead letters, and does with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_queuey.broker_under_test import BrokerUnderTest
from pytest_queuey.contract.broker_door import BrokerDoor
from queuey_rabbitmq import DeadLetters, Envelope, QueueConfig, RabbitMqBackend
from queuey_rabbitmq.amqp import Properties
from queuey_rabbitmq.cli.program import program

Run = Callable[..., Result]
Bury = Callable[..., Envelope]


@pytest.fixture
def left(queuey_backend: RabbitMqBackend, emails: QueueConfig) -> Callable[[], list[Any]]:
    """The payloads of what is in the dead queue, None for what is no job."""

    def left() -> list[Any]:
        letters = DeadLetters(queuey_backend, emails)
        return [None if letter.envelope is None else letter.envelope.payload for letter in letters]

    return left


def put(queuey_broker: BrokerUnderTest, queue: str, body: bytes, **properties: Any) -> None:
    with BrokerDoor(queuey_broker.url) as door:
        door.publish(queue, body, Properties(**properties))


def test_list_shows_a_table_oldest_first(
    run: Run, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    job = bury(1, "mailbox unknown", attempt=3, enqueued_at_ms=queuey_broker.now_ms() - 5_400_000)
    put(queuey_broker, f"{emails.name}.dead", b"hello")
    lines = run("dead", "list", emails.name).stdout.splitlines()
    assert lines[0].split() == ["#", "age", "job", "attempts", "reason", "id"]
    assert lines[1].split() == ["1", "1.5h", "send_email", "3", "mailbox", "unknown", str(job.job_id)]
    assert lines[2].split() == ["2", "?", "(no", "job)", "?", "(none", "given)"]
    assert lines[3] == f"2 of 2 dead letters of '{emails.name}'."


def test_list_says_that_a_limit_has_cut_it(run: Run, bury: Bury, emails: QueueConfig) -> None:
    for number in range(3):
        bury(number)
    said = run("dead", "list", emails.name, "--limit", "2").stdout.splitlines()[-1]
    assert said == (f"The first 2 that are meant, as --limit is 2; looked at 2 of 3 dead letters of '{emails.name}'.")


def test_list_of_nothing_says_so(run: Run, emails: QueueConfig) -> None:
    assert run("dead", "list", emails.name).stdout == f"No dead letters of '{emails.name}'.\n"


def test_list_for_scripts_has_one_object_in_a_line(
    run: Run, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    job = bury({"to": "ada"}, "mailbox unknown", attempt=3)
    put(queuey_broker, f"{emails.name}.dead", b"hello", headers={"n": 1})
    put(queuey_broker, f"{emails.name}.dead", b"\xff", headers={b"\xfe": [b"\xfe"]})
    first, second, third = map(json.loads, run("dead", "list", emails.name, "--json").stdout.splitlines())
    assert (first["job_id"], first["job_type"], first["attempts"]) == (str(job.job_id), "send_email", 3)
    assert (first["reason"], first["origin"], first["payload"]) == ("mailbox unknown", emails.name, {"to": "ada"})
    assert (second["job_id"], second["body"], second["headers"]) == (None, "hello", {"n": 1})
    assert (third["body_base64"], third["headers"]) == ("/w==", {r"\xfe": [r"\xfe"]})


def test_show_has_properties_headers_and_the_payload(run: Run, bury: Bury, emails: QueueConfig) -> None:
    job = bury({"to": "ada"}, "mailbox unknown", correlation_id="request 7")
    other = bury("another")
    shown = run("dead", "show", emails.name, "--id", str(job.job_id)).stdout
    for fact in ("mailbox unknown", str(job.job_id), "request 7", '"to": "ada"', "header x-death-reason", "s ago"):
        assert fact in shown
    assert str(other.job_id) not in shown


def test_what_somebody_wrote_into_a_message_is_shown_and_never_sent_to_the_terminal(
    run: Run, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    headers = {"x-death-reason": "\x1b[31m[red]\r"}
    put(queuey_broker, f"{emails.name}.dead", b"\x1b]0;title\x07 [bold]x", headers=headers)
    shown = run("dead", "show", emails.name).stdout + run("dead", "list", emails.name).stdout
    assert r"\x1b[31m[red]\r" in shown
    assert r"\x1b]0;title\x07 [bold]x" in shown
    assert "\x1b" not in shown


def test_requeue_puts_the_chosen_back_to_work(
    run: Run, bury: Bury, emails: QueueConfig, left: Callable[[], list[Any]], queuey_broker: BrokerUnderTest
) -> None:
    bury(1, "timeout", attempt=3)
    bury(2, "mailbox unknown")
    result = run("dead", "requeue", emails.name, "--reason", "TIMEOUT", "--type", "send_email", "--attempt", "first")
    assert (result.exit_code, result.stdout) == (0, f"1 of 2 dead letters of '{emails.name}' requeued.\n")
    assert left() == [2]
    with BrokerDoor(queuey_broker.url) as door:
        message = door.get(emails.name)
    assert message is not None
    assert Envelope.from_bytes(message.body).attempt == 1


def test_a_dry_run_says_what_would_be(
    run: Run, bury: Bury, emails: QueueConfig, left: Callable[[], list[Any]], queuey_broker: BrokerUnderTest
) -> None:
    bury(1)
    put(queuey_broker, f"{emails.name}.dead", b"hello")
    said = run("dead", "requeue", emails.name, "--dry-run").stdout.splitlines()
    assert said == [
        f"1 of 2 dead letters of '{emails.name}' would be requeued.",
        "1 are no jobs and were left; --malformed requeues such as they are.",
    ]
    assert run("dead", "purge", emails.name, "--dry-run").stdout.endswith("would be thrown away.\n")
    assert left() == [1, None]


def test_a_requeue_that_fails_says_what_the_broker_said_and_exits_with_1(
    run: Run, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    put(queuey_broker, f"{emails.name}.dead", b"hello", headers={"x-original-queue": "gone"})
    result = run("dead", "requeue", emails.name, "--malformed", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["chosen"] == 1
    assert json.loads(result.stdout)["done"] == 0
    assert "Error: 1 x publishing to queue 'gone': the message is unroutable" in result.stderr


def test_purge_asks_first(run: Run, bury: Bury, emails: QueueConfig, left: Callable[[], list[Any]]) -> None:
    bury(1, "this")
    bury(2, "that")
    refused = run("dead", "purge", emails.name, "--reason", "this", input="n\n")
    assert refused.exit_code == 1
    assert f"Throw away 1 of 2 dead letters of '{emails.name}'?" in refused.stderr
    assert left() == [1, 2]
    assert run("dead", "purge", emails.name, "--reason", "this", input="y\n").exit_code == 0
    assert left() == [2]


def test_purge_does_not_ask_where_it_is_told(
    run: Run, bury: Bury, emails: QueueConfig, left: Callable[[], list[Any]]
) -> None:
    bury(1)
    assert run("dead", "purge", emails.name, "--yes").stdout == (
        f"1 of 1 dead letters of '{emails.name}' thrown away.\n"
    )
    assert left() == []


def test_older_than_is_read_as_people_write_it(
    run: Run, bury: Bury, emails: QueueConfig, queuey_broker: BrokerUnderTest
) -> None:
    bury("old", enqueued_at_ms=queuey_broker.now_ms() - 7_200_000)
    bury("new")
    counts = {
        age: run("dead", "list", emails.name, "--older-than", age).stdout.splitlines()[-1][0]
        for age in ("1h30m", "90m", "5400", "3h", "0.5d", "0")
    }
    assert counts == {"1h30m": "1", "90m": "1", "5400": "1", "3h": "0", "0.5d": "0", "0": "2"}
    wrong = run("dead", "list", emails.name, "--older-than", "soon")
    assert wrong.exit_code == 2
    assert "'soon' is no length of time" in wrong.stderr


def test_a_queue_without_a_dead_queue_is_an_error_that_says_what_to_name(run: Run, emails: QueueConfig) -> None:
    result = run("dead", "list", f"{emails.name}.dead")
    assert result.exit_code == 1
    assert f"no queue '{emails.name}.dead.dead'" in result.stderr
    assert "Name the work queue" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "url", ["amqp://operator:hunter2@127.0.0.1:1/%2f", "amqp://operator:hunter2@127.0.0.1:port/", "hunter2"]
)
def test_a_broker_that_cannot_be_had_is_one_error_without_credentials(url: str) -> None:
    result = CliRunner().invoke(program, ["dead", "list", "emails", "--url", url])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "hunter2" not in result.output


def test_a_wrong_password_is_not_printed(run: Run, queuey_broker: BrokerUnderTest) -> None:
    url = queuey_broker.url.replace("://", "://nobody:hunter2@", 1).replace("guest:guest@", "")
    result = run("dead", "list", "emails", "--url", url)
    assert result.exit_code == 1
    assert "ACCESS_REFUSED" in result.stderr
    assert "hunter2" not in result.output


def test_without_a_url_it_says_where_one_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUEY_BROKER_URL", raising=False)
    result = CliRunner().invoke(program, ["dead", "list", "emails"])
    assert result.exit_code == 2
    assert "QUEUEY_BROKER_URL" in result.stderr
