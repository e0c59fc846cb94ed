"""How a work queue's companions are named, declared and timed, so that tooling computes what the backend does.

A work queue `q` has `q.dead` for jobs that failed for good, and one hold queue `q.deferred.{ttl_ms}` per distinct
delay, which dead-letters what it holds back onto `q`. In the older three-queue topology, retries and delayed
publishes wait in `q.retry` with an expiration each instead; there a short wait stands behind a longer one, because
RabbitMQ expires a queue's messages from its head only (scenario ttl_msg_hol_blocking).

Pure: no connection, no I/O, no AMQP client. Argument tables are plain dicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuey_rabbitmq.core.durations import whole_ms

if TYPE_CHECKING:
    from datetime import timedelta

    from queuey_rabbitmq.core.queue_config import QueueConfig
    from queuey_rabbitmq.options import RabbitMqOptions

DEFAULT_DEAD_SUFFIX = ".dead"
DEFAULT_DEFERRED_SUFFIX = ".deferred"
DEFAULT_RETRY_SUFFIX = ".retry"
"""What an older worker on the same queues expects; the three-queue topology is off unless it is asked for."""

HEADER_DEATH_REASON = "x-death-reason"
HEADER_ORIGINAL_QUEUE = "x-original-queue"
HEADER_ATTEMPTS = "x-attempts"
"""Attempts that were made, on dead letters."""
HEADER_ATTEMPT = "x-attempt"
"""The attempt that this is, on live messages."""
HEADER_DEFERRALS = "x-deferrals"

ARG_DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
ARG_DEAD_LETTER_ROUTING_KEY = "x-dead-letter-routing-key"
ARG_MESSAGE_TTL = "x-message-ttl"
ARG_MAX_PRIORITY = "x-max-priority"
ARG_EXPIRES = "x-expires"
MAX_TTL_MS = 4_294_967_295
"""The longest time to live that is ever asked for, 32 bits of ms: about 49.7 days.

RabbitMQ takes up to ten years (scenario ttl_queue_large); every implementation on the same queues must ask for the
same, though, or redeclaring is refused.
"""
MAX_DEFERRAL_MS = MAX_TTL_MS // 2
"""The longest wait in a hold queue, about 24.8 days: its x-expires is twice its x-message-ttl."""

# RabbitMQ's own delivery limit, 20 from 4.0 on, drops a job that came back so often, and losing a connection brings
# back whatever is out (scenario quorum_default_delivery_limit). -1 says unlimited to RabbitMQ 4, and to 3.10 that a
# message is dropped when it first comes back; so this is a number that nothing reaches.
_QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}


def dead_queue_name(queue: str, suffix: str) -> str:
    """Name the queue of jobs that failed for good."""
    return f"{queue}{suffix}"


def deferred_queue_name(queue: str, suffix: str, ttl_ms: int) -> str:
    """Name the hold queue of one delay."""
    return f"{queue}{suffix}.{ttl_ms}"


def retry_queue_name(queue: str, suffix: str) -> str:
    """Name the wait queue of the three-queue topology."""
    return f"{queue}{suffix}"


def longest_queue_name(queue: str, options: RabbitMqOptions) -> str:
    """Return the longest name, in UTF-8, that a queue's topology can come to need; usually that of a hold queue.

    No granularity shortens it: the longest delay under the cap always has as many digits as the cap.
    """
    names = [deferred_queue_name(queue, options.deferred_suffix, MAX_DEFERRAL_MS)]
    if options.declare_dead_letter_queues:
        names.append(dead_queue_name(queue, options.dead_suffix))
    if options.retry_suffix is not None:
        names.append(retry_queue_name(queue, options.retry_suffix))
    return max(names, key=lambda name: len(name.encode()))


def deferred_ttl_ms(delay: timedelta | float, granularity: timedelta | float) -> int | None:
    """Return how long a hold queue waits for `delay`: rounded up to whole steps, at least one; None over the cap.

    Both are timedelta or seconds; the granularity acts within 1 ms and MAX_DEFERRAL_MS. None means longer than a
    hold queue can wait. Raises InvalidConfigError for what is no length of time.
    """
    return _rounded_up(delay, granularity, limit=MAX_DEFERRAL_MS)


def retry_expiration_ms(delay: timedelta | float, granularity: timedelta | float) -> int | None:
    """Return the expiration of a message in the retry queue, rounded as `deferred_ttl_ms`; None over MAX_TTL_MS."""
    return _rounded_up(delay, granularity, limit=MAX_TTL_MS)


def queue_args(config: QueueConfig) -> dict[str, Any]:
    """Return the arguments of the work queue."""
    args: dict[str, Any] = {}
    if config.message_ttl_ms is not None:
        args[ARG_MESSAGE_TTL] = min(config.message_ttl_ms, MAX_TTL_MS)
    if config.queue_type == "quorum":
        return args | _QUORUM  # which refuses x-max-priority
    if config.max_priority:
        args[ARG_MAX_PRIORITY] = config.max_priority
    return args


def deferred_queue_args(config: QueueConfig, ttl_ms: int, *, lease_margin_ms: int = 0) -> dict[str, Any]:
    """Return the arguments of a hold queue: it gives everything back after `ttl_ms`, and goes when idle for twice.

    And the margin: see RabbitMqOptions.hold_lease_margin.
    """
    return {
        ARG_MESSAGE_TTL: ttl_ms,
        ARG_DEAD_LETTER_EXCHANGE: "",
        ARG_DEAD_LETTER_ROUTING_KEY: config.name,
        ARG_EXPIRES: 2 * ttl_ms + lease_margin_ms,
    }


def retry_queue_args(config: QueueConfig) -> dict[str, Any]:
    """Return the arguments of the retry queue: it gives each message back when that message's expiration is over."""
    return {ARG_DEAD_LETTER_EXCHANGE: "", ARG_DEAD_LETTER_ROUTING_KEY: config.name}


def dead_queue_args(config: QueueConfig) -> dict[str, Any]:
    """Return the arguments of the dead queue: none, whatever the work queue has; a quorum queue's is one too."""
    return dict(_QUORUM) if config.queue_type == "quorum" else {}


def _rounded_up(delay: timedelta | float, granularity: timedelta | float, *, limit: int) -> int | None:
    step = min(max(whole_ms(granularity, name="granularity"), 1), limit)
    steps = max(-(-whole_ms(delay, name="delay") // step), 1)
    ms = steps * step
    return ms if ms <= limit else None
