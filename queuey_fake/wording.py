"""How instants, durations, and what a broker holds are put into words. Asks nobody and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from queuey_fake.model.fields import table_to_python
from queuey_fake.model.snapshots import QUEUE_EXPIRES, Pending, QueueSnapshot

MAX_LINES = 20
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))


def instant(at_ms: int) -> str:
    """Return an instant, in ms since the epoch, in ISO 8601 to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def duration(ms: int) -> str:
    """Return a duration of 0 and more in its two largest units: "30 s", "1 h 30 min"."""
    parts = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {unit}")
    if ms or not parts:
        parts.append(f"{ms / 1000:g} s")
    return " ".join(parts[:2])


def explain(queues: Iterable[QueueSnapshot], pending: Iterable[Pending], now_ms: int) -> str:
    """Return what is held and what is due, a line for each, indented."""
    by_name = {(queue.vhost, queue.name): queue for queue in queues}
    lines = [*_held(by_name.values()), *(_due(item, by_name, now_ms) for item in pending)]
    if not lines:
        return "  no queue holds a message, and nothing is due"
    more = [f"  ... and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return "\n".join([*lines[:MAX_LINES], *more])


def _held(queues: Iterable[QueueSnapshot]) -> Iterator[str]:
    for queue in queues:
        waiting = [message for message in queue.messages if not message.is_unacked and message.expires_at_ms is None]
        consumers = _count(queue.consumers, "consumer") if queue.consumers else "no consumer"
        if waiting:
            yield f"  queue '{queue.name}': {_count(len(waiting), 'message')} ready, {consumers}"
        if queue.unacked:
            yield f"  queue '{queue.name}': {_count(queue.unacked, 'message')} delivered and not settled, {consumers}"


def _due(item: Pending, queues: dict[tuple[str, str], QueueSnapshot], now_ms: int) -> str:
    if item.due_at_ms is None:
        what = f"{_count(item.count, 'message')} with a deadline, none due: the head has none"
        return f"  queue '{item.queue}': {what}, and only the head of a queue expires"
    when = f"at {instant(item.due_at_ms)}, {_from_now(item.due_at_ms - now_ms)}"
    if item.what == QUEUE_EXPIRES:
        lost = f"; {_count(item.count, 'message')} would go with it" if item.count else ""
        return f"  queue '{item.queue}': its lease ends {when}, unless somebody uses it{lost}"
    line = (
        f"  queue '{item.queue}': {_count(item.count, 'message')} due {when}{_target(queues[item.vhost, item.queue])}"
    )
    if item.held_back:
        line += f"; {item.held_back} behind the head were to go sooner, but only the head of a queue expires"
    return line


def _target(queue: QueueSnapshot) -> str:
    arguments = table_to_python(queue.arguments)
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is None:
        return ", dropped then"
    key = arguments.get("x-dead-letter-routing-key")
    if exchange == "":
        return f", then to '{key}'" if key is not None else ", then to the queue that it was published to"
    return f", then to exchange '{exchange}'"


def _from_now(ms: int) -> str:
    if ms > 0:
        return f"in {duration(ms)}"
    return "now" if ms == 0 else f"{duration(-ms)} ago"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
