"""One client's connection, without its socket: octets in, octets out.

Owns frames, the handshake, the channels' numbers, the two ways in which a connection is closed, and what is waiting to
be sent. Everything happens in the caller's turn on the model. Its input buffer never holds more than a frame, or the
three of a publish with one body frame, and what is waiting to be sent stays in the form of the model's events until
there is room for its octets.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from queuey_fake.model import errors
from queuey_fake.model.broker import Broker
from queuey_fake.model.channel import Channel
from queuey_fake.model.connection import Connection
from queuey_fake.model.erlang import Atom
from queuey_fake.model.errors import AmqpException, ConnectionException
from queuey_fake.model.properties import Properties
from queuey_fake.model.table_codec import MalformedTable
from queuey_fake.wire import codec, handshake
from queuey_fake.wire import methods as m
from queuey_fake.wire.channel import LastPublish, WireChannel
from queuey_fake.wire.codec import MalformedMethod, MalformedShortString, UnknownMethod
from queuey_fake.wire.methods import Method
from queuey_fake.wire.speaking import Saying, Speaker

DEFAULT_USERS: Mapping[str, str] = {"guest": "guest"}
_FRAME_HEADER_SIZE = codec.FRAME_HEADER.size
# The types of frames that a channel takes, and how long the payload of each is at least for RabbitMQ to make something
# of it (rabbit_command_assembler:analyze_frame).
_OF_CHANNELS = {codec.METHOD: codec.METHOD_IDS.size, codec.HEADER: codec.CONTENT_HEADER.size, codec.BODY: 0}
_OF_CONTENT = (codec.HEADER, codec.BODY)  # behind one of these an alarm blocks (rabbit_reader:post_process_frame)
_NEVER = 1 << 32  # longer than any payload


class Phase(Enum):
    """How far a connection is; the values are RabbitMQ's names (rabbit_reader)."""

    HEADER = "handshake"
    STARTING = "starting"
    TUNING = "tuning"
    OPENING = "opening"
    RUNNING = "running"
    CLOSING = "closing"  # the broker closed it and waits for connection.close-ok
    CLOSED = "closed"  # the client closed it, or the broker is done with it


class ServerConnection:
    """The broker's end of one client's connection."""

    def __init__(
        self,
        broker: Broker,
        *,
        users: Mapping[str, str] = DEFAULT_USERS,
        on_open: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Serve the model to a client; `on_open` hears of its connection in the model."""
        self.version = broker.version
        self.known_publishes: dict[bytes, dict[str, Any]] = {}
        self.known_properties: dict[bytes, Properties] = {}
        self.last_publish: LastPublish | None = None
        self._came_before_alarm = 0  # of what is not read, how many octets of a publish came before any alarm
        self.phase = Phase.HEADER
        self.model: Connection | None = None
        self.heartbeat_s = 0
        self.is_finished = False  # nothing more is to be read; the socket ends when everything is sent
        self.ends_late = False  # some seconds pass before it does, or before the client is waited for no longer
        self.is_amid_frame = False  # the client is in the middle of a frame, and reads why it ends when that is sent
        self.unfinished_octets = 0  # of bodies that have not come in full, on all channels
        self._broker = broker
        self._users = users
        self._on_open = on_open
        self._input = b""
        self._frame_limit = self.version.min_frame_max
        self._channel_max = 0
        self._capabilities: frozenset[str] = frozenset()
        self._user = ""
        self._name: str | None = None
        self._channels: dict[int, WireChannel] = {}
        self.waiting: deque[Saying] = deque()
        """What is to be sent, oldest first; once the connection is open that is the model's outbox."""
        self._speaker = Speaker(self.version)

    # ------------------------------------------------------------------------------------------------ output

    @property
    def is_blocked(self) -> bool:
        """Whether an alarm keeps what the client sends from being read."""
        return self.model is not None and self.model.is_blocked

    @property
    def is_closed(self) -> bool:
        """Whether an open connection was closed by one side or the other; what is left of it is its socket."""
        return self.model is not None and self.phase in (Phase.CLOSING, Phase.CLOSED)

    @property
    def has_unread(self) -> bool:
        """Whether octets came that have not been read, or not in full."""
        return bool(self._input)

    def take_output(self, room: int) -> bytes:
        """Return octets to send, about as many as there is room for."""
        return self._speaker.take(self.waiting, room)

    def say(self, frame: bytes) -> None:
        """Send a frame behind everything that is waiting."""
        self.waiting.append(frame)

    def lose(self) -> None:
        """Hear that the socket is gone."""
        self.is_finished = True
        self.waiting.clear()
        self._end()

    def _end(self) -> None:
        self.phase = Phase.CLOSED
        self._forget_channels()
        if self.model is not None:
            self.model.lose()

    def crash(self) -> None:
        """End the connection without a word, as RabbitMQ's reader does when it crashes."""
        self.is_finished = True
        self.ends_late = False
        self._end()

    def distrust(self) -> None:
        """End the connection some seconds later, so that nobody tries passwords fast (SILENT_CLOSE_DELAY)."""
        self.crash()
        self.ends_late = True

    def fail(self) -> None:
        """End the connection as RabbitMQ does when one of its processes crashed."""
        if self.phase in (Phase.OPENING, Phase.RUNNING):
            self.refuse(errors.internal_error(), 0, 0)
        self.crash()

    # ------------------------------------------------------------------------------------------------ input

    def receive(self, octets: bytes) -> None:
        """Take octets from the client."""
        if self.is_finished:
            return
        data = self._input + octets if self._input else octets
        if self.phase is Phase.HEADER:
            if len(data) < handshake.PROTOCOL_HEADER_SIZE:
                self._input = data
                return
            self._start(data[: handshake.PROTOCOL_HEADER_SIZE])
            data = data[handshake.PROTOCOL_HEADER_SIZE :]
        at = self._take_frames(data)
        self._input = b"" if self.is_finished else data[at:]

    def _take_frames(self, data: bytes) -> int:
        """Take the frames that are there in full, unless an alarm keeps them unread; return where they end."""
        at, end = 0, len(data)
        before_alarm, self._came_before_alarm = self._came_before_alarm, 0
        channels = self._channels
        while end - at >= _FRAME_HEADER_SIZE and not self.is_finished:
            if (model := self.model) is not None and model.is_blocked:
                break
            if (last := self.last_publish) is not None and (next_at := self._take_repeated(last, data, at)) is not None:
                if next_at == at:
                    break
                at = next_at
                continue
            type_, channel, size = codec.FRAME_HEADER.unpack_from(data, at)
            if size > self._frame_limit:
                reason = (Atom("frame_too_large"), size, self._frame_limit - codec.FRAME_OVERHEAD)
                self.is_amid_frame = self.phase in (Phase.OPENING, Phase.RUNNING)
                self._lose_track(errors.frame_error(type_, b"", reason))
                break
            frame_end = at + _FRAME_HEADER_SIZE + size
            if frame_end >= end:
                break
            payload = data[at + _FRAME_HEADER_SIZE : frame_end]
            if data[frame_end] != codec.FRAME_END:
                reason_end = (Atom("invalid_frame_end_marker"), data[frame_end])
                self._lose_track(errors.frame_error(type_, payload, reason_end))
                break
            at = frame_end + 1
            wire_channel = channels.get(channel)
            if wire_channel is None or size < _OF_CHANNELS.get(type_, _NEVER) or model is None or not model.is_open:
                self._take_frame(type_, channel, payload)
            else:
                wire_channel.process(type_, payload)
            if type_ in _OF_CONTENT and self._broker.alarm is not None and at > before_alarm and model is not None:
                model.blocks_publish()
        return at

    def _take_repeated(self, last: LastPublish, data: bytes, at: int) -> int | None:
        """Take a publish like the last one in one step, all its frames at once.

        Return where it ends; `at` where it has begun like the last one and its rest is still to come; None where it is
        another, or an alarm is to be looked at.
        """
        opening = last.opening
        end = at + len(opening) + last.body_size
        is_whole = end < len(data)
        if is_whole:
            is_like_last = data.startswith(opening, at) and data[end] == codec.FRAME_END
        else:
            begun = data[at : at + len(opening)]
            is_like_last = len(begun) >= last.method_size and opening.startswith(begun)
        if not is_like_last or self._broker.alarm is not None:
            return None
        if not is_whole:
            self._came_before_alarm = len(data) - at
            return at
        last.publish(data[at + len(opening) : end])
        return end + 1

    def _lose_track(self, refusal: ConnectionException) -> None:
        """Refuse octets behind which no frame can be found any more."""
        self._input = b""
        if self.ends_late:
            self.crash()
            return
        if self.phase not in (Phase.CLOSING, Phase.CLOSED):
            self.refuse(refusal, 0, 0)
        self.distrust()

    def _take_frame(self, type_: int, channel: int, payload: bytes) -> None:
        if self.phase is Phase.RUNNING:
            assert self.model is not None, "a connection runs on the model"
            if not self.model.is_open:
                self.phase = Phase.CLOSING
            elif channel and type_ in _OF_CHANNELS:
                self._take_channel_frame(type_, channel, payload)
                return
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            if channel == 0 and type_ == codec.METHOD:
                self._take_closing_method(payload)
        elif not _is_readable(type_, payload) and (channel == 0 or self.phase is Phase.RUNNING):
            self.refuse(errors.frame_error(type_, payload, Atom("unknown_frame")), 0, 0)
        elif channel == 0:
            if type_ == codec.METHOD:
                self._take_connection_method(payload)
            elif type_ != codec.HEARTBEAT:
                self.refuse(errors.unexpected_frame_type(type_, payload), 0, 0)
        else:
            self.refuse(errors.unexpected_frame_type(type_, payload), 0, 0)

    def refuse(self, refusal: ConnectionException, class_id: int, method_id: int) -> None:
        """Close the connection for what its client did; in silence where it is not known well enough yet."""
        if self.phase in (Phase.HEADER, Phase.STARTING, Phase.TUNING):
            self.distrust()
            return
        sent = errors.as_sent(refusal, octets=self.version.texts_are_octets)
        assert isinstance(sent, ConnectionException), "what closes a connection is not sent as something less"
        if sent is not refusal:
            class_id = method_id = 0
        self._forget_channels()
        self.phase = Phase.CLOSING
        if self.model is None:
            self._say_close(sent, class_id, method_id)
        elif self.model.is_open:  # else the client has been told why already
            self.model.refuse(sent, class_id, method_id)
            self._broker.deliver_mail()

    def _say_close(self, refusal: ConnectionException, class_id: int, method_id: int) -> None:
        fields = {"reply_code": refusal.code, "reply_text": refusal.text, "class_id": class_id, "method_id": method_id}
        self.say(codec.method_frame(0, m.CONNECTION_CLOSE, **fields))

    # ------------------------------------------------------------------------------------------------ channels

    def _take_channel_frame(self, type_: int, number: int, payload: bytes) -> None:
        if not _is_readable(type_, payload):
            self.refuse(errors.frame_error(type_, payload, Atom("unknown_frame")), 0, 0)
            return
        wire_channel = self._channels.get(number) or self._new_channel(number)
        if wire_channel is not None:
            wire_channel.process(type_, payload)

    def _new_channel(self, number: int) -> WireChannel | None:
        if len(self._channels) >= self._channel_max:
            self.refuse(errors.too_many_channels(len(self._channels), self._channel_max), 0, 0)
            return None
        wire_channel = WireChannel(self, number)
        self._channels[number] = wire_channel
        return wire_channel

    def open_channel(self, number: int) -> Channel:
        """Open a channel of the model."""
        assert self.model is not None, "channels are opened on an open connection"
        return self.model.open_channel(number)

    def refuse_unopened(self, number: int, refusal: AmqpException, method: Method) -> Channel:
        """Close a channel of the model that was never opened."""
        assert self.model is not None, "methods of channels are taken on an open connection"
        return self.model.refuse_unopened(number, refusal, method.class_id, method.method_id)

    def forget_channel(self, number: int) -> None:
        """Let go of a channel whose number may be opened again."""
        self._channels.pop(number, None)
        self.last_publish = None

    def _forget_channels(self) -> None:
        self._channels.clear()
        self.last_publish = None

    # ------------------------------------------------------------------------------------------------ handshake

    def _start(self, header: bytes) -> None:
        if not handshake.speaks_amqp_0_9_1(header):
            self.waiting.append(handshake.refused_header(header, self.version))
            self.crash()
            return
        self.phase = Phase.STARTING
        self.say(
            codec.method_frame(
                0,
                m.CONNECTION_START,
                version_major=0,
                version_minor=9,
                server_properties=handshake.server_properties(self.version),
                mechanisms=self.version.mechanisms.encode(),
                locales=handshake.LOCALES,
            )
        )

    def _take_connection_method(self, payload: bytes) -> None:
        try:
            method = codec.method_of(payload)
        except UnknownMethod:
            self.crash()
            return
        try:
            fields = codec.decode_fields(method, payload)
        except MalformedShortString:
            self.refuse(errors.malformed_short_string(), method.class_id, method.method_id)
        except (MalformedMethod, MalformedTable):
            # Not said as on channels: it is a crash of the reader (rabbit_reader:handle_method0).
            if self.phase is Phase.RUNNING:
                self.refuse(errors.internal_error(), 0, 0)
            else:
                self.distrust()
        else:
            self._call(method, fields)

    def _call(self, method: Method, fields: dict[str, object]) -> None:
        call = _CALLS.get((self.phase, method))
        if call is None:
            refusal = errors.unexpected_method(self.phase.value)
            self.refuse(refusal, method.class_id, method.method_id)
        else:
            call(self, fields)

    def _start_ok(self, fields: dict[str, object]) -> None:
        mechanism, response, properties = fields["mechanism"], fields["response"], fields["client_properties"]
        assert isinstance(mechanism, str), "the codec reads a short string"
        assert isinstance(response, bytes), "the codec reads a long string"
        assert isinstance(properties, dict), "the codec reads a table"
        if mechanism not in self.version.mechanisms.split():
            self.distrust()
            return
        self._capabilities = handshake.capabilities_of(properties)
        self._name = handshake.connection_name_of(properties)
        try:
            user = handshake.login(mechanism, response, self._users)
        except handshake.InvalidResponse:
            self.distrust()
            return
        if user is None:
            self._refuse_login(mechanism)
            return
        self._user = user
        self.phase = Phase.TUNING
        self.say(
            codec.method_frame(
                0,
                m.CONNECTION_TUNE,
                channel_max=handshake.CHANNEL_MAX,
                frame_max=handshake.FRAME_MAX,
                heartbeat=handshake.HEARTBEAT_S,
            )
        )

    def _refuse_login(self, mechanism: str) -> None:
        if "authentication_failure_close" not in self._capabilities:
            self.distrust()
            return
        self._say_close(errors.login_refused(mechanism), 0, 0)
        self.phase = Phase.CLOSING
        self.ends_late = True

    def _tune_ok(self, fields: dict[str, object]) -> None:
        channel_max, frame_max, heartbeat = fields["channel_max"], fields["frame_max"], fields["heartbeat"]
        assert isinstance(channel_max, int), "the codec reads an integer"
        assert isinstance(frame_max, int), "the codec reads an integer"
        assert isinstance(heartbeat, int), "the codec reads an integer"
        if not handshake.accepts_tuning(channel_max, frame_max, self.version):
            self.distrust()
            return
        self._channel_max = channel_max
        # RabbitMQ lets clients go beyond frame_max by the eight octets around the payload, which many forget.
        self._frame_limit = frame_max
        self._speaker.frame_max = frame_max
        self.heartbeat_s = heartbeat
        self.phase = Phase.OPENING

    def _open(self, fields: dict[str, object]) -> None:
        vhost = fields["virtual_host"]
        assert isinstance(vhost, str), "the codec reads a short string"
        try:
            model = self._broker.connect(user=self._user, vhost=vhost, name=self._name, capabilities=self._capabilities)
        except ConnectionException as refusal:
            self.refuse(refusal, 10, 40)
            return
        self.model = model
        model.outbox.extend(self.waiting)
        self.waiting = model.outbox
        self.phase = Phase.RUNNING
        self._on_open(model)
        self.say(codec.method_frame(0, m.CONNECTION_OPEN_OK, known_hosts=""))

    # ------------------------------------------------------------------------------------------------ running, closing

    def _update_secret(self, _fields: dict[str, object]) -> None:
        self.say(codec.method_frame(0, m.CONNECTION_UPDATE_SECRET_OK))

    def _close(self, _fields: dict[str, object]) -> None:
        assert self.model is not None, "only a running connection is closed so"
        self.model.close()
        self._forget_channels()
        self.phase = Phase.CLOSED

    def _take_closing_method(self, payload: bytes) -> None:
        """Take a method on a connection that is closed from one side or the other; all others are dropped."""
        if len(payload) < codec.METHOD_IDS.size:
            return
        try:
            method = codec.method_of(payload)
            codec.decode_fields(method, payload)
        except UnknownMethod:
            self.crash()
        except (MalformedMethod, MalformedTable):
            pass
        else:
            if method is m.CONNECTION_CLOSE:
                self.say(codec.method_frame(0, m.CONNECTION_CLOSE_OK))
            elif method is m.CONNECTION_CLOSE_OK:
                self.is_finished = True
                self.ends_late = False


def _is_readable(type_: int, payload: bytes) -> bool:
    """Return whether RabbitMQ makes something of the frame (rabbit_command_assembler:analyze_frame)."""
    return len(payload) >= _OF_CHANNELS.get(type_, _NEVER) or (type_ == codec.HEARTBEAT and not payload)


_CALLS: dict[tuple[Phase, Method], Callable[[ServerConnection, dict[str, object]], None]] = {
    (Phase.STARTING, m.CONNECTION_START_OK): ServerConnection._start_ok,  # noqa: SLF001  a table of its own methods
    (Phase.TUNING, m.CONNECTION_TUNE_OK): ServerConnection._tune_ok,  # noqa: SLF001  as above
    (Phase.OPENING, m.CONNECTION_OPEN): ServerConnection._open,  # noqa: SLF001  as above
    (Phase.RUNNING, m.CONNECTION_UPDATE_SECRET): ServerConnection._update_secret,  # noqa: SLF001  as above
    (Phase.RUNNING, m.CONNECTION_CLOSE): ServerConnection._close,  # noqa: SLF001  as above
}
