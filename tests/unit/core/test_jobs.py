"""Declaring jobs: three kinds of classes, bound to a queue; every mistake is an error at import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import msgspec
import pytest

import queuey_rabbitmq
from queuey_rabbitmq import Envelope, InvalidConfigError, Job, Queue, QueueSet, RetryPolicy, job
from queuey_rabbitmq.core.jobs import check_fields, declared, job_of


class Emails(QueueSet, prefix="myapp"):
    outgoing = Queue()
    bulk = Queue()


class Reports(QueueSet):
    daily = Queue()


@job(Emails.outgoing)
class SendEmail(Job[Emails]):
    to: str
    subject: str = "Welcome"


@job(Emails.bulk, name="letter", retry=RetryPolicy.fixed(3, 1), timeout=1.5)
@dataclass(frozen=True, slots=True)
class SendLetter(Job[Emails]):
    to: str


@job(Emails.bulk)
class SendDigest(msgspec.Struct, Job[Emails], frozen=True):
    number: int


@dataclass(frozen=True)
class Letter:
    to: str


class LooksLikePydantic:
    """What a pydantic model is told by: its two methods."""

    def __init__(self, to: str) -> None:
        self.to = to

    @classmethod
    def model_validate_json(cls, data: bytes) -> LooksLikePydantic:
        return cls(msgspec.json.decode(data)["to"])

    def model_dump_json(self, **_how: Any) -> str:
        return msgspec.json.encode({"to": self.to}).decode()


def carried(value: Any) -> Any:
    """Return a job as it comes out of its envelope."""
    made = declared(type(value))
    envelope = Envelope(job_id=ID, job_type=made.name, queue=made.queue.name, enqueued_at_ms=0, payload=value)
    return Envelope.from_bytes(envelope.to_bytes()).decode(made.payload)


ID = Envelope.from_bytes(
    b'{"job_id":"00000000-0000-0000-0000-000000000001","job_type":"x","queue":"q","attempt":1,"enqueued_at_ms":0,'
    b'"payload":1}'
).job_id


@pytest.mark.parametrize("value", [SendEmail("ada"), SendEmail("ada", "Bye"), SendLetter("ada"), SendDigest(3)])
def test_a_job_of_each_kind_comes_out_of_its_envelope_as_it_went_in(value: Any) -> None:
    assert carried(value) == value


def test_a_pydantic_model_is_a_job() -> None:
    model = job(Emails.bulk, name="pydantic")(LooksLikePydantic)  # type: ignore[arg-type] -- without the marker
    assert carried(model("ada")).to == "ada"


def test_a_class_that_is_no_model_yet_becomes_a_frozen_dataclass() -> None:
    email = SendEmail("ada")
    assert repr(email) == "SendEmail(to='ada', subject='Welcome')"
    with pytest.raises(FrozenInstanceError):
        email.to = "grace"  # type: ignore[misc] -- that is the test


def test_the_declaration_is_kept() -> None:
    made = SendLetter.__declared__()
    assert (made.name, made.payload, made.queue) == ("letter", SendLetter, Emails.bulk)
    assert (made.retry, made.timeout_ms) == (RetryPolicy.fixed(3, 1), 1500)
    assert declared(SendEmail).name == "send_email"
    assert Emails.__jobs__["letter"] is made


def test_a_tool_that_reads_messages_finds_a_jobs_name_at_its_class() -> None:
    envelope = Envelope(job_id=ID, job_type="letter", queue="myapp.bulk", enqueued_at_ms=0, payload=SendLetter("ada"))
    assert envelope.job_type == queuey_rabbitmq.declared(SendLetter).name
    assert envelope.decode(SendLetter) == SendLetter("ada")


def test_a_subclass_of_a_job_is_none_until_it_is_declared_itself() -> None:
    class SendMore(SendEmail):
        pass

    with pytest.raises(InvalidConfigError, match="SendMore is not declared as a job"):
        declared(SendMore)


def test_a_job_of_another_set_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="enqueuing SendEmail: it is a job of Emails, and this is for Reports"):
        job_of(Reports, SendEmail, doing="enqueuing")


def test_a_module_that_is_loaded_again_declares_its_jobs_again() -> None:
    def load() -> Any:
        @job(Reports.daily)
        class Again(Job[Reports]):
            number: int

        return Again

    load()
    second = load()
    assert Reports.__jobs__["again"].payload is second


class Plain:
    pass


@pytest.mark.parametrize(
    ("queue", "options", "message"),
    [
        (Emails.outgoing, {"name": ""}, "Mistaken: name: must not be empty"),
        (Emails.outgoing, {"name": "x "}, "Mistaken: name: must not be empty or start or end with whitespace"),
        (Emails.outgoing, {"name": 3}, "Mistaken: name: expected text"),
        (Emails.outgoing, {"name": "\ud800"}, "Mistaken: name: .* cannot be written in UTF-8"),
        (Emails.outgoing, {"name": "ä" * 128}, "Mistaken: name: longer than 255 bytes"),
        (Emails.outgoing, {"name": "send_email"}, "Mistaken: name: 'send_email' is the name of SendEmail already"),
        (Emails.outgoing, {"retry": 3}, "Mistaken: retry: expected a RetryPolicy, got 3"),
        (Emails.outgoing, {"timeout": 0}, "Mistaken: timeout: must be longer than zero"),
        (Emails.outgoing, {"retries": 3}, "Mistaken: no such option: retries; a job has name, retry, timeout"),
        (Reports.daily, {}, r"Mistaken: queue: <WorkQueue Reports.daily 'daily'> is no queue of Emails"),
        (Emails, {}, "Mistaken: queue: expected a queue of a set, such as Emails.outgoing"),
        ("myapp.outgoing", {}, "Mistaken: queue: expected a queue of a set"),
    ],
)
def test_a_mistake_in_a_job_names_the_class_and_the_field(queue: Any, options: dict[str, Any], message: str) -> None:
    class Mistaken(Job[Emails]):
        to: str

    Mistaken.__qualname__ = "Mistaken"
    with pytest.raises(InvalidConfigError, match=message):
        job(queue, **options)(Mistaken)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Plain, "Plain: is no dataclass, msgspec struct or pydantic model, and inherits from no Job"),
        (3, "job: expected a class to declare, got 3"),
        (print, "job: expected a class to declare"),
    ],
)
def test_what_cannot_be_a_job_is_refused(kind: Any, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        job(Emails.outgoing)(kind)


def test_a_job_is_declared_once_for_one_queue_and_under_one_name() -> None:
    @job(Emails.outgoing, name="first")
    class Mistaken(Job[Emails]):
        to: str

    Mistaken.__qualname__ = "Mistaken"
    for queue, name in ((Emails.outgoing, "second"), (Emails.bulk, "first")):
        with pytest.raises(InvalidConfigError, match=r"^Mistaken: is <JobType 'first' of .*> already"):
            job(queue, name=name)(Mistaken)
    assert (declared(Mistaken).queue, "second" in Emails.__jobs__) == (Emails.outgoing, False)


def test_a_decorator_without_its_queue_is_an_error_that_names_the_class() -> None:
    with pytest.raises(InvalidConfigError, match=r"^Plain: queue: missing; write @job\(queue\)"):
        job(Plain)  # type: ignore[arg-type] -- that is the test


def test_fields_that_no_dataclass_can_have_are_an_error_that_names_the_class() -> None:
    class Mistaken(Job[Emails]):
        to: list[str] = []  # noqa: RUF012 -- that is the test

    with pytest.raises(InvalidConfigError, match=r"Mistaken: cannot be a dataclass: mutable default .* for field to"):
        job(Emails.outgoing)(Mistaken)
    assert "mistaken" not in Emails.__jobs__


def test_a_field_that_no_worker_could_read_is_an_error_that_names_it() -> None:
    class Mistaken(Job[Emails]):
        number: int
        to: Letter | SendLetter

    Mistaken.__qualname__ = "Mistaken"
    with pytest.raises(
        InvalidConfigError, match=r"^Mistaken: to: cannot be read from JSON: Type unions may not contain"
    ):
        job(Emails.outgoing)(Mistaken)
    assert "mistaken" not in Emails.__jobs__


@pytest.mark.parametrize("kind", [complex, object, Plain, list[Plain], dict[str, Plain | None], Callable[[int], int]])
def test_a_field_of_a_type_that_json_cannot_hold_is_an_error_that_names_it(kind: Any) -> None:
    class Mistaken(Job[Emails]):
        number: int
        to: kind

    Mistaken.__qualname__ = "Mistaken"
    Mistaken.__annotations__["to"] = kind
    with pytest.raises(
        InvalidConfigError, match=r"^Mistaken: to: cannot be read from JSON: JSON has no values of type <class"
    ):
        job(Emails.outgoing)(Mistaken)
    assert "mistaken" not in Emails.__jobs__


@dataclass(frozen=True)
class Tree:
    model: LooksLikePydantic
    below: Tree | None = None


def test_a_field_may_hold_models_and_itself() -> None:
    @job(Emails.outgoing)
    class SendTree(Job[Emails]):
        tree: Tree
        anything: Any = None

    check_fields(declared(SendTree))


def test_a_job_may_name_what_comes_later_in_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    @job(Emails.outgoing)
    class Early(Job[Emails]):
        to: Later  # noqa: F821 -- that is the test

    with pytest.raises(InvalidConfigError, match=r"Early: cannot be read from JSON: name 'Later' is not defined"):
        check_fields(declared(Early))
    monkeypatch.setitem(globals(), "Later", str)
    check_fields(declared(Early))
