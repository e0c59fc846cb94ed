"""Which brokers tests run on, and what is said where a real one cannot be had."""

import os
import socket
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_queuey.asked import FAKE_VERSIONS
from queuey_fake import FakeBroker
from queuey_fake.model.versions import VERSIONS

USES_THE_BROKER = "def test_it(queuey_broker): assert queuey_broker.kind == 'fake'"
OTHER_PLUGINS = ("anyio", "asyncio", "hypothesispytest", "time_machine", "xdist", "xdist.looponfail")
NO_REAL_ONE = ("--queuey-rabbitmq-source=local", "--queuey-rabbitmq-server=/nonexistent/rabbitmq-server")


def node_ids(run_pytest: pytest.Pytester, *options: str) -> list[str]:
    result = run_pytest.runpytest_inprocess("--collect-only", "-q", *options)
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_the_fake_is_the_default_and_has_its_id(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it[[]fake[]] PASSED*"])


@pytest.mark.parametrize(
    ("broker", "ids"),
    [
        ("fake", ["test_it[fake]"]),
        ("rabbitmq", ["test_it[rabbitmq]"]),
        ("auto", ["test_it[fake]", "test_it[rabbitmq]"]),
        ("all", ["test_it[fake]", "test_it[rabbitmq]"]),
        ("fake-3.10", ["test_it[fake]"]),
        ("fake-3.10,rabbitmq-4.0", ["test_it[fake]", "test_it[rabbitmq]"]),
        ("rabbitmq,fake-3.10,fake-4.3", ["test_it[fake-3.10]", "test_it[fake-4.3]", "test_it[rabbitmq]"]),
        ("all,fake-3.10", ["test_it[fake-4.3]", "test_it[fake-3.10]", "test_it[rabbitmq]"]),
        ("rabbitmq-3.13-management,rabbitmq-4.0", ["test_it[rabbitmq-3.13-management]", "test_it[rabbitmq-4.0]"]),
    ],
)
def test_ids_name_versions_only_where_several_are_asked_for(
    run_pytest: pytest.Pytester, broker: str, ids: list[str]
) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    assert node_ids(run_pytest, f"--queuey-broker={broker}") == ids


def test_whatever_stands_on_the_broker_is_parametrised_too_and_the_fakes_come_first(
    run_pytest: pytest.Pytester,
) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.fixture
        def mine(queuey_clock): return queuey_clock
        def test_clock(mine): pass
        def test_backend(queuey_backend): pass
        def test_without(): pass
        """
    )
    assert sorted(node_ids(run_pytest)) == ["test_backend[fake]", "test_clock[fake]", "test_without"]
    both = [name for name in node_ids(run_pytest, "--queuey-broker=all") if "[" in name]
    assert both == ["test_clock[fake]", "test_backend[fake]", "test_clock[rabbitmq]", "test_backend[rabbitmq]"]


def test_a_mark_limits_a_test_to_some_kinds_and_the_others_are_skipped_with_the_reason(
    run_pytest: pytest.Pytester,
) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.mark.queuey_broker("fake")
        def test_it(queuey_broker): pass
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=all", "-rs", *NO_REAL_ONE)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*only for queuey_broker('fake')"])


def test_every_version_that_the_fake_imitates_can_be_asked_for() -> None:
    assert tuple(VERSIONS) == FAKE_VERSIONS
    assert FakeBroker().version == FAKE_VERSIONS[-1]


def test_each_version_of_the_fake_is_the_one_that_its_id_names(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        def test_it(request, queuey_broker, queuey_broker_kind):
            assert request.node.callspec.id == f"fake-{queuey_broker.version}"
            assert queuey_broker_kind == "fake"
        """
    )
    run_pytest.runpytest_inprocess("--queuey-broker=fake-3.10,fake-4.0,fake-4.3").assert_outcomes(passed=3)


def test_a_mark_limits_a_test_to_versions_and_its_reason_is_shown(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.mark.queuey_broker("fake-4.3", "rabbitmq", reason="3.10 knows no such thing")
        def test_it(queuey_broker): assert queuey_broker.version == "4.3"
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=fake-3.10,fake-4.3", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*only for queuey_broker('fake-4.3', 'rabbitmq'): 3.10 knows no such thing"])


def test_a_mark_for_another_version_than_the_one_that_is_imitated_unasked_skips_the_test(
    run_pytest: pytest.Pytester,
) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        @pytest.mark.queuey_broker("fake-3.10")
        def test_of_old(queuey_broker): pass
        @pytest.mark.queuey_broker("fake-4.3")
        def test_of_new(queuey_broker): assert queuey_broker.version == "4.3"
        """
    )
    result = run_pytest.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*only for queuey_broker('fake-3.10')"])


def test_several_real_versions_each_have_their_source_in_the_header(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    servers = [tmp_path / f"rabbitmq_server-{version}" / "rabbitmq-server" for version in ("3.10.8", "4.0.5")]
    for server in servers:
        server.parent.mkdir()
        server.touch(mode=0o755)
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq-3.10,rabbitmq-4.0,rabbitmq-4.3",
        f"--queuey-rabbitmq-server={os.pathsep.join(map(str, servers))}",
    )
    result.stdout.fnmatch_lines(
        [
            "queuey: brokers rabbitmq-3.10, rabbitmq-4.0, rabbitmq-4.3",
            f"queuey: rabbitmq-3.10 is a private server, {servers[0]}",
            f"queuey: rabbitmq-4.0 is a private server, {servers[1]}",
            "queuey: rabbitmq-4.3: no real RabbitMQ can be had:*",
            "  local: no rabbitmq-server 4.3 is among --queuey-rabbitmq-server=*",
        ]
    )


def test_a_test_that_uses_the_server_runs_on_each_that_was_asked_for(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        def test_server(queuey_rabbitmq_server): pass
        def test_both(queuey_broker, queuey_rabbitmq_server): pass
        """
    )
    assert node_ids(run_pytest, "--queuey-broker=all") == ["test_server", "test_both[fake]", "test_both[rabbitmq]"]
    assert sorted(node_ids(run_pytest, "--queuey-broker=fake,rabbitmq-4.0,rabbitmq-4.3")) == [
        "test_both[fake]",
        "test_both[rabbitmq-4.0]",
        "test_both[rabbitmq-4.3]",
        "test_server[rabbitmq-4.0]",
        "test_server[rabbitmq-4.3]",
    ]


@pytest.mark.parametrize("kinds", ["'redis'", ""])
def test_a_mark_with_an_unknown_kind_or_none_is_an_error(run_pytest: pytest.Pytester, kinds: str) -> None:
    run_pytest.makepyfile(
        f"""
        import pytest
        @pytest.mark.queuey_broker({kinds})
        def test_it(queuey_broker): pass
        """
    )
    result = run_pytest.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*test_it: queuey_broker({kinds}): the kinds of broker are 'fake' and 'rabbitmq'; *"])


def test_asked_for_at_run_time_only_it_is_the_first_kind(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        "def test_it(request): assert request.getfixturevalue('queuey_broker').kind == 'fake'",
    )
    run_pytest.runpytest_inprocess("--queuey-broker=all", *NO_REAL_ONE).assert_outcomes(passed=1)


@pytest.mark.parametrize("broker", ["rabbitmq", "all"])
def test_a_real_broker_that_was_asked_for_and_cannot_be_had_is_an_error(
    run_pytest: pytest.Pytester, broker: str
) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess(f"--queuey-broker={broker}", *NO_REAL_ONE)
    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines(
        ["no real RabbitMQ can be had: local: /nonexistent/rabbitmq-server is not an executable file"]
    )


def test_of_many_tests_without_their_broker_the_first_says_why_in_full(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile("def test_it(queuey_broker): pass\ndef test_another(queuey_broker): pass")
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq", "--queuey-rabbitmq-source=local", "--queuey-rabbitmq-server=/bin/false"
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "/bin/false exited with status 1 while it was starting. Its last lines:",
            "    (it said nothing)",
            "/bin/false exited with status 1 while it was starting. Its last lines: ... (the rest is said *",
        ]
    )
    assert result.outlines.count("    (it said nothing)") == 1


def test_auto_skips_the_real_half_with_the_reason(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess("--queuey-broker=auto", "-rs", *NO_REAL_ONE)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no real RabbitMQ can be had: local: * is not an executable file"])


def test_auto_skips_nothing_where_a_url_was_given_and_nobody_answers_there(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    with socket.socket() as bound_but_deaf:
        bound_but_deaf.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{bound_but_deaf.getsockname()[1]}"
        result = run_pytest.runpytest_inprocess("--queuey-broker=auto", f"--queuey-rabbitmq-url={url}")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"{url}: connecting to * failed: *"])


def test_the_error_says_of_every_source_why_it_is_not_there(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", NO_REAL_ONE[1])
    result.stdout.fnmatch_lines(
        [
            "*no real RabbitMQ can be had:",
            "  url: no URL is given (--queuey-rabbitmq-url=URL, or environment QUEUEY_RABBITMQ_URL)",
            "  local: /nonexistent/rabbitmq-server is not an executable file",
            f"  docker: no Docker answers at unix://{tmp_path}/docker.sock: *",
        ]
    )


def test_auto_takes_the_first_source_that_is_there_and_the_header_says_which(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def header(*options: str) -> str:
        result = run_pytest.runpytest_inprocess("--queuey-broker=all", "--collect-only", *options)
        return next(line.removeprefix("queuey: ") for line in result.outlines if " is " in line)

    docker = tmp_path / "d"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(docker))
        daemon.listen()
        daemon_thread = threading.Thread(target=answer_one_ping, args=(daemon,), daemon=True)
        daemon_thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{docker}")
        server = f"--queuey-rabbitmq-server={sys.executable}"
        assert header(server, "--queuey-rabbitmq-url=amqp://h") == "rabbitmq is the one at amqp://h:5672"
        assert header(server) == f"rabbitmq is a private server, {sys.executable}"
        image = "--queuey-rabbitmq-image=rabbitmq:3.13"
        assert header(NO_REAL_ONE[1], image) == f"rabbitmq is a container of rabbitmq:3.13 at unix://{docker}"
        daemon_thread.join(10)


def answer_one_ping(daemon: socket.socket) -> None:
    connection, _ = daemon.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
    connection.close()


def test_a_url_that_refuses_connections_is_an_error_and_no_reason_to_take_another_source(
    run_pytest: pytest.Pytester,
) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq", "--queuey-rabbitmq-url=amqp://me:secret@127.0.0.1:1/v"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*amqp://me@127.0.0.1:1/v: connecting to 127.0.0.1:1 failed: *refused*"])
    result.stdout.no_fnmatch_line("*secret*")


def test_each_test_sees_an_empty_broker_and_its_backends_are_closed(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        from queuey_rabbitmq import QueueConfig, ShutDownError

        leaked = []

        @pytest.mark.parametrize("again", range(2))
        def test_it(queuey_broker, again):
            assert queuey_broker.queues() == []
            assert queuey_broker.queue("emails") is None
            backend = queuey_broker.backend()
            backend.declare([QueueConfig("emails")])
            assert queuey_broker.queue("emails").name == "emails"
            assert queuey_broker.name("emails") == "emails"
            leaked.append(backend)

        def test_then():
            for backend in leaked:
                with pytest.raises(ShutDownError):
                    backend.declare([QueueConfig("emails")])
        """
    )
    run_pytest.runpytest_inprocess().assert_outcomes(passed=3)


def test_the_url_of_the_fake_reaches_the_same_broker(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(
        """
        from queuey_rabbitmq import QueueConfig, RabbitMqBackend

        def test_it(queuey_broker):
            with RabbitMqBackend.connect(queuey_broker.url) as backend:
                backend.declare([QueueConfig("emails")])
            assert queuey_broker.queue("emails").ready == 0
        """
    )
    run_pytest.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_run_that_does_not_use_the_fixtures_loads_nothing_of_queuey_but_the_plugin(
    run_pytest: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_pytest.makepyfile(
        """
        import sys
        def test_it():
            heavy = {"pika", "testcontainers", "docker", "freezegun", "asyncio", "queuey_fake", "queuey_rabbitmq"}
            assert heavy & set(sys.modules) == set()
            ours = {name for name in sys.modules if name.startswith("pytest_queuey")}
            assert ours == {"pytest_queuey", *(f"pytest_queuey.{part}" for part in ("asked", "options", "plugin"))}
        """
    )
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in OTHER_PLUGINS))
    done = run_pytest.runpytest_subprocess("-q")
    done.assert_outcomes(passed=1)


def test_it_works_where_assertions_are_not_rewritten(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile(USES_THE_BROKER)
    run_pytest.runpytest_subprocess("--assert=plain").assert_outcomes(passed=1)


def test_the_fixtures_say_what_they_are(run_pytest: pytest.Pytester) -> None:
    result = run_pytest.runpytest_inprocess("--fixtures", "-q")
    for name in ("queuey_broker", "queuey_backend", "queuey_clock", "queuey_queue_name", "queuey_rabbitmq_server"):
        start = next(number for number, line in enumerate(result.outlines) if line.startswith(f"{name} "))
        assert "no docstring" not in result.outlines[start + 1]


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """The URL of a broker whose first node is dead. The broker in memory stands for the other: its port speaks AMQP."""
    with closing(socket.create_server(("127.0.0.1", 0))) as dead:
        dead_port = dead.getsockname()[1]
    with FakeBroker() as broker:
        yield broker.url.replace("127.0.0.1:", f"127.0.0.1:{dead_port},127.0.0.1:")


def test_of_several_nodes_in_the_url_one_that_answers_is_used(run_pytest: pytest.Pytester, two_nodes: str) -> None:
    run_pytest.makepyfile(
        """
        from pytest_queuey.contract.broker_door import BrokerDoor
        from queuey_rabbitmq import QueueConfig

        def test_it(queuey_broker, queuey_backend):
            emails = QueueConfig(queuey_broker.name("emails"))
            queuey_backend.declare([emails])
            assert queuey_broker.queue(emails.name).ready == 0
            with BrokerDoor(queuey_broker.url) as door:
                door.publish(emails.name, b"raw")
            assert queuey_broker.queue(emails.name).ready == 1
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={two_nodes}")
    result.assert_outcomes(passed=1)


def test_faults_of_several_nodes_are_refused_with_the_option(run_pytest: pytest.Pytester, two_nodes: str) -> None:
    run_pytest.makepyfile("def test_it(queuey_faults): pass")
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={two_nodes}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*NotOnThisBrokerError: faults (queuey_faults) *--queuey-rabbitmq-url says 127.0.0.1:*"]
    )


@pytest.fixture
def ctl(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a command in rabbitmqctl's place that prints the names of virtual hosts, whatever it is asked."""

    def made(vhosts: str) -> Path:
        path = tmp_path / "ctl"
        path.write_text(f"#!/bin/sh\necho '<<\"{b64encode(vhosts.encode()).decode()}\">>'\n")
        path.chmod(0o755)
        return path

    return made


def run_with_ctl(run_pytest: pytest.Pytester, command: object) -> pytest.RunResult:
    """Run a test that uses the broker of a URL, for which the broker in memory stands."""
    with FakeBroker() as broker:
        options = (f"--queuey-rabbitmq-url={broker.url}", f"--queuey-rabbitmq-ctl={command}")
        return run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", *options)


def test_a_rabbitmqctl_that_fails_is_an_error_that_names_the_option(run_pytest: pytest.Pytester) -> None:
    run_pytest.makepyfile("def test_it(queuey_broker): pass")
    result = run_with_ctl(run_pytest, "/bin/false")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--queuey-rabbitmq-ctl: '/bin/false eval' ended with 1: "])
    assert result.stderr.str() == ""


def test_a_rabbitmqctl_of_another_broker_is_an_error(run_pytest: pytest.Pytester, ctl: Callable[[str], Path]) -> None:
    run_pytest.makepyfile("def test_it(queuey_broker): pass")
    result = run_with_ctl(run_pytest, ctl('["elsewhere"]'))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--queuey-rabbitmq-ctl='*' leads to a broker without virtual host '/': is it *"])


def test_what_cannot_be_cleaned_at_the_end_is_said(run_pytest: pytest.Pytester, ctl: Callable[[str], Path]) -> None:
    command = ctl('["/"]')
    run_pytest.makepyfile(f"import os\ndef test_it(queuey_rabbitmq_server): os.remove({str(command)!r})")
    result = run_with_ctl(run_pytest, command)
    result.assert_outcomes(passed=1)
    result.stderr.fnmatch_lines(["queuey: virtual hosts named queuey-* may be left on amqp://*: *could not be run*"])
