"""What a command says about a broker that it cannot connect to: where it is and why, and no password."""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from queuey_rabbitmq.cli.connecting import where
from queuey_rabbitmq.cli.program import program

PASSWORD = "sw0rdfish-in-the-url"


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_every_node_is_named_with_its_reason(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    url = f"amqp://user:{PASSWORD}@127.0.0.1:{closed_port},localhost:{closed_port}/"
    result = CliRunner().invoke(program, ["dead", "list", "emails", "--url", url], catch_exceptions=False)
    assert result.exit_code == 1
    for node in ("127.0.0.1", "localhost"):
        assert f"no TCP connection with {node}:{closed_port}: Connection refused" in result.output
    assert PASSWORD not in result.output + caplog.text


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"amqp://user:{PASSWORD}@host?no_such=1", "there is no parameter no_such"),
        (f"amqp://user:{PASSWORD}/@host", "is not percent-encoded"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, reason: str) -> None:
    result = CliRunner().invoke(program, ["dead", "list", "emails", "--url", url], catch_exceptions=False)
    assert result.exit_code == 1
    assert reason in result.output.replace("\n", " ")
    assert PASSWORD not in result.output


def test_where_a_url_leads_to_is_said_without_who_logs_in() -> None:
    assert where(f"amqp://user:{PASSWORD}@a,[::1]:7/my%2Fvhost") == "a:5672, [::1]:7, virtual host 'my/vhost'"
