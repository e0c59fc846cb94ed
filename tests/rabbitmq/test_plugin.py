"""The plugin on a real RabbitMQ: a private server that these tests start, alone and through runs of pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pika
import pytest

from pytest_queuey.broker_node import BrokerNode, QueueState
from pytest_queuey.node_control import ControlError
from pytest_queuey.sources.local import LocalProgress, LocalServer
from pytest_queuey.sources.server import RealServer, wait_until_ready

PATIENCE = 90.0


@pytest.fixture(scope="module")
def server(executable: str) -> Iterator[RealServer]:
    started = LocalServer.start(Path(executable))
    try:
        wait_until_ready(started.server, LocalProgress(Path(str(started.server.folder))))
        yield started.server
    finally:
        started.close()


@pytest.fixture
def node(server: RealServer) -> BrokerNode:
    control = server.control()
    assert control is not None
    return BrokerNode(control)


@pytest.fixture
def channel(server: RealServer) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    yield connection.channel()
    connection.close()


@pytest.fixture
def ctl(server: RealServer, tmp_path: Path) -> str:
    """A command that evaluates as rabbitmqctl does, faster: it asks the private server's socket."""
    script = tmp_path / "ctl.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from pytest_queuey.node_control import SocketControl\n"
        f"answer = SocketControl(Path({server.folder!r}) / 'control').evaluate(sys.argv[2].rstrip('.'))\n"
        "print('<<\"' + answer.decode() + '\">>')\n"
    )
    return f"{sys.executable} {script}"


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def processes_of(folder: str) -> list[int]:
    """Return the processes that were started for a private server: each has its folder in its environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"HOME={folder}".encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
    return found


def processes_of_session(leader: int) -> list[int]:
    """Return the processes of a session that still run; its leader may be gone."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _parent, _group, session, *_ = stat.read_text().rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


def test_a_queue_is_seen_as_it_is(node: BrokerNode, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    arguments = {"x-queue-type": "classic", "x-max-priority": 10, "x-dead-letter-exchange": ""}
    channel.queue_declare("é 1", durable=True, arguments=arguments)
    for _ in range(3):
        channel.basic_publish("", "é 1", b"")
    channel.basic_get("é 1")
    expected = QueueState(name="é 1", ready=2, unacked=1, consumers=0, arguments=arguments)
    assert wait_for(lambda: node.queue("/", "é 1") == expected)
    assert node.queues("/") == [expected]
    assert node.queue("/", "elsewhere") is None
    assert node.queue("nowhere", "é 1") is None
    channel.queue_delete("é 1")


def test_looking_at_a_queue_renews_no_lease(
    node: BrokerNode, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare("leased", durable=True, arguments={"x-expires": 300})
    started = time.monotonic()
    assert node.queue("/", "leased") is not None
    assert wait_for(lambda: node.queue("/", "leased") is None)
    assert time.monotonic() - started < 10


def test_an_expression_that_fails_is_an_error_with_erlangs_words(node: BrokerNode) -> None:
    with pytest.raises(ControlError, match=r"failed to evaluate nosuch:thing.*error: undef"):
        node.control.evaluate("nosuch:thing()")
    with pytest.raises(ControlError, match="syntax error before"):
        node.control.evaluate("((")
    assert node.control.evaluate("<<1>>") == b"\x01"


def test_a_name_cannot_break_out_of_the_expression(node: BrokerNode) -> None:
    assert node.queue("/", '">>), halt().') is None
    assert node.vhosts() == ["/"]


def test_each_test_has_a_virtual_host_of_its_own_and_none_is_left(
    run_pytest: pytest.Pytester, server: RealServer, node: BrokerNode, ctl: str
) -> None:
    run_pytest.makepyfile(
        """
        import pytest
        from queuey_rabbitmq import QueueConfig

        @pytest.mark.parametrize("again", range(3))
        def test_it(queuey_broker, queuey_backend, again):
            assert queuey_broker.queues() == []
            queuey_backend.declare([QueueConfig(queuey_broker.name("emails"))])
            assert [queue.name for queue in queuey_broker.queues()] == ["emails", "emails.dead"]
            assert queuey_broker.queue("emails").arguments["x-max-priority"] == 10
        """
    )
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}", f"--queuey-rabbitmq-ctl={ctl}"
    )
    result.assert_outcomes(passed=3)
    assert node.vhosts() == ["/"]


def test_what_a_killed_run_left_over_a_day_ago_is_deleted_by_the_next_that_may(
    run_pytest: pytest.Pytester, server: RealServer, node: BrokerNode, ctl: str
) -> None:
    def made(at: datetime) -> str:
        return f"queuey-0123abcd-4567ef89-{at:%Y%m%dT%H%M%SZ}-3"

    now = datetime.now(UTC)
    old, young = made(now - timedelta(hours=25)), made(now - timedelta(hours=23))
    others = [young, "queuey-of-somebody", f"our-{old}"]
    node.make_vhosts([old, *others], user=server.user)
    run_pytest.makepyfile("def test_it(queuey_broker): pass")
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}", f"--queuey-rabbitmq-ctl={ctl}"
    )
    result.assert_outcomes(passed=1)
    assert sorted(node.vhosts()) == sorted(["/", *others])
    node.delete_vhosts(others)


def test_in_a_shared_virtual_host_names_keep_tests_apart_and_their_queues_are_deleted(
    run_pytest: pytest.Pytester, server: RealServer, node: BrokerNode
) -> None:
    run_pytest.makepyfile(
        """
        import uuid
        import pytest
        from pytest_queuey.broker_under_test import NotOnThisBrokerError
        from queuey_rabbitmq import Envelope, QueueConfig, RabbitMqOptions

        seen = set()

        @pytest.mark.parametrize("again", range(2))
        def test_it(queuey_broker, queuey_queue_name, again):
            name = queuey_queue_name("emails")
            assert name == queuey_broker.name("emails")
            assert name.endswith(".emails")
            seen.add(name)
            assert queuey_broker.queue(name) is None
            backend = queuey_broker.backend(RabbitMqOptions(retry_suffix=".retry"))
            backend.declare([QueueConfig(name)])
            job = Envelope(
                job_id=uuid.uuid4(), job_type="t", queue=name, attempt=1, enqueued_at_ms=backend.now_ms(), payload=None
            )
            backend.defer(job, 86400)
            assert queuey_broker.queue(f"{name}.deferred.86400000").ready == 1
            assert queuey_broker.queue(f"{name}.retry").ready == 0
            assert queuey_broker.queue(name).consumers == 0
            with pytest.raises(NotOnThisBrokerError, match="--queuey-rabbitmq-ctl"):
                queuey_broker.queue(name).unacked
            with pytest.raises(NotOnThisBrokerError, match="--queuey-rabbitmq-ctl"):
                queuey_broker.queues()

        def test_names_differ():
            assert len(seen) == 2
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}")
    result.assert_outcomes(passed=3)
    assert node.queues("/") == []


def test_asking_over_amqp_whether_a_queue_is_there_renews_no_lease(
    run_pytest: pytest.Pytester, server: RealServer
) -> None:
    run_pytest.makepyfile(
        """
        import time
        import pika

        def test_it(queuey_broker):
            connection = pika.BlockingConnection(pika.URLParameters(queuey_broker.url))
            connection.channel().queue_declare("leased", durable=True, arguments={"x-expires": 300})
            connection.close()
            started = time.monotonic()
            assert queuey_broker.queue("leased") is not None
            while queuey_broker.queue("leased") is not None:
                assert time.monotonic() - started < 10
                time.sleep(0.02)
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}")
    result.assert_outcomes(passed=1)


def test_time_is_really_waited_for_up_to_what_the_ini_allows(run_pytest: pytest.Pytester, server: RealServer) -> None:
    run_pytest.makeini("[pytest]\nqueuey_max_real_wait = 0.3")
    run_pytest.makepyfile(
        """
        import time
        from datetime import timedelta

        def test_waits(queuey_clock):
            started, start_ms = time.monotonic(), queuey_clock.now_ms()
            queuey_clock.advance(0.2)
            assert 0.2 <= time.monotonic() - started < 5
            assert 200 <= queuey_clock.now_ms() - start_ms < 5000

        def test_too_long(queuey_clock):
            queuey_clock.advance(timedelta(days=24))
        """
    )
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*moves time by 2.0736e+06 s*more than the 0.3 s that queuey_max_real_wait*"])


def test_a_wrong_password_and_a_missing_virtual_host_are_told_apart(
    run_pytest: pytest.Pytester, server: RealServer
) -> None:
    run_pytest.makepyfile("def test_it(queuey_broker): pass")

    def error(url: str) -> str:
        result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={url}")
        result.assert_outcomes(errors=1)
        return result.stdout.str()

    assert "ACCESS_REFUSED" in error(server.url.replace("guest:guest", "guest:wrong"))
    assert "vhost nowhere not found" in error(server.vhost_url("nowhere"))


def test_xdist_workers_share_one_server_that_is_gone_at_the_end(run_pytest: pytest.Pytester, executable: str) -> None:
    run_pytest.makepyfile(
        """
        import os, pathlib
        import pytest

        @pytest.mark.parametrize("n", range(6))
        def test_it(queuey_broker, queuey_rabbitmq_server, n):
            assert queuey_broker.queues() == []
            queuey_broker.backend()
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"seen-{worker}").write_text(queuey_rabbitmq_server.server.folder)
        """
    )
    result = run_pytest.runpytest_subprocess(
        *("-p", "xdist", "-n", "2", "--dist=each", "--queuey-broker=rabbitmq"),
        *("--queuey-rabbitmq-source=local", f"--queuey-rabbitmq-server={executable}"),
    )
    result.assert_outcomes(passed=12)
    folders = {path.read_text() for path in run_pytest.path.glob("seen-*")}
    assert len(list(run_pytest.path.glob("seen-*"))) == 2
    assert len(folders) == 1
    folder = folders.pop()
    assert processes_of(folder) == []
    assert not Path(folder).exists()


def test_a_mark_for_another_version_skips_once_the_version_is_known(
    run_pytest: pytest.Pytester, server: RealServer
) -> None:
    run_pytest.makepyfile(
        """
        import pytest

        @pytest.mark.queuey_broker("rabbitmq-1.0")
        def test_other(queuey_broker): pass

        @pytest.mark.queuey_broker("rabbitmq-1.0", "rabbitmq-3", "rabbitmq-4")
        def test_any(queuey_broker): pass
        """
    )
    result = run_pytest.runpytest_inprocess("-rs", "--queuey-broker=rabbitmq", f"--queuey-rabbitmq-url={server.url}")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*only for queuey_broker('rabbitmq-1.0'), and this is RabbitMQ *"])


def test_a_version_that_the_broker_is_not_of_is_an_error(run_pytest: pytest.Pytester, server: RealServer) -> None:
    run_pytest.makepyfile("def test_it(queuey_broker): pass")
    result = run_pytest.runpytest_inprocess("--queuey-broker=rabbitmq-1.0", f"--queuey-rabbitmq-url={server.url}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["rabbitmq-1.0 was asked for (--queuey-broker), and amqp://* is RabbitMQ *"])


def test_a_killed_worker_takes_nothing_with_it_that_others_use(run_pytest: pytest.Pytester, executable: str) -> None:
    run_pytest.makepyfile(
        """
        import os, pathlib, signal
        import pytest

        @pytest.mark.parametrize("n", range(8))
        def test_it(queuey_broker, queuey_rabbitmq_server, n):
            assert queuey_broker.queues() == []
            pathlib.Path("folder").write_text(queuey_rabbitmq_server.server.folder)
            if n == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = run_pytest.runpytest_subprocess(
        *("-p", "xdist", "-n", "2", "--queuey-broker=rabbitmq"),
        *("--queuey-rabbitmq-source=local", f"--queuey-rabbitmq-server={executable}"),
    )
    result.assert_outcomes(passed=7, failed=1)
    folder = (run_pytest.path / "folder").read_text()
    assert processes_of(folder) == []
    assert not Path(folder).exists()


def test_a_killed_controller_leaves_no_process_and_no_folder(run_pytest: pytest.Pytester, executable: str) -> None:
    run_pytest.makepyfile(
        """
        import pathlib, time

        def test_it(queuey_broker, queuey_rabbitmq_server):
            pathlib.Path("writing").write_text(queuey_rabbitmq_server.server.folder)
            pathlib.Path("writing").rename("running")
            time.sleep(60)
        """
    )
    controller = subprocess.Popen(  # noqa: S603 -- our own interpreter
        [
            *(sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--queuey-broker=rabbitmq"),
            *("--queuey-rabbitmq-source=local", f"--queuey-rabbitmq-server={executable}"),
        ],
        cwd=run_pytest.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert wait_for((run_pytest.path / "running").exists)
        folder = (run_pytest.path / "running").read_text()
        assert processes_of(folder) != []
        controller.kill()
        controller.wait(PATIENCE)
        killed = time.monotonic()
        assert wait_for(lambda: processes_of(folder) == [] and not Path(folder).exists())
        assert wait_for(lambda: processes_of_session(controller.pid) == [])
        assert time.monotonic() - killed < 2  # execnet ends a worker without a controller after 15
    finally:
        with suppress(ProcessLookupError):
            os.killpg(controller.pid, signal.SIGKILL)
        controller.wait(PATIENCE)
