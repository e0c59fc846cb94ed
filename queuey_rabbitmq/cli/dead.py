"""`queuey dead`: list, show, requeue and purge the dead letters of a work queue."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from queuey_rabbitmq import topology
from queuey_rabbitmq.cli.connecting import connected, duration, url_option
from queuey_rabbitmq.cli.shown import as_json, full, plain, table_of
from queuey_rabbitmq.dead_letter import Attempt
from queuey_rabbitmq.dead_letters import Choice, DeadLetters, Drained
from queuey_rabbitmq.dead_letters import Progress as Looking
from queuey_rabbitmq.options import RabbitMqOptions

WIDTH_OF_NO_TERMINAL = 160


@click.group()
def dead() -> None:
    """Look after the dead letters of a work queue.

    QUEUE is the work queue, "emails"; its dead letters are in "emails.dead". Nothing is lost, whatever happens in
    between: looking gives everything back in order, and requeueing publishes, waits for the broker's confirm, and
    only then takes a letter off.
    """


def _choosing(limit: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command its queue, and what says which dead letters are meant."""
    options: list[Callable[[Any], Any]] = [
        click.argument("queue"),
        url_option,
        click.option("--reason", metavar="TEXT", help="Only those whose reason contains this."),
        click.option("--type", "job_type", metavar="NAME", help="Only jobs of this type."),
        click.option("--id", "job_id", type=click.UUID, help="Only the job with this id."),
        click.option(
            "--older-than",
            type=duration,
            help="Only jobs that were first enqueued at least so long ago: 90, 15m, 2h, 3d.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=limit,
            show_default=limit is not None,
            help="At most so many, the oldest first.",
        ),
        click.option(
            "--dead-suffix",
            default=topology.DEFAULT_DEAD_SUFFIX,
            show_default=True,
            help="What makes the name of the dead queue, where an application has its own.",
        ),
        click.option("--json", "is_json", is_flag=True, help="Print JSON, for scripts."),
    ]

    def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return choosing


@dead.command("list")
@_choosing(limit=50)
def list_(queue: str, url: str, *, dead_suffix: str, is_json: bool, **choice: Any) -> None:
    """List dead letters, oldest first; with --json one object in a line."""
    with _dead_letters(queue, url, dead_suffix) as letters:
        if is_json:
            for letter in letters.look(**_choice(choice)):
                click.echo(as_json(letter))
            return
        total = _Total()
        shown = list(letters.look(progress=total, **_choice(choice)))
    if shown:
        _console().print(table_of(shown, queue))
    _say_how_many(len(shown), total, queue, choice["limit"])


@dead.command()
@_choosing(limit=5)
def show(queue: str, url: str, *, dead_suffix: str, is_json: bool, **choice: Any) -> None:
    """Show everything about dead letters: properties, headers, payload or raw body."""
    console, total, shown = _console(), _Total(), 0
    with _dead_letters(queue, url, dead_suffix) as letters:
        for letter in letters.look(progress=total, **_choice(choice)):
            shown += 1
            if is_json:
                click.echo(as_json(letter))
            else:
                console.print(full(letter))
                console.print()
    if not is_json:
        _say_how_many(shown, total, queue, choice["limit"])


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say how many are meant, and change nothing.")


@dead.command()
@_choosing(limit=None)
@click.option(
    "--attempt",
    type=click.Choice(["next", "first"]),
    default="next",
    show_default=True,
    help="Try once more than was tried; or begin anew, with all attempts and no deferrals.",
)
@click.option("--malformed", is_flag=True, help="Requeue what is no job too, as it is; else such are left.")
@_DRY_RUN
def requeue(
    queue: str,
    url: str,
    *,
    attempt: Attempt,
    malformed: bool,
    dry_run: bool,
    dead_suffix: str,
    is_json: bool,
    **choice: Any,
) -> None:
    """Put dead letters back on the queues they came from.

    Exits with 1 where one could not be; it is still in the dead queue then.
    """
    with _dead_letters(queue, url, dead_suffix) as letters, _progress("requeueing", is_json=is_json) as progress:
        done = letters.requeue(
            attempt=attempt, malformed=malformed, dry_run=dry_run, progress=progress, **_choice(choice)
        )
    _report(done, queue, "requeued", is_json=is_json)


@dead.command()
@_choosing(limit=None)
@_DRY_RUN
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(queue: str, url: str, *, dry_run: bool, yes: bool, dead_suffix: str, is_json: bool, **choice: Any) -> None:
    """Throw dead letters away, those that are no job too. Asks first, unless told --yes."""
    with _dead_letters(queue, url, dead_suffix) as letters:
        meant = _choice(choice)
        if not dry_run and not yes:
            count = letters.purge(dry_run=True, **meant)
            asked = f"Throw away {count.chosen} of {count.total} dead letters of '{queue}'? They cannot be had back."
            click.confirm(asked, abort=True, err=True)
            if not count.chosen:
                return
            meant["limit"] = count.chosen
        with _progress("purging", is_json=is_json) as progress:
            done = letters.purge(dry_run=dry_run, progress=progress, **meant)
    _report(done, queue, "thrown away", is_json=is_json)


@contextmanager
def _dead_letters(queue: str, url: str, dead_suffix: str) -> Iterator[DeadLetters]:
    logging.getLogger("queuey_rabbitmq").addHandler(logging.NullHandler())  # what is wrong is in the report
    # Without reconnection: what was held is back in the queue then, and to start again is for who asked.
    options = RabbitMqOptions(connection_name=f"queuey dead {queue}", reconnect=None)
    with connected(url, options.replace(dead_suffix=dead_suffix)) as backend:
        yield DeadLetters(backend, queue)


def _choice(given: dict[str, Any]) -> Choice:
    job_id: uuid.UUID | None = given["job_id"]
    return Choice(
        reason=given["reason"],
        job_type=given["job_type"],
        job_id=job_id,
        older_than=given["older_than"],
        limit=given["limit"],
    )


class _Total:
    """Remembers how far the looking has come."""

    looked_at = total = 0

    def __call__(self, looked_at: int, total: int) -> None:
        self.looked_at, self.total = looked_at, total


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH_OF_NO_TERMINAL)


@contextmanager
def _progress(doing: str, *, is_json: bool) -> Iterator[Looking]:
    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=is_json or not console.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda looked_at, total: bar.update(task, completed=looked_at, total=total)


def _say_how_many(shown: int, total: _Total, queue: str, limit: int | None) -> None:
    if not total.total:
        click.echo(f"No dead letters of '{queue}'.")
    elif total.looked_at < total.total:
        click.echo(
            f"The first {shown} that are meant, as --limit is {limit}; "
            f"looked at {total.looked_at} of {total.total} dead letters of '{queue}'."
        )
    else:
        click.echo(f"{shown} of {total.total} dead letters of '{queue}'.")


def _report(done: Drained, queue: str, what: str, *, is_json: bool) -> None:
    """Say what was done; end with exit code 1 where something was not."""
    if is_json:
        click.echo(msgspec.json.encode(done))
    else:
        count, would = (done.chosen, "would be ") if done.dry_run else (done.done, "")
        looked = "" if done.looked_at == done.total else f" (looked at {done.looked_at})"
        click.echo(f"{count} of {done.total} dead letters of '{queue}'{looked} {would}{what}.")
        if done.malformed:
            click.echo(f"{done.malformed} are no jobs and were left; --malformed requeues such as they are.")
    for error, times in done.errors.items():
        click.echo(f"Error: {times} x {plain(error)}", err=True)
    if done.errors:
        click.get_current_context().exit(1)
