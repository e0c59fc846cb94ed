"""Dead-lettering as pure functions: what a message becomes when it dies, and where it must not go.

Owns the death history (x-death, x-first-death-*, x-last-death-*) with its differences between versions, and the rule
against cycles. Looks up no exchange and routes nothing.

RabbitMQ 4 keeps the history beside the message and writes it into the headers when it delivers (mc:record_death,
mc_amqpl:protocol_state); 3.10 rewrites the headers at each death (rabbit_dead_letter:make_msg).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from queuey_fake.model.fields import VOID, Field, Table, array, in_key_order, long, longstr, table, timestamp
from queuey_fake.model.message import Death, DeathHistory, Message
from queuey_fake.model.properties import Properties
from queuey_fake.model.versions import Version

REJECTED = "rejected"
EXPIRED = "expired"
MAXLEN = "maxlen"
DELIVERY_LIMIT = "delivery_limit"


class MalformedDeathError(Exception):
    """The x-death that a client published is such that 3.10 cannot add to it."""


def dead_lettered(
    message: Message,
    *,
    reason: str,
    queue: str,
    exchange: str,
    routing_key: str | None,
    delivery_count: int,
    now_ms: int,
    version: Version,
) -> Message:
    """Return what the message becomes that dies in the queue and goes to the exchange.

    Raises MalformedDeathError where the history cannot be continued.
    Without `routing_key` it keeps all its keys, those of a BCC header that is long gone included (scenario
    dlx_header_bcc_property_gone). Its expiration is gone, all other properties stay.
    """
    keeps_keys = routing_key is None
    history = None
    properties = message.properties
    if version.trusts_published_x_death:
        properties = _with_x_death(message, reason=reason, queue=queue, keep_cc=keeps_keys, now_ms=now_ms)
    else:
        history = _recorded(message, reason=reason, queue=queue, now_ms=now_ms)
    dead = Message(
        message.number,
        exchange,
        message.routing_key if routing_key is None else routing_key,
        properties,
        message.body,
        other_keys=message.other_keys if keeps_keys else (),
        bcc=message.bcc,
        deaths=history,
        delivery_count=delivery_count,
    )
    dead.died_at_ms = now_ms
    dead.hops = message.hops + 1 if message.died_at_ms == now_ms else 1
    return dead


def cycle_check(message: Message, reason: str) -> Callable[[str], bool] | None:
    """Return what tells of a target queue whether the dead-lettered message must not go there; None where it may.

    It must not go where it has died, unless it was rejected since (rabbit_dead_letter:detect_cycles). A death by
    rejection is never cut.
    """
    if reason == REJECTED:
        return None
    deaths = _known_deaths(message)

    def is_cycle(queue: str) -> bool:
        for died_in, died_of in deaths:
            if died_of == REJECTED or died_of is None:
                return False
            if died_in == queue:
                return True
        return False

    return is_cycle


def delivered_properties(message: Message, annotations: Table | None = None) -> Properties:
    """Return the properties as they are delivered: with the history that RabbitMQ 4 keeps beside the message.

    `annotations` are what a quorum queue adds to the headers.
    """
    history = message.deaths
    if history is None:
        if annotations is None:
            return message.properties
        return message.properties.replace(headers={**(message.properties.headers or {}), **annotations})
    headers = {
        **(message.properties.headers or {}),
        "x-death": array([table(_death_table(death)) for death in history.deaths]),
        **_ends_of(history),
        **(annotations or {}),
    }
    return message.properties.replace(headers=headers, expiration=None)


def routing_headers(message: Message) -> Table | None:
    """Return the headers that a headers exchange looks at: of the history, RabbitMQ 4 shows it the ends only."""
    if message.deaths is None:
        return message.properties.headers
    return {**(message.properties.headers or {}), **_ends_of(message.deaths)}


def _ends_of(history: DeathHistory) -> Table:
    last = history.deaths[0]
    return {
        "x-first-death-exchange": longstr(history.first.exchange),
        "x-first-death-queue": longstr(history.first.queue),
        "x-first-death-reason": longstr(history.first.reason),
        "x-last-death-exchange": longstr(history.last_exchange),
        "x-last-death-queue": longstr(last.queue),
        "x-last-death-reason": longstr(last.reason),
    }


# RabbitMQ 4


def _recorded(message: Message, *, reason: str, queue: str, now_ms: int) -> DeathHistory:
    """Return the history with one more death; a repeated (queue, reason) is counted and comes to the front."""
    old = message.deaths
    if old is not None:
        for place, death in enumerate(old.deaths):
            if death.queue == queue and death.reason == reason:
                others = old.deaths[:place] + old.deaths[place + 1 :]
                return DeathHistory((replace(death, count=death.count + 1), *others), old.first, message.exchange)
    keys = message.routing_keys
    if message.bcc:
        keys = _without(keys, message.bcc)
    first = _first_death(queue, reason, message.exchange, keys, now_ms, message.expiration_ms)
    return first if old is None else DeathHistory((first.first, *old.deaths), old.first, message.exchange)


@lru_cache(maxsize=16)
def _first_death(
    queue: str, reason: str, exchange: str, keys: tuple[str, ...], now_ms: int, expiration_ms: int | None
) -> DeathHistory:
    # A value of its arguments alone, remembered because messages that expire together die the same death: one history
    # for all of them instead of three objects for each, which the collector of garbage would go through again and
    # again.
    death = Death(queue, reason, exchange, keys, now_ms, expiration_ms)
    return DeathHistory((death,), death, exchange)


def _without(keys: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys without the first occurrence of each of the others (Erlang's --)."""
    left = list(keys)
    for key in taken:
        if key in left:
            left.remove(key)
    return tuple(left)


def _death_table(death: Death) -> Table:
    entry: Table = {}
    if death.original_expiration_ms is not None:
        entry["original-expiration"] = longstr(str(death.original_expiration_ms))
    entry["count"] = long(death.count)
    entry["reason"] = longstr(death.reason)
    entry["queue"] = longstr(death.queue)
    entry["time"] = timestamp(death.first_time_ms // 1000)
    entry["exchange"] = longstr(death.exchange)
    entry["routing-keys"] = array([longstr(key) for key in death.routing_keys])
    return entry


def _known_deaths(message: Message) -> list[tuple[Any, Any]]:
    """Return the queues and reasons of all deaths, the most recent first; (None, None) for what no broker wrote."""
    if message.deaths is not None:
        return [(death.queue, death.reason) for death in message.deaths.deaths]
    headers = message.properties.headers
    entries = headers.get("x-death") if headers else None
    if entries is None or entries.type != "array":
        return []
    return [
        (_text(entry.value, "queue"), _text(entry.value, "reason") or "") if entry.type == "table" else (None, None)
        for entry in entries.value
    ]


# RabbitMQ 3.10


def _with_x_death(message: Message, *, reason: str, queue: str, keep_cc: bool, now_ms: int) -> Properties:
    headers: Table = dict(message.properties.headers or {})
    # The BCC header is gone already, so its keys are not there, and all those of CC are (rabbit_basic:header_routes).
    keys = (message.routing_key, *message.other_keys[: len(message.other_keys) - len(message.bcc)])
    entry: Table = {
        "reason": longstr(reason),
        "queue": longstr(queue),
        "time": timestamp(now_ms // 1000),
        "exchange": longstr(message.exchange),
        "routing-keys": array([longstr(key) for key in keys]),
    }
    if message.expiration_ms is not None and message.properties.expiration is not None:
        entry["original-expiration"] = longstr(message.properties.expiration)
    current = headers.get("x-death")
    if current is None:
        headers["x-first-death-exchange"] = longstr(message.exchange)
        headers["x-first-death-queue"] = longstr(queue)
        headers["x-first-death-reason"] = longstr(reason)
        headers["x-death"] = array([table({"count": long(1), **entry})])
    elif current.type != "array":
        # Clients that turn all header values into strings send such (rabbitmq-server issue 767).
        headers["x-death"] = array([table({"count": long(1), **entry})])
    else:
        headers["x-death"] = array(_prepended(current.value, entry))
    if not keep_cc:
        headers.pop("CC", None)
    # Setting a value sorts the whole table (rabbit_misc:set_table_value).
    return message.properties.replace(headers=in_key_order(headers), expiration=None)


def _prepended(entries: tuple[Field, ...], entry: Table) -> list[Field]:
    """Return the entries with the current one in front, its keys sorted.

    group_by_queue_and_reason folds two or more entries into their reverse, each (queue, reason) once (scenario
    dlx_xdeath_chain). An entry of the same queue and reason is counted, and stays as it was otherwise.
    """
    if any(entry.type != "table" for entry in entries):
        raise MalformedDeathError  # queue_and_reason_matcher has no clause for it
    grouped = list(entries) if len(entries) < 2 else _reversed_groups(entries)  # noqa: PLR2004  as RabbitMQ's clauses
    key = _queue_and_reason(entry)
    others = [other for other in grouped if _queue_and_reason(other.value) != key]
    same = [other for other in grouped if _queue_and_reason(other.value) == key]
    counted = _counted(same[0].value, 1) if same else {"count": long(1), **entry}
    return [table(dict(sorted(counted.items()))), *others]


def _reversed_groups(entries: tuple[Field, ...]) -> list[Field]:
    groups: dict[tuple[Any, Any], Field] = {}
    sizes: dict[tuple[Any, Any], int] = {}
    for entry in entries:
        key = _queue_and_reason(entry.value)
        groups.setdefault(key, entry)
        sizes[key] = sizes.get(key, 0) + 1
    return [
        entry if "count" in entry.value else table({"count": long(sizes[key]), **entry.value})
        for key, entry in reversed(groups.items())
    ]


def _counted(entry: Table, more: int) -> Table:
    count = entry.get("count")
    if count is None or count == VOID:
        return {"count": long(more), **entry}
    if not isinstance(count.value, int | float) or isinstance(count.value, bool):
        raise MalformedDeathError  # increment_xdeath_event_count adds one to it
    return {**entry, "count": long(int(count.value) + more)}


def _queue_and_reason(entry: Any) -> tuple[Any, Any]:
    return _text(entry, "queue"), _text(entry, "reason")


def _text(entry: Any, key: str) -> Any:
    field = entry.get(key) if isinstance(entry, dict) else None
    return field.value if field is not None else None
