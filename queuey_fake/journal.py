"""What became of each message, in virtual time: stories for people, and losses that RabbitMQ would not speak of.

Follows the model through its observer and changes nothing. Bounded: the oldest messages are forgotten first, and of a
message with a very long life the middle.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

import msgspec

from queuey_fake.model.message import Message
from queuey_fake.model.properties import Properties
from queuey_fake.model.queue import CONNECTION_ENDED, DELETED, NO_CONSUMER_LEFT
from queuey_fake.wording import instant

MAX_MESSAGES = 20_000
MAX_EVENTS_PER_MESSAGE = 200
MAX_LOSSES = 1_000
"""How many losses are kept, beside the first of each kind: in one queue, for one reason."""
MAX_LOSS_KINDS = 20_000
MAX_TOLD_LOSSES = 20
MAX_BODY_BYTES = 400
"""How much of a message's body is kept: its beginning, to recognise it by."""
LAST_EVENTS = 50

ASKED_FOR = frozenset({"rejected", DELETED, NO_CONSUMER_LEFT, CONNECTION_ENDED})
"""Ways to vanish that somebody asked for: a reject where nothing takes dead letters, a queue that was deleted."""
VANISHES = frozenset({"dropped", "lost", "unroutable"})


Event = tuple[int, int, str, str, str]
"""One thing that happened to a message: its place among all, when (in ms), what, in which queue, and a detail.

Plain, as there are many. Where time goes back, the place among all still says what came first.
"""


@dataclass(frozen=True, slots=True)
class Loss:
    """A message that RabbitMQ dropped without a trace, and that nobody asked it to drop."""

    number: int
    message_id: str | None
    queue: str
    reason: str
    is_ours: bool
    """Whether it is a job of queuey's, whichever way it was published, and not some other client's message."""

    def __str__(self) -> str:
        """Say it in one line."""
        return f"message {self.message_id or f'number {self.number}'} was lost in queue '{self.queue}': {self.reason}"


class Life(msgspec.Struct, eq=False, gc=False):
    """What is kept of one message. Many are kept for long; the garbage collector has no need to go through them."""

    number: int
    properties: Properties
    routing_key: str
    size: int
    body_start: bytes
    is_ours: bool
    events: list[Event]
    left_out: int = 0
    """How many events from the middle of a very long life are forgotten."""

    @property
    def message_id(self) -> str | None:
        """What the message calls itself; read when somebody asks, which for most messages is never."""
        return self.properties.message_id


class Journal:
    """The journal of one broker; `marks` are the headers that every job of queuey's bears, also over the port."""

    def __init__(self, marks: frozenset[str] = frozenset()) -> None:
        self._marks = marks
        self.is_ours = False
        """Whether a queuey backend is publishing; set by its link around each publish."""
        self.losses: list[Loss] = []
        """The losses so far, expected or not, oldest first: of very many, those that are not like one that is kept."""
        self._loss_kinds: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
        """In which queue and for which reason, of queuey's messages and of others'."""
        self._lives: OrderedDict[int, Life] = OrderedDict()
        self._last: deque[tuple[int, Event]] = deque(maxlen=LAST_EVENTS)
        self._expected: list[tuple[str | None, str | None]] = []
        self._places = count(1)
        self.forgotten = 0
        """How many messages, the oldest, are forgotten."""

    # --------------------------------------------------------------------------------------- for a test

    def story(self, message_or_job_id: object) -> str:
        """Return the life of the messages with that message id, which is the job's id for jobs, in lines of text."""
        wanted = str(message_or_job_id)
        lives = [life for life in self.lives() if life.message_id == wanted]
        if not lives:
            hint = f"; {self.forgotten} older messages are forgotten" if self.forgotten else ""
            return f"no message with the id {wanted} was published{hint}"
        return "\n".join(_told(life) for life in lives)

    def lives(self) -> list[Life]:
        """Return what is kept of each message, in the order in which they were published."""
        return list(self._lives.values())

    def expect_loss(self, *, reason: str | None = None, queue: str | None = None) -> None:
        """Say that messages will be, or have been, lost: in that queue, with `reason` in its reason; None is any."""
        if not isinstance(reason, str | None) or not isinstance(queue, str | None):
            raise TypeError(f"the reason of a loss and the name of a queue are texts, not {reason!r} and {queue!r}")
        self._expected.append((reason, queue))

    def unexpected_losses(self, *, of_others: bool = False) -> list[Loss]:
        """Return the losses of queuey's messages that no `expect_loss` covers; with `of_others`, everybody's."""
        return [loss for loss in self.losses if (loss.is_ours or of_others) and not self._is_expected(loss)]

    def explain(self, losses: Iterable[Loss]) -> str:
        """Return what a failure report should say of losses, each with its message's story."""
        told, others = _one_of_each_kind_first(losses)
        more = [f"... and {others} more"] if others else []
        return "\n".join([*(f"{loss}\n{self._told_by_number(loss.number)}" for loss in told), *more])

    @property
    def last_at_ms(self) -> int | None:
        """Return when the last thing happened, in ms since the epoch; None where nothing has."""
        return self._last[-1][1][1] if self._last else None

    def last_events(self) -> list[str]:
        """Return the last things that happened, oldest first, each in one line."""
        last = list(self._last)  # at once, as other threads may still be at work
        return [f"{_line(event)}  #{number}" for number, event in last]

    # ------------------------------------------------------------------------- for the model (Observer)

    def report(self, what: str, message: Message, *, queue: str, detail: str, at_ms: int) -> None:
        """Take note."""
        number = message.number
        life = self._lives.get(number) or self._begin(message)
        event = (next(self._places), at_ms, what, queue, detail)
        events = life.events
        if len(events) >= MAX_EVENTS_PER_MESSAGE:
            del events[MAX_EVENTS_PER_MESSAGE // 2]
            life.left_out += 1
        events.append(event)
        self._last.append((number, event))
        if what in VANISHES and is_loss(event):
            reason = detail or "unroutable, and not published as mandatory"
            is_ours = life.is_ours or (bool(self._marks) and self._marks <= (life.properties.headers or {}).keys())
            self._keep(Loss(number, life.message_id, queue or life.routing_key, reason, is_ours))

    def _keep(self, loss: Loss) -> None:
        """Keep a loss, unless there are very many; one that may be less expected than those is kept all the same."""
        kinds, kind = self._loss_kinds[loss.is_ours], (loss.queue, loss.reason)
        is_new = kind not in kinds and len(kinds) < MAX_LOSS_KINDS
        if is_new:
            kinds.add(kind)
        if is_new or len(self.losses) < MAX_LOSSES:
            self.losses.append(loss)

    def _begin(self, message: Message) -> Life:
        body = message.body
        life = self._lives[message.number] = Life(
            message.number, message.properties, message.routing_key, len(body), body[:MAX_BODY_BYTES], self.is_ours, []
        )
        if len(self._lives) > MAX_MESSAGES:
            self._lives.popitem(last=False)
            self.forgotten += 1
        return life

    def _is_expected(self, loss: Loss) -> bool:
        return any(
            (reason is None or reason in loss.reason) and (queue is None or queue == loss.queue)
            for reason, queue in self._expected
        )

    def _told_by_number(self, number: int) -> str:
        life = self._lives.get(number)
        return "  (its story is forgotten)" if life is None else _told(life)


def _one_of_each_kind_first(losses: Iterable[Loss]) -> tuple[list[Loss], int]:
    """Return the losses that are told, so that no kind is left out for another, and the number of the others."""
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for loss in losses:
        kind = loss.queue, loss.reason
        ranked.append((seen[kind], loss))
        seen[kind] += 1
    ranked.sort(key=lambda item: item[0])
    return [loss for _, loss in ranked[:MAX_TOLD_LOSSES]], max(0, len(ranked) - MAX_TOLD_LOSSES)


def is_loss(event: Event) -> bool:
    """Return whether RabbitMQ drops the message here without a trace, and nobody asked it to."""
    _, _, what, _, detail = event
    return what in VANISHES and detail not in ASKED_FOR


def told(event: Event) -> str:
    """Return what happened, where, and why, for people; not when."""
    _, _, what, queue, detail = event
    where = f" {'to' if what == 'dead-lettered' else 'in'} '{queue}'" if queue else ""
    return f"{what}{where}" + (f" ({detail})" if detail else "")


def _told(life: Life) -> str:
    heading = f"  message {life.message_id or 'without an id'} (#{life.number}, {life.size} bytes):"
    return "\n".join([heading, *(f"    {_line(event)}" for event in life.events)])


def _line(event: Event) -> str:
    return f"{instant(event[1])}  {told(event)}"
