"""The ported examples work, on each kind of broker, and a handler is tested by calling it."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from queuey_rabbitmq import Producer, RabbitMqBackend, Worker

HERE = Path(__file__).parent


@pytest.fixture
def dramatiqs() -> dict[str, Any]:
    return runpy.run_path(str(HERE / "from_dramatiq.py"))


@pytest.fixture
def celerys() -> dict[str, Any]:
    return runpy.run_path(str(HERE / "from_celery.py"))


def test_a_worker_counts_the_words_of_a_page(
    dramatiqs: dict[str, Any], queuey_backend: RabbitMqBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page").write_text("four score and seven")
    url = (tmp_path / "page").as_uri()
    Producer(queuey_backend, dramatiqs["Words"]).enqueue(dramatiqs["CountWords"](url))
    Worker(queuey_backend, dramatiqs["Words"]).run(burst=True)
    assert capsys.readouterr().out == f"There are 4 words at {url!r}.\n"


def test_a_handler_is_tested_by_a_call(celerys: dict[str, Any]) -> None:
    assert celerys["add"](celerys["Add"](4, 4)) == 8


def test_a_worker_adds(
    celerys: dict[str, Any], queuey_backend: RabbitMqBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "queuey_rabbitmq.worker")
    Producer(queuey_backend, celerys["Tasks"]).enqueue(celerys["Add"](4, 4))
    Worker(queuey_backend, celerys["Tasks"]).run(burst=True)
    assert "(add) of queue 'tasks.sums', attempt 1 of 1: done in" in caplog.text
