"""Owns what every chapter of the contract stands on: backends, a queue, jobs, time, and how a test takes deliveries.

Everything comes from one fixture, `backend_under_test`, which the author of a backend overrides in their subclass.
Refuses to test anything, and to know any broker: `rabbitmq_surroundings` does.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, Protocol, TypeVar

import pytest

from pytest_queuey.contract.backend_under_test import BackendUnderTest, DeadLetter, what_is_wrong
from pytest_queuey.contract.capabilities import check_known, missing_for
from pytest_queuey.contract_report import note_test
from queuey_rabbitmq.core.envelope import Envelope
from queuey_rabbitmq.core.queue_config import QueueConfig

if TYPE_CHECKING:
    from queuey_rabbitmq.core.backend import Backend, Deliveries
    from queuey_rabbitmq.core.delivery import Delivery

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds to wait for what is on its way; on a backend that keeps the contract nobody ever waits so long."""


MakeBackend = Callable[[], "Backend"]
"""Makes backends that keep their jobs in the same place; each is closed when the test ends."""


class MakeJob(Protocol):
    """Makes jobs of the test's queue."""

    def __call__(self, payload: Any = None, /, **fields: Any) -> Envelope:
        """Return a new job; `fields` are those of Envelope."""


class ContractClock(Protocol):
    """The time that the backend lives by."""

    def now_ms(self) -> int:
        """Return the present, in ms since the epoch."""

    def advance(self, duration: timedelta | float, /) -> None:
        """Let a duration (seconds or timedelta) pass; what is due in it has happened when this returns."""


TakeDeadLetters = Callable[[str], Sequence[DeadLetter]]
"""Takes the dead letters of a work queue, oldest first."""

PutRaw = Callable[[str, bytes], None]
"""Puts a body on a queue as it is, past the backend."""


class Surroundings:
    """The fixtures of the contract, and which of its tests a backend is held to."""

    capabilities: ClassVar[Collection[str] | None] = None
    """What the backend can do; None is what its `backend_under_test` declares."""

    @pytest.fixture
    def backend_under_test(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackendUnderTest]:
        """Make the place where the test's jobs are kept; by default that of --queuey-backend."""
        from pytest_queuey.contract.named_backend import named_backend

        under_test = named_backend(request.config, needed_by=type(self).__name__)(tmp_path)
        yield under_test
        under_test.close()

    @pytest.fixture(autouse=True)
    def _only_what_is_declared(self, request: pytest.FixtureRequest) -> None:
        """Skip what needs a capability that is not declared, and note the test for the report."""
        declared = self.capabilities
        where = f"{type(self).__name__}.capabilities"
        if declared is None:
            under_test = request.getfixturevalue("backend_under_test")
            if (wrong := what_is_wrong(under_test)) is not None:
                pytest.fail(f"{type(self).__name__}: the fixture `backend_under_test` gives {wrong}", pytrace=False)
            declared, where = under_test.capabilities, f"{type(under_test).__name__}.capabilities"
        check_known(declared, where)
        missing = missing_for(request.node, declared)
        note_test(request.node, missing)
        if missing:
            pytest.skip(f"needs what the backend does not declare: {', '.join(missing)}")

    @pytest.fixture
    def backend_factory(self, backend_under_test: BackendUnderTest) -> MakeBackend:
        """Make backends."""
        return backend_under_test.backend

    @pytest.fixture
    def clock(self, backend_under_test: BackendUnderTest) -> ContractClock:
        """Return the time that the backends live by."""
        return backend_under_test

    @pytest.fixture
    def queue_name(self) -> str:
        """Return the name that every queue of the test starts with."""
        return "work"

    @pytest.fixture
    def queue(self, queue_name: str) -> QueueConfig:
        """Return the test's queue."""
        return QueueConfig(queue_name)

    @pytest.fixture
    def backend(self, backend_factory: MakeBackend, queue: QueueConfig) -> Backend:
        """Return a backend that has declared the test's queue."""
        backend = backend_factory()
        backend.declare([queue])
        return backend

    @pytest.fixture
    def new_job(self, queue_name: str, clock: ContractClock) -> MakeJob:
        """Make jobs of the test's queue."""

        def make(payload: Any = None, /, **fields: Any) -> Envelope:
            new: dict[str, Any] = {
                "job_id": uuid.uuid4(),
                "job_type": "contract",
                "queue": queue_name,
                "enqueued_at_ms": clock.now_ms(),
            }
            return Envelope(payload=payload, **(new | fields))

        return make

    @pytest.fixture
    def dead_letters(self, backend_under_test: BackendUnderTest) -> TakeDeadLetters:
        """Take dead letters from where the backend keeps them."""
        return backend_under_test.dead_letters

    @pytest.fixture
    def put_raw(self, backend_under_test: BackendUnderTest) -> PutRaw:
        """Put bodies on queues as they are, past the backend."""
        return backend_under_test.put_raw

    @pytest.fixture
    def refusing_publishes(self, backend_under_test: BackendUnderTest) -> Callable[[], AbstractContextManager[object]]:
        """Return what has publishes refused within a `with` block."""
        return backend_under_test.refusing_publishes

    @pytest.fixture
    def drop_connections(self, backend_under_test: BackendUnderTest) -> Callable[[], None]:
        """Return what cuts the connections of the backends."""
        return backend_under_test.drop_connections


def take(deliveries: Deliveries, count: int) -> list[Delivery]:
    """Return the next deliveries, unsettled; fail where one does not come."""
    taken: list[Delivery] = []
    for _ in range(count):
        delivery = deliveries.get(timeout=PATIENCE)
        assert delivery is not None, f"of {count} jobs only {payloads(taken)} came within {PATIENCE:g} s"
        taken.append(delivery)
    return taken


def take_one(deliveries: Deliveries) -> Delivery:
    """Return the next delivery, unsettled; fail where none comes."""
    return take(deliveries, 1)[0]


def work_off(deliveries: Deliveries, count: int) -> list[Any]:
    """Take and ack jobs one after the other; return their payloads in order."""
    worked_off = []
    for _ in range(count):
        delivery = take_one(deliveries)
        worked_off.append(delivery.envelope.payload)
        delivery.ack()
    return worked_off


def payloads(deliveries: Sequence[Delivery]) -> list[Any]:
    """Return the payloads of deliveries, in order."""
    return [delivery.envelope.payload for delivery in deliveries]


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Do something in a thread of its own, which never keeps the test run from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the future's caller gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=f"contract-{work.__name__}").start()
    return future
