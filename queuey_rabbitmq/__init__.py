"""Job queues on RabbitMQ.

Every public name is loaded when it is first asked for, so that importing the package costs nothing and needs no
AMQP client: `pika`, re-exported, is the version that the backend uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pika

    from queuey_rabbitmq import codec, topology
    from queuey_rabbitmq.backend import RabbitMqBackend
    from queuey_rabbitmq.core.backend import Backend, Deliveries
    from queuey_rabbitmq.core.delivery import Delivery
    from queuey_rabbitmq.core.envelope import Envelope
    from queuey_rabbitmq.core.errors import (
        AlreadySettledError,
        BackendError,
        ChannelClosedError,
        ConnectError,
        ConnectionLostError,
        ConsumerCancelledError,
        DeadlineExceededError,
        DeclareRefusedError,
        DelayTooLongError,
        DeliveryLost,
        InvalidConfigError,
        JobsNotConfirmedError,
        NothingPending,
        OutcomeUnknownError,
        PublishRefusedError,
        QueueNameTooLongError,
        QueueyError,
        SerializationError,
        ShutDownError,
        UnknownQueueError,
        UnroutableError,
    )
    from queuey_rabbitmq.core.handlers import handles
    from queuey_rabbitmq.core.hooks import Hooks
    from queuey_rabbitmq.core.job_context import JobContext
    from queuey_rabbitmq.core.jobs import Job, declared, job
    from queuey_rabbitmq.core.outcomes import Deferred, Fatal, JobTimeoutError, Retryable
    from queuey_rabbitmq.core.producer import Producer
    from queuey_rabbitmq.core.queue_config import QueueConfig
    from queuey_rabbitmq.core.queue_set import Queue, QueueSet, WorkQueue
    from queuey_rabbitmq.core.reconnect import Attempt, ReconnectPolicy
    from queuey_rabbitmq.core.retry import Backoff, RetryDecision, RetryPolicy
    from queuey_rabbitmq.core.worker import Worker
    from queuey_rabbitmq.dead_letter import DeadLetter
    from queuey_rabbitmq.dead_letters import DeadLetters, Drained
    from queuey_rabbitmq.options import RabbitMqOptions
    from queuey_rabbitmq.rabbitmq_delivery import RabbitMqDelivery

__all__ = [
    "AlreadySettledError",
    "Attempt",
    "Backend",
    "BackendError",
    "Backoff",
    "ChannelClosedError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumerCancelledError",
    "DeadLetter",
    "DeadLetters",
    "DeadlineExceededError",
    "DeclareRefusedError",
    "Deferred",
    "DelayTooLongError",
    "Deliveries",
    "Delivery",
    "DeliveryLost",
    "Drained",
    "Envelope",
    "Fatal",
    "Hooks",
    "InvalidConfigError",
    "Job",
    "JobContext",
    "JobTimeoutError",
    "JobsNotConfirmedError",
    "NothingPending",
    "OutcomeUnknownError",
    "Producer",
    "PublishRefusedError",
    "Queue",
    "QueueConfig",
    "QueueNameTooLongError",
    "QueueSet",
    "QueueyError",
    "RabbitMqBackend",
    "RabbitMqDelivery",
    "RabbitMqOptions",
    "ReconnectPolicy",
    "RetryDecision",
    "RetryPolicy",
    "Retryable",
    "SerializationError",
    "ShutDownError",
    "UnknownQueueError",
    "UnroutableError",
    "WorkQueue",
    "Worker",
    "codec",
    "declared",
    "handles",
    "job",
    "pika",
    "topology",
]

_MODULES = {
    "codec": "queuey_rabbitmq.codec",
    "pika": "pika",
    "topology": "queuey_rabbitmq.topology",
}

_HOMES = {
    "Attempt": "core.reconnect",
    "Backend": "core.backend",
    "Backoff": "core.retry",
    "DeadLetter": "dead_letter",
    "DeadLetters": "dead_letters",
    "Deferred": "core.outcomes",
    "Deliveries": "core.backend",
    "Delivery": "core.delivery",
    "Drained": "dead_letters",
    "Envelope": "core.envelope",
    "Fatal": "core.outcomes",
    "Hooks": "core.hooks",
    "Job": "core.jobs",
    "JobContext": "core.job_context",
    "JobTimeoutError": "core.outcomes",
    "Producer": "core.producer",
    "Queue": "core.queue_set",
    "QueueConfig": "core.queue_config",
    "QueueSet": "core.queue_set",
    "RabbitMqBackend": "backend",
    "RabbitMqDelivery": "rabbitmq_delivery",
    "RabbitMqOptions": "options",
    "ReconnectPolicy": "core.reconnect",
    "RetryDecision": "core.retry",
    "RetryPolicy": "core.retry",
    "Retryable": "core.outcomes",
    "WorkQueue": "core.queue_set",
    "Worker": "core.worker",
    "declared": "core.jobs",
    "handles": "core.handlers",
    "job": "core.jobs",
}
"""Where a name stands that is neither a module nor an error."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    else:
        value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'core.errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
