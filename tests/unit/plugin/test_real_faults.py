"""Faults of a real broker are refused where the proxy could not make them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any

import pytest

from pytest_queuey import NotOnThisBrokerError
from pytest_queuey.faults import proxy
from pytest_queuey.faults.real_faults import RealFaults
from pytest_queuey.pace import in_seconds
from queuey_fake import FakeBroker


@pytest.mark.parametrize("url", ["amqps://user:secret@host/%2f", "amqp://user:secret@a:5672,b:5672/%2f"])
def test_tls_and_several_nodes_cannot_be_stood_before(url: str) -> None:
    with pytest.raises(NotOnThisBrokerError, match="amqp:// URL of one node") as refusal:
        RealFaults(url, lambda: None)
    assert "secret" not in str(refusal.value)


@pytest.fixture
def faults() -> Iterator[RealFaults]:
    faults = RealFaults("amqp://user:one,two@127.0.0.1:1/%2f", lambda: None)
    yield faults
    faults.close()


def test_a_comma_in_a_password_is_no_second_node(faults: RealFaults) -> None:
    assert faults.url.startswith("amqp://user:one,two@127.0.0.1:")


def test_what_is_no_duration_is_refused_as_on_the_broker_in_memory(faults: RealFaults) -> None:
    with FakeBroker() as broker:
        for either in (faults, broker.faults):
            with pytest.raises(ValueError, match=r"^for_: expected 0 or more, got -1$"):
                either.refuse_connections(for_=-1)
            with pytest.raises(ValueError, match=r"^nan seconds is no length of time$"):
                either.delay(float("nan"))
            with pytest.raises(ValueError, match=r"^delay: expected 0 or more, got -1$"):
                either.delay(-1)


@pytest.mark.parametrize(("duration", "error"), [("1", TypeError), (None, TypeError), (float("nan"), ValueError)])
def test_what_is_no_duration_does_not_pass_on_a_real_broker_either(duration: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="seconds"):
        in_seconds(duration)


def test_a_fault_of_a_proxy_that_has_ended_says_what_was_being_done(faults: RealFaults) -> None:
    faults.close()
    with pytest.raises(
        TimeoutError, match=r"^nacking 2 publishes at the broker 127\.0\.0\.1:1: the proxy .* has ended$"
    ):
        faults.nack_next(2)


def test_a_fault_of_a_proxy_that_is_busy_says_what_was_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, free = Event(), Event()

    def hold() -> None:
        busy.set()
        free.wait(10)

    before = proxy.Proxy("127.0.0.1", 1)
    with ThreadPoolExecutor() as pool:
        held = pool.submit(before.do, "holding it", hold)
        busy.wait(10)
        monkeypatch.setattr(proxy, "DONE_WITHIN", 0.01)
        with pytest.raises(
            TimeoutError, match=r"^cutting at the broker 127\.0\.0\.1:1: the proxy before it is busy and"
        ):
            before.do("cutting", before.cut)
        free.set()
        wait([held])  # its own patience may be the long one or the short one by now
    before.close()
