"""Owns what one client and the broker say to each other through the proxy, and the faults that stand in their words.

Octets come in, octets for the other side go out. Refuses to know sockets and time (`proxy`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pytest_queuey.faults import frames
from pytest_queuey.faults.frames import Frame, whole_frames

_PROTOCOL_HEADER: Final = b"AMQP"
_PROTOCOL_HEADER_SIZE: Final = 8


@dataclass(slots=True)
class Script:
    """What is asked of publishes to come, by any client."""

    nacks: int = 0
    returns: int = 0
    left: int = 0
    """After how many publishes every connection is cut; 0 for never."""
    confirms_last: bool = False
    alarm: str | None = None
    is_cutting: bool = False
    """Whether the last publish has gone to the broker: no more of any client passes until all are cut."""


@dataclass(slots=True)
class _Direction:
    """One channel in one direction: how much of a content is still to come, and what waits for its end."""

    is_in_content: bool = False
    remaining: int = 0
    waiting: list[bytes] = field(default_factory=list)

    def passes(self, frame: Frame) -> bool:
        """Take note of a frame; return whether a content, or a method without one, is complete with it."""
        if frame.kind == frames.METHOD:
            self.is_in_content = frame.method in frames.WITH_CONTENT
        elif frame.kind == frames.HEADER:
            self.remaining = frames.body_size(frame)
            self.is_in_content = self.remaining > 0
        else:
            self.remaining -= len(frame.payload)
            self.is_in_content = self.remaining > 0
        return not self.is_in_content


@dataclass(slots=True)
class _Channel:
    to_broker: _Direction = field(default_factory=_Direction)
    to_client: _Direction = field(default_factory=_Direction)
    is_confirming: bool = False
    published: int = 0
    """How many publishes the client has counted since it asked for confirms."""
    swallowed: list[int] = field(default_factory=list)
    """Numbers of the publishes that the broker has not seen, ascending."""
    last: int | None = None
    """The number of the publish after whose confirm everything is cut."""
    held: list[Frame] = field(default_factory=list)
    """A publish that the broker does not get, as far as it has come."""
    fate: str = ""
    asked: list[bytes] = field(default_factory=list)
    """Queues of the consumers that the broker has not confirmed yet, in order."""
    consumers: dict[bytes, bytes] = field(default_factory=dict)
    """The queue of each consumer, by its tag."""
    cancelling: set[bytes] = field(default_factory=set)

    def client_number(self, tag: int) -> int:
        """Return what the client calls the publish that the broker counts as `tag`."""
        for number in self.swallowed:
            if number > tag:
                break
            tag += 1
        return tag


class Conversation:
    """One connection through the proxy. `cut` is called when the script wants every connection cut."""

    def __init__(self, script: Script, cut: Callable[[], None]) -> None:
        self._script = script
        self._cut = cut
        self._from_client = bytearray()
        self._from_broker = bytearray()
        self._is_open = False
        self._is_cut = False
        self._speaks_frames = True
        self._channels: dict[int, _Channel] = {}
        self.for_broker = bytearray()
        self.for_client = bytearray()
        self.is_blocked = False

    @property
    def reads_client(self) -> bool:
        """Whether more of the client's words are wanted."""
        return not (self.is_blocked or self._script.is_cutting)

    @property
    def awaits_cancel(self) -> bool:
        """Whether the broker has not yet answered that consumers are gone."""
        return any(channel.cancelling for channel in self._channels.values())

    def client_says(self, octets: bytes) -> None:
        """Take what the client says."""
        self._from_client += octets
        if not self._is_open:
            if len(self._from_client) < _PROTOCOL_HEADER_SIZE:
                return
            self._is_open = True
            self.for_broker += self._from_client[:_PROTOCOL_HEADER_SIZE]
            del self._from_client[:_PROTOCOL_HEADER_SIZE]
        for frame in whole_frames(self._from_client):
            if not self.reads_client or self._blocks(frame):
                return
            self._pass_to_broker(frame)

    def broker_says(self, octets: bytes) -> None:
        """Take what the broker says."""
        self._from_broker += octets
        if self._from_broker.startswith(_PROTOCOL_HEADER):
            self._speaks_frames = False  # it refused the client's protocol
        if not self._speaks_frames:
            self.for_client += self._from_broker
            self._from_broker.clear()
            return
        for frame in whole_frames(self._from_broker):
            if self._is_cut:
                return
            self._pass_to_client(frame)

    def unblock(self) -> None:
        """Go on where an alarm had stopped."""
        if self.is_blocked:
            self.is_blocked = False
            self.for_client += frames.unblocked()
            self.client_says(b"")

    def cancel_consumers(self, queue: bytes) -> None:
        """Cancel consumers at the broker, and have the client hear of it when the broker has sent their last."""
        for number, channel in self._channels.items():
            for tag in [tag for tag, consumed in channel.consumers.items() if consumed == queue]:
                del channel.consumers[tag]
                channel.cancelling.add(tag)
                self._insert(channel.to_broker, self.for_broker, frames.cancelling(number, tag, wants_answer=True))

    # ------------------------------------------------------------------------------------------- to the broker

    def _blocks(self, frame: Frame) -> bool:
        """Stop at the first publish under an alarm, as RabbitMQ does (measured on 3.10.8, 4.0.5 and 4.3.6)."""
        if self._script.alarm is not None and frame.method == frames.PUBLISH:
            self.is_blocked = True
            self.for_client += frames.blocked(self._script.alarm)
        return self.is_blocked

    def _pass_to_broker(self, frame: Frame) -> None:
        if not frame.channel or frame.kind not in {frames.METHOD, frames.HEADER, frames.BODY}:
            self.for_broker += frame.octets
            return
        if frame.method == frames.CHANNEL_OPEN:
            self._channels[frame.channel] = _Channel()
        channel = self._channels.setdefault(frame.channel, _Channel())
        if frame.kind == frames.METHOD:
            self._note_method(channel, frame)
        is_publish = channel.to_broker.is_in_content or frame.method == frames.PUBLISH
        is_complete = channel.to_broker.passes(frame)
        if channel.fate:
            channel.held.append(frame)
        else:
            self.for_broker += frame.octets
        if is_complete:
            if is_publish:
                self._published(frame.channel, channel)
            self._insert_waiting(channel.to_broker, self.for_broker)

    def _note_method(self, channel: _Channel, frame: Frame) -> None:
        if frame.method == frames.CONFIRM_SELECT:
            channel.is_confirming = True
        elif frame.method == frames.CONSUME:
            queue, tag, is_answered = frames.consume(frame.payload)
            if is_answered:
                channel.asked.append(queue)
            else:
                channel.consumers[tag] = queue
        elif frame.method == frames.PUBLISH:
            channel.fate = self._fate_of(channel, frame)

    def _fate_of(self, channel: _Channel, publish: Frame) -> str:
        script = self._script
        if script.nacks and channel.is_confirming:
            script.nacks -= 1
            return "nacked"
        if script.returns and frames.is_mandatory(publish.payload):
            script.returns -= 1
            return "returned"
        return ""

    def _published(self, number: int, channel: _Channel) -> None:
        """Answer a publish that the broker does not get, or count one that it gets."""
        if channel.is_confirming:
            channel.published += 1
        fate, channel.fate = channel.fate, ""
        if fate:
            held, channel.held = channel.held, []
            answer = b""
            if fate == "returned":
                answer = frames.frame(frames.METHOD, number, frames.returning(held[0].payload))
                answer += b"".join(frame.octets for frame in held[1:])
            if channel.is_confirming:
                channel.swallowed.append(channel.published)
                method = frames.NACK if fate == "nacked" else frames.ACK
                answer += frames.confirming(method, number, channel.published)
            self._insert(channel.to_client, self.for_client, answer)
            return
        script = self._script
        if script.left:
            script.left -= 1
            if not script.left:
                script.is_cutting = True
                channel.last = channel.published
                if not channel.is_confirming:
                    self._end()

    # ------------------------------------------------------------------------------------------- to the client

    def _pass_to_client(self, frame: Frame) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None or frame.kind not in {frames.METHOD, frames.HEADER, frames.BODY}:
            self.for_client += frame.octets
            return
        is_complete = channel.to_client.passes(frame)
        if frame.method in {frames.ACK, frames.NACK}:
            self._confirm(channel, frame)
        elif frame.method == frames.CANCEL_OK:
            self._cancelled(channel, frame)
        else:
            if frame.method == frames.CONSUME_OK:
                (tag,), _ = frames.short_strings(frame.payload, 4, 1)
                channel.consumers[tag] = channel.asked.pop(0)
            self.for_client += frame.octets
        if is_complete:
            self._insert_waiting(channel.to_client, self.for_client)

    def _confirm(self, channel: _Channel, frame: Frame) -> None:
        tag, multiple = frames.confirm(frame.payload)
        number = channel.client_number(tag)
        is_last = channel.last is not None and (number == channel.last or (multiple and number > channel.last))
        if not is_last or self._script.confirms_last:
            self.for_client += frames.confirming(frame.method, frame.channel, number, multiple=multiple)
        if is_last:
            self._end()

    def _end(self) -> None:
        self._is_cut = True
        self._cut()

    def _cancelled(self, channel: _Channel, frame: Frame) -> None:
        (tag,), _ = frames.short_strings(frame.payload, 4, 1)
        if tag in channel.cancelling:
            channel.cancelling.discard(tag)
            self.for_client += frames.cancelling(frame.channel, tag, wants_answer=False)
        else:
            channel.consumers.pop(tag, None)
            self.for_client += frame.octets

    # ------------------------------------------------------------------------------------------- between frames

    @staticmethod
    def _insert(direction: _Direction, out: bytearray, octets: bytes) -> None:
        """Say something on a channel, behind the content that is under way there."""
        if direction.is_in_content:
            direction.waiting.append(octets)
        else:
            out += octets

    @staticmethod
    def _insert_waiting(direction: _Direction, out: bytearray) -> None:
        for octets in direction.waiting:
            out += octets
        direction.waiting.clear()
