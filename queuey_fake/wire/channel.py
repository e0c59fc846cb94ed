"""One channel number of a client's connection: frames become calls of the model.

Owns the assembly of content and which method calls what. Decides nothing that the model decides; what cannot even be
put together is refused here, with RabbitMQ's texts (rabbit_command_assembler, rabbit_channel).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from queuey_fake.model import errors
from queuey_fake.model.channel import Channel
from queuey_fake.model.door import ChannelState
from queuey_fake.model.errors import AmqpException, ConnectionException
from queuey_fake.model.properties import Properties
from queuey_fake.model.table_codec import MalformedTable
from queuey_fake.model.versions import Version
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m
from queuey_fake.wire.codec import ContentHeader, MalformedMethod, MalformedShortString, UnknownMethod
from queuey_fake.wire.methods import Method

_PUBLISH_IDS = codec.METHOD_IDS.pack(60, 40)
UNFINISHED_MAX = 268_435_456
_UNREADABLE = Properties.from_payload(b"\xff\xff")  # all properties are announced, and none is there
_KNOWN_MAX = 1024
_KNOWN_OCTETS_MAX = 1024
_STANDS_FOR_LAST_DECLARED = (  # methods in which an empty queue name stands for the queue declared last
    *(m.BASIC_GET, m.BASIC_CONSUME, m.QUEUE_DELETE, m.QUEUE_PURGE, m.QUEUE_BIND, m.QUEUE_UNBIND),
)

T = TypeVar("T")
_Call = Callable[[Channel, dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPublish:
    """What was published last, but for its body; most publishers go on with the same."""

    opening: bytes
    """All octets before the body."""
    method_size: int
    """How many of them are the method's frame."""
    body_size: int
    publish: Callable[[bytes], None]
    """Publish the same once more, with another body."""


class ConnectionDoor(Protocol):
    """The connection, as its channels see it."""

    version: Version
    known_publishes: dict[bytes, dict[str, Any]]
    known_properties: dict[bytes, Properties]
    last_publish: LastPublish | None
    """None also while a content is being put together."""
    unfinished_octets: int

    def open_channel(self, number: int) -> Channel:
        """Open a channel of the model."""

    def refuse_unopened(self, number: int, refusal: AmqpException, method: Method) -> Channel:
        """Close a channel of the model that was never opened."""

    def refuse(self, refusal: ConnectionException, class_id: int, method_id: int) -> None:
        """Close the connection for what its client did."""

    def crash(self) -> None:
        """End the connection without a word, as RabbitMQ's reader does when it crashes."""

    def say(self, frame: bytes) -> None:
        """Send a frame behind everything that is waiting."""

    def forget_channel(self, number: int) -> None:
        """Let go of a channel whose number may be opened again."""


class WireChannel:
    """A channel number that a frame came for; whether it is open is another matter."""

    def __init__(self, connection: ConnectionDoor, number: int) -> None:
        self._connection = connection
        self._number = number
        self._channel: Channel | None = None
        # What a content is being put together for: the method, its fields, and then its header.
        self._method: Method | None = None
        self._method_payload = b""
        self._fields: dict[str, Any] = {}
        self._header: ContentHeader | None = None
        self._body = bytearray()  # of a message whose body comes in several frames
        self._remaining = 0

    def process(self, type_: int, payload: bytes) -> None:
        """Take a frame for this channel number."""
        try:
            if self._header is not None:
                self._take_body(type_, payload)
            elif self._method is not None:
                self._take_header(type_, payload)
            elif type_ != codec.METHOD:
                self._connection.refuse(
                    errors.unexpected_frame("expected method frame, got non method frame instead"), 0, 0
                )
            elif payload.startswith(_PUBLISH_IDS):
                self._take_publish(payload)
            else:
                self._take_method(payload)
        except MalformedShortString:
            self._connection.refuse(errors.malformed_short_string(), 0, 0)
        except MalformedMethod as malformed:
            method = malformed.method
            self._connection.refuse(errors.cannot_decode(malformed.octets), method.class_id, method.method_id)
        except (UnknownMethod, MalformedTable):
            self._connection.crash()

    # methods

    def _take_publish(self, payload: bytes) -> None:
        """Read basic.publish: once for all messages to the same place."""
        known = self._connection.known_publishes
        fields = known.get(payload)
        if fields is None:
            fields = codec.decode_fields(m.BASIC_PUBLISH, payload)
            _remember(known, payload, fields)
        self._begin_content(m.BASIC_PUBLISH, fields, payload)

    def _take_method(self, payload: bytes) -> None:
        method = codec.method_of(payload)
        fields = codec.decode_fields(method, payload)
        if method.has_content:
            self._begin_content(method, fields, payload)
        else:
            self._call(method, fields)

    def _call(self, method: Method, fields: dict[str, Any]) -> None:
        if self._channel is None:
            self._open(method, fields)
            return
        channel = self._channel
        if method is m.CHANNEL_OPEN:
            self._connection.open_channel(self._number)
        elif method is m.CHANNEL_CLOSE:
            channel.close()
        elif method is m.CHANNEL_CLOSE_OK and channel.state is ChannelState.CLOSING:
            channel.close_ok()
        elif channel.state is ChannelState.OPEN:
            self._call_open(channel, method, fields)
        if channel.state is ChannelState.CLOSED:
            self._connection.forget_channel(self._number)

    def _open(self, method: Method, fields: dict[str, Any]) -> None:
        if method is m.CHANNEL_OPEN:
            self._channel = self._connection.open_channel(self._number)
        elif fields.get("queue") == "" and method in _STANDS_FOR_LAST_DECLARED:
            # The name is looked for before the channel is found not to be open (rabbit_channel:expand_shortcuts), and
            # that closes the channel which was never opened.
            refusal = errors.no_previously_declared_queue()
            self._channel = self._connection.refuse_unopened(self._number, refusal, method)
        else:
            self._connection.refuse(errors.channel_not_open(), method.class_id, method.method_id)

    def _call_open(self, channel: Channel, method: Method, fields: dict[str, Any]) -> None:
        if method is m.ACCESS_REQUEST:
            self._connection.say(codec.method_frame(self._number, m.ACCESS_REQUEST_OK, ticket=1))
            return
        call = CALLS.get(method)
        if call is None:
            self._connection.refuse(errors.unimplemented_method(), method.class_id, method.method_id)
        else:
            call(channel, fields)

    # content

    def _begin_content(self, method: Method, fields: dict[str, Any], payload: bytes) -> None:
        self._method, self._fields, self._method_payload = method, fields, payload
        self._connection.last_publish = None

    def _take_header(self, type_: int, payload: bytes) -> None:
        assert self._method is not None, "a content header is taken only behind a method that has content"
        header = ContentHeader(payload) if type_ == codec.HEADER else None
        if header is None or header.class_id != codec.CLASS_BASIC or header.weight:
            _check_is_known(type_, payload)
            self._refuse_content(errors.unexpected_frame(_instead_of_header(header)))
            return
        limit = self._connection.version.max_announced_body
        if limit is not None and header.body_size > limit:
            self._refuse_content(errors.body_size_over_limit(header.body_size, limit))
            return
        self._header = header
        self._remaining = header.body_size
        if header.body_size == 0:
            self._finish_content(b"")

    def _take_body(self, type_: int, payload: bytes) -> None:
        if type_ != codec.BODY:
            _check_is_known(type_, payload)
            text = "expected content body, got non content body frame instead"
            self._refuse_content(errors.unexpected_frame(text))
            return
        self._remaining -= len(payload)
        if self._remaining < 0:
            # Versions before 4.3 swallow what comes until a frame of another type does.
            self._connection.unfinished_octets -= len(self._body)
            self._body.clear()
            if self._connection.version.refuses_overlong_body:
                self._refuse_content(errors.overlong_body())
            return
        if self._remaining == 0 and not self._body:
            self._finish_content(payload, is_in_one_frame=True)
            return
        if not self._is_too_large():
            self._keep(payload)
        if self._remaining == 0:
            body, self._body = self._body, bytearray()
            self._connection.unfinished_octets -= len(body)
            self._finish_content(bytes(body))

    def _keep(self, payload: bytes) -> None:
        # RabbitMQ has no bound here but its memory: thousands of channels can each hold most of a body.
        self._connection.unfinished_octets += len(payload)
        if self._connection.unfinished_octets > UNFINISHED_MAX:
            self._refuse_content(errors.too_much_unfinished(UNFINISHED_MAX))
        else:
            self._body += payload

    def _is_too_large(self) -> bool:
        # A body that will be refused for its size is counted and not kept, so that it costs no memory.
        return self._header is not None and self._header.body_size > self._connection.version.max_message_size

    def _refuse_content(self, refusal: ConnectionException) -> None:
        assert self._method is not None, "content is refused only behind a method that has content"
        self._connection.refuse(refusal, self._method.class_id, self._method.method_id)

    def _finish_content(self, body: bytes, *, is_in_one_frame: bool = False) -> None:
        method, fields, header = self._method, self._fields, self._header
        assert method is not None, "content is finished only behind a method that has content"
        assert header is not None, "and behind its header"
        self._method = self._header = None
        channel = self._channel
        if method is not m.BASIC_PUBLISH or channel is None:
            self._call(method, fields)
            return
        limit = self._connection.version.max_message_size
        if header.body_size > limit:
            self._refuse_publish(channel, errors.message_too_large(header.body_size, limit))
            return
        is_repeated = header.properties_payload in self._connection.known_properties
        try:
            properties = self._properties_of(header.properties_payload)
        except MalformedTable:
            self._publish_unreadable(channel, fields)
            return
        publish = _publish(channel, fields, properties)
        if is_repeated and is_in_one_frame:
            self._remember_publish(header.properties_payload, header.body_size, publish)
        publish(body)

    def _remember_publish(self, properties_payload: bytes, size: int, publish: Callable[[bytes], None]) -> None:
        header_payload = codec.CONTENT_HEADER.pack(codec.CLASS_BASIC, 0, size) + properties_payload
        method = codec.frame(codec.METHOD, self._number, self._method_payload)
        header = codec.frame(codec.HEADER, self._number, header_payload)
        self._connection.last_publish = LastPublish(
            opening=method + header + codec.FRAME_HEADER.pack(codec.BODY, self._number, size),
            method_size=len(method),
            body_size=size,
            publish=publish,
        )

    def _publish_unreadable(self, channel: Channel, fields: dict[str, Any]) -> None:
        """Refuse properties that cannot be read, but after all else: RabbitMQ comes to read them only then."""
        try:
            _publish(channel, fields, _UNREADABLE)(b"")
        except MalformedTable:
            self._connection.refuse(errors.internal_error(), 0, 0)

    def _refuse_publish(self, channel: Channel, refusal: AmqpException) -> None:
        if channel.state is ChannelState.OPEN:
            channel.refuse(refusal, 60, 40)
            channel.connection.broker.deliver_mail()

    def _properties_of(self, payload: bytes) -> Properties:
        """Return the properties, checked once for all messages that have the same. Raises MalformedTable."""
        known = self._connection.known_properties
        properties = known.get(payload)
        if properties is None:
            properties = Properties.from_payload(payload)
            properties.values()
            _remember(known, payload, properties)
        return properties


def _publish(channel: Channel, fields: dict[str, Any], properties: Properties) -> Callable[[bytes], None]:
    """Return what publishes a body so."""
    exchange, routing_key = fields["exchange"], fields["routing_key"]
    mandatory, immediate = fields["mandatory"], fields["immediate"]

    def publish(body: bytes) -> None:
        channel.basic_publish(exchange, routing_key, properties, body, mandatory=mandatory, immediate=immediate)

    return publish


def _remember(known: dict[bytes, T], octets: bytes, meaning: T) -> None:
    """Remember what octets mean that come again and again; what is remembered is bounded."""
    if len(octets) > _KNOWN_OCTETS_MAX:
        return
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[octets] = meaning


def _check_is_known(type_: int, payload: bytes) -> None:
    """Raise UnknownMethod where AMQP has no such method: RabbitMQ looks for its name before anything else."""
    if type_ == codec.METHOD:
        codec.method_of(payload)


def _instead_of_header(header: ContentHeader | None) -> str:
    text = f"expected content header for class {codec.CLASS_BASIC}, got "
    if header is None or header.class_id == codec.CLASS_BASIC:
        return text + "non content header frame instead"
    return text + f"one for class {header.class_id} instead"


def _without_ticket(name: str) -> _Call:
    """Call the method of that name with all fields but the ticket, which RabbitMQ ignores."""

    def call(channel: Channel, fields: dict[str, Any]) -> None:
        fields.pop("ticket", None)
        getattr(channel, name)(**fields)

    return call


def _exchange_declare(channel: Channel, fields: dict[str, Any]) -> None:
    del fields["ticket"]
    channel.exchange_declare(type_=fields.pop("type"), **fields)


CALLS: dict[Method, _Call] = {
    m.CHANNEL_FLOW: _without_ticket("flow"),
    m.EXCHANGE_DECLARE: _exchange_declare,
    m.EXCHANGE_DELETE: _without_ticket("exchange_delete"),
    m.EXCHANGE_BIND: _without_ticket("exchange_bind"),
    m.EXCHANGE_UNBIND: _without_ticket("exchange_unbind"),
    m.QUEUE_DECLARE: _without_ticket("queue_declare"),
    m.QUEUE_BIND: _without_ticket("queue_bind"),
    m.QUEUE_PURGE: _without_ticket("queue_purge"),
    m.QUEUE_DELETE: _without_ticket("queue_delete"),
    m.QUEUE_UNBIND: _without_ticket("queue_unbind"),
    m.BASIC_QOS: _without_ticket("basic_qos"),
    m.BASIC_CONSUME: _without_ticket("basic_consume"),
    m.BASIC_CANCEL: _without_ticket("basic_cancel"),
    m.BASIC_GET: _without_ticket("basic_get"),
    m.BASIC_ACK: _without_ticket("basic_ack"),
    m.BASIC_REJECT: _without_ticket("basic_reject"),
    m.BASIC_NACK: _without_ticket("basic_nack"),
    m.BASIC_RECOVER: _without_ticket("basic_recover"),
    m.BASIC_RECOVER_ASYNC: _without_ticket("basic_recover_async"),
    m.CONFIRM_SELECT: _without_ticket("confirm_select"),
    m.TX_SELECT: _without_ticket("tx_select"),
    m.TX_COMMIT: _without_ticket("tx_commit"),
    m.TX_ROLLBACK: _without_ticket("tx_rollback"),
}
