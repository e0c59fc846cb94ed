"""`queuey worker`: finds an application, runs it until a signal comes, and says what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from queuey_rabbitmq import Producer, RabbitMqBackend

Run = Callable[..., Result]
pytestmark = [pytest.mark.usefixtures("own_logging")]

JOBS = """
from queuey_rabbitmq import Job, Queue, QueueSet, job

class Emails(QueueSet, prefix="cli"):
    outgoing = Queue(prefetch=1)
    other = Queue()

@job(Emails.outgoing)
class SendEmail(Job[Emails]):
    to: str
"""
HANDLERS = """
import os, signal
from queuey_rabbitmq import Fatal, handles
from application_jobs import Emails, SendEmail

@handles(SendEmail)
def send(email: SendEmail) -> None:
    if email.to == "nobody":
        raise Fatal("no such mailbox")
    if email.to == "last":
        os.kill(os.getpid(), signal.SIGTERM)
"""
FACTORY = """
from application_handlers import Emails
from queuey_rabbitmq import Worker

def make(backend):
    return Worker(backend, Emails, concurrency=1)

def make_nothing(backend):
    return None

def fail(backend):
    return backend.nonsense
"""
BROKEN = """
import json

def oops():
    return json.loads("{")

oops()
"""


@pytest.fixture(autouse=True)
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An application in the working directory, where the command finds it."""
    for name, source in {"jobs": JOBS, "handlers": HANDLERS, "factory": FACTORY, "broken": BROKEN}.items():
        (tmp_path / f"application_{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("application_")]:
        del sys.modules[name]


@pytest.fixture
def enqueue(queuey_backend: RabbitMqBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Enqueues an email to each."""

    def enqueue(*recipients: str) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        jobs: Any = import_module("application_jobs")
        producer = Producer(queuey_backend, jobs.Emails)
        producer.enqueue_many([jobs.SendEmail(to) for to in recipients])

    return enqueue


def test_a_worker_of_a_queue_set_works_until_a_sigterm_and_says_what_became_of_its_jobs(
    run: Run, enqueue: Callable[..., None], queuey_backend: RabbitMqBackend
) -> None:
    enqueue("ada", "nobody", "last")
    result = run("worker", "application_handlers:Emails", "--concurrency", "1")
    assert result.exit_code == 0
    assert "connected to 127.0.0.1:" in result.stderr
    assert "worker of Emails: consuming cli.outgoing, cli.other" in result.stderr
    assert "dead-lettered: fatal: no such mailbox" in result.stderr
    assert "stopped; since the start 1 dead-lettered, 2 done" in result.stderr


def test_handlers_of_another_module_are_imported_and_a_queue_can_be_chosen(
    run: Run, enqueue: Callable[..., None]
) -> None:
    enqueue("last")
    arguments = ["--import", "application_handlers", "--queue", "outgoing", "--queue", "cli.outgoing"]
    result = run("worker", "application_jobs:Emails", *arguments)
    assert result.exit_code == 0
    assert "worker of Emails: consuming cli.outgoing\n" in result.stderr
    assert "1 done" in result.stderr


@pytest.mark.parametrize("option", [("--concurrency", "2"), ("--queue", "outgoing"), ("--grace", "5m")])
def test_a_function_that_makes_a_worker_is_run_as_it_is(
    run: Run, enqueue: Callable[..., None], option: tuple[str, str]
) -> None:
    enqueue("last")
    assert run("worker", "application_factory:make").exit_code == 0
    refused = run("worker", "application_factory:make", *option)
    assert refused.exit_code == 2
    assert "makes its own worker, which --concurrency, --queue and --grace cannot change" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["application_jobs"], 2, "expected module:attribute, such as myapp.jobs:Emails, got 'application_jobs'"),
        (["nowhere.jobs:Emails"], 1, "importing 'nowhere.jobs': there is no module 'nowhere'"),
        (["application_broken:Emails"], 1, "importing 'application_broken': JSONDecodeError: Expecting property name"),
        (["application_jobs:Emial"], 1, "has no queue set, and no function that makes a worker, of that name. Its "),
        (["application_jobs:SendEmail"], 1, "has no queue set, and no function that makes a worker, of that name"),
        (["application_jobs:Emails"], 1, "no handler is registered, so every job would be dead-lettered"),
        (
            ["application_handlers:Emails", "--queue", "inbox"],
            2,
            "has no queue 'inbox'; it has cli.outgoing, cli.other",
        ),
        (["application_factory:make_nothing"], 1, "expected a function that returns a Worker, it returned None"),
        (["application_factory:fail"], 1, "making a worker: AttributeError: "),
    ],
)
def test_what_is_wrong_with_an_application_is_said_without_a_traceback(
    run: Run, arguments: list[str], code: int, error: str
) -> None:
    result = run("worker", *arguments)
    assert result.exit_code == code
    assert error in result.stderr
    assert "Traceback" not in result.stderr


def test_a_declaration_that_the_broker_refuses_ends_the_worker_with_what_differs(
    run: Run, enqueue: Callable[..., None], tmp_path: Path
) -> None:
    enqueue("ada")
    source = (tmp_path / "application_jobs.py").read_text().replace("prefetch=1", "max_priority=3")
    (tmp_path / "application_changed.py").write_text(
        source + "\nfrom queuey_rabbitmq import handles\nhandles(SendEmail)(lambda job: None)"
    )
    result = run("worker", "application_changed:Emails")
    assert result.exit_code == 1
    assert "Error: declaring queue 'cli.outgoing'" in result.stderr
    assert "the broker refused it: 406 PRECONDITION_FAILED" in result.stderr
    assert "Traceback" not in result.stderr
