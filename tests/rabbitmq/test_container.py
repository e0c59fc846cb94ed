"""The container path for real: pytest ... --queuey-rabbitmq-source=docker --queuey-rabbitmq-image=IMAGE.

The image is one that is there; `.ci/rabbitmq_image` builds one from Debian's packages.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_queuey.options import read_settings
from pytest_queuey.real_broker import ReadyBroker

PATIENCE = 60.0
USES_THE_BROKER = "def test_it(queuey_broker): pass"


@pytest.fixture(scope="module", autouse=True)
def image(pytestconfig: pytest.Config) -> str:
    settings = read_settings(pytestconfig)
    if settings.rabbitmq_source != "docker":
        pytest.skip("needs --queuey-rabbitmq-source=docker")
    return settings.rabbitmq_image


@pytest.fixture(scope="module")
def docker(image: str) -> Iterator[Any]:
    import docker  # type: ignore[import-untyped]  # it ships no annotations

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def from_docker(image: str) -> tuple[str, ...]:
    return "--queuey-broker=rabbitmq", "--queuey-rabbitmq-source=docker", f"--queuey-rabbitmq-image={image}"


@pytest.fixture
def make_image(docker: Any, image: str) -> Iterator[Callable[..., str]]:
    """Make an image like the one under test that runs another command."""
    made = []

    def make(name: str, *command: str) -> str:
        container = docker.containers.create(image, command=list(command))
        try:
            made.append(container.commit(repository=name, tag="1"))
        finally:
            container.remove()
        return f"{name}:1"

    yield make
    for each in made:
        docker.images.remove(each.id)


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def containers(docker: Any) -> set[str]:
    """Return the ids of all containers of test runs."""
    found = docker.containers.list(all=True, filters={"name": "queuey-"}, ignore_removed=True)
    return {container.id for container in found}


def test_the_container_is_reached_from_this_machine_alone(queuey_rabbitmq_server: ReadyBroker, docker: Any) -> None:
    server = queuey_rabbitmq_server.server
    assert server.source == "docker"
    ports = docker.containers.get(server.container).attrs["NetworkSettings"]["Ports"]
    assert {binding["HostIp"] for binding in ports["5672/tcp"]} == {"127.0.0.1"}


def test_the_controllers_container_serves_all_workers_and_is_gone_at_the_end(
    run_pytest: pytest.Pytester, docker: Any, from_docker: tuple[str, ...]
) -> None:
    before = containers(docker)
    run_pytest.makepyfile(
        """
        import os, pathlib
        import pytest

        @pytest.mark.parametrize("n", range(2))
        def test_it(queuey_broker, queuey_rabbitmq_server, n):
            assert queuey_broker.queues() == []
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"seen-{worker}").write_text(queuey_rabbitmq_server.server.container)
        """
    )
    result = run_pytest.runpytest_subprocess("-p", "xdist", "-n", "2", "--dist=each", *from_docker)
    result.assert_outcomes(passed=4)
    assert len(list(run_pytest.path.glob("seen-*"))) == 2
    assert len({path.read_text() for path in run_pytest.path.glob("seen-*")}) == 1
    assert containers(docker) == before


def test_a_killed_controller_leaves_no_container(
    run_pytest: pytest.Pytester, docker: Any, from_docker: tuple[str, ...]
) -> None:
    run_pytest.makepyfile(
        """
        import pathlib, time

        def test_it(queuey_broker, queuey_rabbitmq_server):
            pathlib.Path("writing").write_text(queuey_rabbitmq_server.server.container)
            pathlib.Path("writing").rename("running")
            time.sleep(60)
        """
    )
    controller = subprocess.Popen(  # noqa: S603 -- our own interpreter
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", *from_docker],
        cwd=run_pytest.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert wait_for((run_pytest.path / "running").exists)
        container = (run_pytest.path / "running").read_text()
        assert container in containers(docker)
        controller.kill()
        controller.wait(PATIENCE)
        killed = time.monotonic()
        assert wait_for(lambda: container not in containers(docker))
        assert time.monotonic() - killed < 15
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(controller.pid, signal.SIGKILL)
        controller.wait(PATIENCE)


def test_a_container_that_ends_by_itself_is_an_error_with_what_it_said_last(
    run_pytest: pytest.Pytester, docker: Any, make_image: Callable[..., str]
) -> None:
    before = containers(docker)
    image = make_image("queuey-gives-up", "sh", "-c", "echo the disk is full; exit 3")
    run_pytest.makepyfile(USES_THE_BROKER)
    started = time.monotonic()
    result = run_pytest.runpytest_inprocess(
        "--queuey-broker=rabbitmq", "--queuey-rabbitmq-source=docker", f"--queuey-rabbitmq-image={image}"
    )
    assert time.monotonic() - started < 30
    result.assert_outcomes(errors=1)
    # It may end while it is being started, or when it is looked whether it is ready.
    result.stdout.fnmatch_lines(["*queuey-gives-up:1 *exited with status 3*Its last lines:", "    the disk is full"])
    assert containers(docker) == before


def test_an_image_of_another_version_than_was_asked_for_is_an_error(
    run_pytest: pytest.Pytester, docker: Any, image: str
) -> None:
    repository, _, _ = image.partition(":")
    docker.images.get(image).tag(repository, "1.2.3")
    run_pytest.makepyfile(USES_THE_BROKER)
    try:
        result = run_pytest.runpytest_inprocess(
            *("--queuey-broker=rabbitmq-1.2.3", "--queuey-rabbitmq-source=docker", f"--queuey-rabbitmq-image={image}")
        )
    finally:
        docker.images.remove(f"{repository}:1.2.3")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"rabbitmq-1.2.3 was asked for (--queuey-broker), and image {repository}:1.2.3 is *"])


def test_an_image_that_cannot_be_had_is_an_error_that_says_so(run_pytest: pytest.Pytester, docker: Any) -> None:
    before = containers(docker)
    run_pytest.makepyfile(USES_THE_BROKER)
    result = run_pytest.runpytest_inprocess(
        *("--queuey-broker=rabbitmq", "--queuey-rabbitmq-source=docker"),
        "--queuey-rabbitmq-image=localhost:1/queuey/nowhere:1",  # no registry listens there
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["starting a container of the image localhost:1/queuey/nowhere:1 failed: *"])
    assert containers(docker) == before
