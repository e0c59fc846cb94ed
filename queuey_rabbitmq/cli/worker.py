"""`queuey worker`: finds an application's jobs and runs a worker for them."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
from rich.console import Console
from rich.logging import RichHandler

from queuey_rabbitmq.backend import RabbitMqBackend
from queuey_rabbitmq.cli.connecting import connected, duration, url_option, where
from queuey_rabbitmq.core.errors import QueueyError
from queuey_rabbitmq.core.hooks import Hooks
from queuey_rabbitmq.core.job_context import JobContext
from queuey_rabbitmq.core.queue_set import QueueSet, WorkQueue
from queuey_rabbitmq.core.real_time import monotonic_s
from queuey_rabbitmq.core.worker import GRACE_S, Worker
from queuey_rabbitmq.options import RabbitMqOptions

log = logging.getLogger("queuey_rabbitmq.cli")

SUMMARY_EVERY_S = 10


@click.command()
@click.argument("target")
@url_option
@click.option("--concurrency", type=click.IntRange(min=1), help="Jobs at a time; by default the sum of the prefetches.")
@click.option("--queue", "only", multiple=True, metavar="NAME", help="Consume only this queue of the set; repeatable.")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="Import this too, for its handlers.")
@click.option("--grace", type=duration, show_default=f"{GRACE_S}s", help="How long a shutdown waits for jobs.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much is logged, on standard error; debug has every job that is done.",
)
def worker(
    target: str,
    url: str,
    *,
    concurrency: int | None,
    only: tuple[str, ...],
    modules: tuple[str, ...],
    grace: timedelta | None,
    log_level: str,
) -> None:
    """Run a worker for the jobs of TARGET, until SIGTERM or SIGINT.

    TARGET is module:attribute, found from the working directory too. The attribute is a queue set, myapp.jobs:Emails,
    whose handlers are those that were registered with @handles when the module, and each --import, was imported. Or
    it is a function that takes a backend and returns a Worker, which decides everything itself.

    The first signal lets running jobs end, for the time of --grace; a second one gives them back to the broker at
    once. Exits with 1 where the broker was lost for good.
    """
    _log_to_stderr(log_level)
    found = _find(target, modules)
    is_set = isinstance(found, type) and issubclass(found, QueueSet)
    if is_set:
        _check_handlers(found, target)
    elif concurrency is not None or only or grace is not None:
        raise click.UsageError(
            f"{target} makes its own worker, which --concurrency, --queue and --grace cannot change."
        )
    chosen = [_queue_named(found, name) for name in only] or None
    with connected(url, RabbitMqOptions(connection_name=f"queuey worker {target}")) as backend:
        log.info("connected to %s", where(url))
        tally = Tally()
        made = (
            Worker(
                backend,
                found,
                only=chosen,
                concurrency=concurrency,
                hooks=[tally],
                grace=GRACE_S if grace is None else grace,
            )
            if is_set
            else _make(found, backend, target)
        )
        made.run()
        if is_set:
            log.info("stopped; since the start %s", tally)


class Tally(Hooks):
    """Counts what becomes of jobs, and logs the counts from time to time while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._next_summary = monotonic_s() + SUMMARY_EVERY_S

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self._counts.items())) or "no job"

    def succeeded(self, context: JobContext, took: float) -> None:
        """Count a job that is done."""
        del context, took
        self._count("done")

    def retried(self, context: JobContext, error: BaseException, delay: timedelta, took: float) -> None:
        """Count a job that comes back as its next attempt."""
        del context, error, delay, took
        self._count("to be tried again")

    def deferred(self, context: JobContext, reason: str, delay: timedelta, took: float) -> None:
        """Count a job that is held."""
        del context, reason, delay, took
        self._count("deferred")

    def dead_lettered(self, context: JobContext, reason: str, error: BaseException | None, took: float) -> None:
        """Count a job that goes to the dead queue."""
        del context, reason, error, took
        self._count("dead-lettered")

    def settle_failed(self, context: JobContext, error: BaseException) -> None:
        """Count an outcome that the broker was not told."""
        del context, error
        self._count("to be delivered again, as the broker could not be told")

    def _count(self, what: str) -> None:
        now = monotonic_s()
        with self._lock:
            self._counts[what] += 1
            is_due = now >= self._next_summary
            if is_due:
                self._next_summary = now + SUMMARY_EVERY_S
        if is_due:
            log.info("since the start %s", self)


def _log_to_stderr(level: str) -> None:
    console = Console(stderr=True)
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, log_time_format="%H:%M:%S")
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # what a connection goes through, queuey says itself


def _find(target: str, modules: tuple[str, ...]) -> Any:
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise click.BadParameter(f"expected module:attribute, such as myapp.jobs:Emails, got {target!r}")
    if os.getcwd() not in sys.path:  # noqa: PTH109 -- sys.path holds text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 -- as above
    with _importing(module_name):
        module = importlib.import_module(module_name)
    for name in modules:
        with _importing(name):
            importlib.import_module(name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found) or (isinstance(found, type) and not issubclass(found, QueueSet)):
        sets = [name for name, value in vars(module).items() if _is_queue_set(value)]
        raise click.ClickException(
            f"{target}: module '{module_name}' has no queue set, and no function that makes a worker, of that name."
            + (f" Its queue sets: {', '.join(sets)}." if sets else "")
        )
    return found


def _is_queue_set(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, QueueSet) and value is not QueueSet


@contextmanager
def _importing(name: str) -> Iterator[None]:
    """Say of an application's error where in its code it is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            text = f"there is no module '{error.name}'. Run the command where it can be imported from: {os.getcwd()}?"  # noqa: PTH109 -- to be read
        else:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} (in {last.filename}, line {last.lineno})"
        raise click.ClickException(f"importing '{name}': {text}") from error


def _check_handlers(queues: type[QueueSet], target: str) -> None:
    if not queues.__queues__:
        raise click.ClickException(f"{target}: is QueueSet itself, and has no queues.")
    if not queues.__handlers__:
        jobs = ", ".join(queues.__jobs__) or "none"
        raise click.ClickException(
            f"{target}: no handler is registered, so every job would be dead-lettered. Its jobs: {jobs}. Handlers are "
            "functions decorated with @handles(Job); name their module with --import where it is another one."
        )


def _queue_named(queues: type[QueueSet], name: str) -> WorkQueue[Any]:
    for attribute, queue in queues.__queues__.items():
        if name in (attribute, queue.name):
            return queue
    known = ", ".join(queue.name for queue in queues.__queues__.values())
    raise click.BadParameter(f"--queue: {queues.__qualname__} has no queue {name!r}; it has {known}")


def _make(factory: Any, backend: RabbitMqBackend, target: str) -> Worker[Any]:
    try:
        made = factory(backend)
    except QueueyError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise click.ClickException(
            f"{target}: making a worker: {type(error).__name__}: {error} (in {last.filename}, line {last.lineno})"
        ) from error
    if not isinstance(made, Worker):
        raise click.ClickException(f"{target}: expected a function that returns a Worker, it returned {made!r}")
    return made
