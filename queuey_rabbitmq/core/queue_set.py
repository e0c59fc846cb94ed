"""Queue sets: the work queues of an application, declared as a class, each mistake an error at import.

A set names its queues and says how each behaves. Knows no job and no broker: jobs are bound to a queue in `jobs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar, Unpack

from queuey_rabbitmq.core.errors import InvalidConfigError
from queuey_rabbitmq.core.queue_config import QueueConfig, QueueType

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Never

    from queuey_rabbitmq.core.handlers import Handler
    from queuey_rabbitmq.core.jobs import JobType
    from queuey_rabbitmq.core.retry import RetryPolicy

SetT = TypeVar("SetT", bound="QueueSet")

MAX_MESSAGE_TTL_MS = 4_294_967_295
"""What a queue set refuses to pass; `topology.queue_args` clamps what comes another way."""


class QueueOptions(TypedDict, total=False):
    """What may be said about a queue; meaning, limits and defaults are those of QueueConfig."""

    prefetch: int
    retry: RetryPolicy
    durable: bool
    message_ttl: timedelta | float | None
    max_priority: int | None
    queue_type: QueueType


@dataclass(frozen=True, slots=True, eq=False)
class WorkQueue(Generic[SetT]):
    """One queue of a set: what `Emails.outgoing` is."""

    queue_set: type[SetT]
    attribute: str
    """What the set calls it."""
    config: QueueConfig

    def __repr__(self) -> str:
        return f"<WorkQueue {self.queue_set.__qualname__}.{self.attribute} '{self.name}'>"

    @property
    def name(self) -> str:
        """Return its name at the broker."""
        return self.config.name


class Queue:
    """Declare a queue in the body of a QueueSet; the set says it of every mistake, with its own name and this one's.

    The name defaults to the attribute in snake_case; the set's prefix and a dot come before it.
    """

    def __init__(self, name: str | None = None, **options: Unpack[QueueOptions]) -> None:
        self._name = name
        self._options: dict[str, Any] = dict(options)
        self._bound: WorkQueue[Any] | None = None

    def __get__(self, instance: object, owner: type[SetT]) -> WorkQueue[SetT]:
        if self._bound is None:
            raise InvalidConfigError(f"{owner.__qualname__}: a Queue stands in a class of its own kind, a QueueSet")
        return self._bound

    def bind(self, queue_set: type[SetT], attribute: str) -> WorkQueue[SetT]:
        """Become a queue of a set. Raises InvalidConfigError that names the set, the attribute and the option."""
        where = f"{queue_set.__qualname__}.{attribute}"
        if self._bound is not None:
            raise InvalidConfigError(f"{where}: is {self._bound!r} already; write another Queue()")
        if unknown := sorted(self._options.keys() - QueueOptions.__annotations__.keys()):
            known = ", ".join(QueueOptions.__annotations__)
            raise InvalidConfigError(f"{where}: no such option: {', '.join(unknown)}; a queue has {known}")
        name = snake_case(attribute) if self._name is None else self._name
        check_text(f"{where}: name", name)
        prefix = queue_set.__prefix__
        try:
            config = QueueConfig(f"{prefix}.{name}" if prefix else name, **self._options)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{where}: {error}") from error
        if config.message_ttl_ms is not None and config.message_ttl_ms > MAX_MESSAGE_TTL_MS:
            raise InvalidConfigError(
                f"{where}: message_ttl: at most {MAX_MESSAGE_TTL_MS} ms (about 49.7 days), got {config.message_ttl!r}"
            )
        self._bound = WorkQueue(queue_set, attribute, config)
        return self._bound


class QueueSet:
    """The queues of an application: subclass it, and assign a Queue to each attribute.

    `class Emails(QueueSet, prefix="myapp"): outgoing = Queue(prefetch=10)` makes `Emails.outgoing`, whose name at
    the broker is "myapp.outgoing". Raises InvalidConfigError at import for what can never work.
    """

    __prefix__: ClassVar[str] = ""
    __queues__: ClassVar[Mapping[str, WorkQueue[Any]]] = MappingProxyType({})
    """The queues by their attributes, in the order of the class body."""
    __jobs__: ClassVar[dict[str, JobType[Any, Any]]] = {}
    """The jobs that were declared for these queues, by name."""
    __handlers__: ClassVar[dict[str, Handler]] = {}
    """The handlers that every worker of the set has, by the name of their job."""

    def __init_subclass__(cls, *, prefix: str = "", **unknown: Never) -> None:
        where = cls.__qualname__
        if unknown:
            raise InvalidConfigError(f"{where}: no such option: {', '.join(sorted(unknown))}; a queue set has prefix")
        if cls.__mro__[1] is not QueueSet:
            raise InvalidConfigError(
                f"{where}: a queue set inherits from QueueSet alone, so that no queue has two owners"
            )
        if prefix != "":
            check_text(f"{where}: prefix", prefix)
            if prefix.endswith("."):
                raise InvalidConfigError(f"{where}: prefix: the dot before a queue's name is added, got {prefix!r}")
        super().__init_subclass__()
        cls.__prefix__ = prefix
        cls.__jobs__ = {}
        cls.__handlers__ = {}
        cls.__queues__ = MappingProxyType(_bind_all(cls))

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__qualname__} is used as it is: a queue set has no instances")


def check_set(what: str, value: object) -> None:
    """Raise InvalidConfigError for what is no queue set."""
    if not isinstance(value, type) or not issubclass(value, QueueSet) or value is QueueSet:
        raise InvalidConfigError(f"{what}: expected a QueueSet, such as Emails, got {value!r}")


def snake_case(name: str) -> str:
    """Return `SendEmail` as `send_email`, `HTTPCall` as `http_call`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def check_text(what: str, value: object) -> None:
    """Raise InvalidConfigError for what is no text in UTF-8, is empty, or has whitespace around it."""
    if not isinstance(value, str):
        raise InvalidConfigError(f"{what}: expected text, got {value!r} ({type(value).__name__})")
    if not value or value != value.strip():
        raise InvalidConfigError(f"{what}: must not be empty or start or end with whitespace, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidConfigError(f"{what}: {value!r} cannot be written in UTF-8: {error}") from error


def _bind_all(cls: type[QueueSet]) -> dict[str, WorkQueue[Any]]:
    bound: dict[str, WorkQueue[Any]] = {}
    names: dict[str, str] = {}
    for attribute, value in list(vars(cls).items()):
        if isinstance(value, Queue):
            queue = value.bind(cls, attribute)
            if queue.name in names:
                raise InvalidConfigError(
                    f"{cls.__qualname__}.{attribute}: name: '{queue.name}' is the name of {names[queue.name]} already"
                )
            names[queue.name] = attribute
            bound[attribute] = queue
        elif value is Queue or isinstance(value, QueueConfig | WorkQueue):
            raise InvalidConfigError(f"{cls.__qualname__}.{attribute}: a queue set declares its queues with Queue(...)")
    if not bound:
        raise InvalidConfigError(f"{cls.__qualname__}: declares no queue; assign a Queue() to an attribute")
    return bound
