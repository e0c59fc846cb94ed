"""Faults of a real broker are refused where the proxy could not make them."""

import pytest

from pytest_queuey import NotOnThisBrokerError
from pytest_queuey.faults.real_faults import RealFaults


@pytest.mark.parametrize("url", ["amqps://user:secret@host/%2f", "amqp://user:secret@a:5672,b:5672/%2f"])
def test_tls_and_several_nodes_cannot_be_stood_before(url: str) -> None:
    with pytest.raises(NotOnThisBrokerError, match="amqp:// URL of one node") as refusal:
        RealFaults(url, lambda: None)
    assert "secret" not in str(refusal.value)


def test_a_comma_in_a_password_is_no_second_node() -> None:
    faults = RealFaults("amqp://user:one,two@127.0.0.1:1/%2f", lambda: None)
    try:
        assert faults.url.startswith("amqp://user:one,two@127.0.0.1:")
    finally:
        faults.close()
