"""From the model's events to octets.

Owns which method says which event, and nothing else.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from queuey_fake.model import events
from queuey_fake.model.properties import Properties
from queuey_fake.model.versions import Version
from queuey_fake.wire import codec
from queuey_fake.wire import methods as m

Saying = events.Event | bytes  # an event of the model, or a frame that is ready

_ACK_PAYLOAD_SIZE = 13
_ACK = struct.Struct(">BHIHHQBB")
_DELIVERY_TAG_AND_BIT = struct.Struct(">QB")
_MESSAGE_COUNT = struct.Struct(">I")


def _refusal(event: events.ChannelClose | events.ConnectionClose) -> dict[str, Any]:
    return {
        "reply_code": event.code,
        "reply_text": event.text,
        "class_id": event.class_id,
        "method_id": event.method_id,
    }


_METHODS: dict[type[Any], tuple[m.Method, Callable[[Any], dict[str, Any]]]] = {
    events.ChannelOpenOk: (m.CHANNEL_OPEN_OK, lambda _: {"channel_id": b""}),
    events.ChannelClose: (m.CHANNEL_CLOSE, _refusal),
    events.ChannelCloseOk: (m.CHANNEL_CLOSE_OK, lambda _: {}),
    events.FlowOk: (m.CHANNEL_FLOW_OK, lambda event: {"active": event.active}),
    events.ConnectionClose: (m.CONNECTION_CLOSE, _refusal),
    events.ConnectionCloseOk: (m.CONNECTION_CLOSE_OK, lambda _: {}),
    events.ConnectionBlocked: (m.CONNECTION_BLOCKED, lambda event: {"reason": event.reason}),
    events.ConnectionUnblocked: (m.CONNECTION_UNBLOCKED, lambda _: {}),
    events.ExchangeDeclareOk: (m.EXCHANGE_DECLARE_OK, lambda _: {}),
    events.ExchangeDeleteOk: (m.EXCHANGE_DELETE_OK, lambda _: {}),
    events.ExchangeBindOk: (m.EXCHANGE_BIND_OK, lambda _: {}),
    events.ExchangeUnbindOk: (m.EXCHANGE_UNBIND_OK, lambda _: {}),
    events.QueueDeclareOk: (
        m.QUEUE_DECLARE_OK,
        lambda event: {
            "queue": event.queue,
            "message_count": event.message_count,
            "consumer_count": event.consumer_count,
        },
    ),
    events.QueueBindOk: (m.QUEUE_BIND_OK, lambda _: {}),
    events.QueueUnbindOk: (m.QUEUE_UNBIND_OK, lambda _: {}),
    events.QueuePurgeOk: (m.QUEUE_PURGE_OK, lambda event: {"message_count": event.message_count}),
    events.QueueDeleteOk: (m.QUEUE_DELETE_OK, lambda event: {"message_count": event.message_count}),
    events.QosOk: (m.BASIC_QOS_OK, lambda _: {}),
    events.ConsumeOk: (m.BASIC_CONSUME_OK, lambda event: {"consumer_tag": event.consumer_tag}),
    events.CancelOk: (m.BASIC_CANCEL_OK, lambda event: {"consumer_tag": event.consumer_tag}),
    events.Cancel: (m.BASIC_CANCEL, lambda event: {"consumer_tag": event.consumer_tag, "nowait": True}),
    events.RecoverOk: (m.BASIC_RECOVER_OK, lambda _: {}),
    events.GetEmpty: (m.BASIC_GET_EMPTY, lambda _: {"cluster_id": ""}),
    events.Nack: (
        m.BASIC_NACK,
        lambda event: {"delivery_tag": event.delivery_tag, "multiple": event.multiple, "requeue": False},
    ),
    events.ConfirmSelectOk: (m.CONFIRM_SELECT_OK, lambda _: {}),
    events.TxSelectOk: (m.TX_SELECT_OK, lambda _: {}),
    events.TxCommitOk: (m.TX_COMMIT_OK, lambda _: {}),
    events.TxRollbackOk: (m.TX_ROLLBACK_OK, lambda _: {}),
}


class Speaker:
    """Turns what is to be said on one connection into octets, in order."""

    def __init__(self, version: Version) -> None:
        """Speak as this version does; `frame_max` is set when it is negotiated."""
        self.frame_max = 0
        self._writes_anew = version.sorts_header_keys

    def take(self, waiting: deque[Saying], room: int) -> bytes:
        """Take from what is waiting until its octets fill the room, and return them; the last may go beyond it."""
        pieces: list[bytes] = []
        size = 0
        while waiting and size < room:
            saying = waiting.popleft()
            if type(saying) is events.Ack:  # one for every publish
                octets = _ack(saying, waiting)
            else:
                octets = saying if isinstance(saying, bytes) else self._frames_of(saying)
            size += len(octets)
            pieces.append(octets)
        return b"".join(pieces)

    def _frames_of(self, event: events.Event) -> bytes:
        match event:
            case events.Deliver():
                return self._deliver(event)
            case events.GetOk():
                return self._get_ok(event)
            case events.Return():
                return self._return(event)
            case _:
                method, fields = _METHODS[type(event)]
                return codec.method_frame(event.channel, method, **fields(event))

    def _deliver(self, event: events.Deliver) -> bytes:
        payload = b"\x00\x3c\x00\x3c%b%b%b%b" % (
            codec.short_string(event.consumer_tag),
            _DELIVERY_TAG_AND_BIT.pack(event.delivery_tag, event.redelivered),
            codec.short_string(event.exchange),
            codec.short_string(event.routing_key),
        )
        return self._with_content(event.channel, payload, event.properties, event.body)

    def _get_ok(self, event: events.GetOk) -> bytes:
        payload = b"\x00\x3c\x00\x47%b%b%b%b" % (
            _DELIVERY_TAG_AND_BIT.pack(event.delivery_tag, event.redelivered),
            codec.short_string(event.exchange),
            codec.short_string(event.routing_key),
            _MESSAGE_COUNT.pack(event.message_count),
        )
        return self._with_content(event.channel, payload, event.properties, event.body)

    def _return(self, event: events.Return) -> bytes:
        payload = codec.encode_method(
            m.BASIC_RETURN,
            reply_code=event.code,
            reply_text=event.text,
            exchange=event.exchange,
            routing_key=event.routing_key,
        )
        return self._with_content(event.channel, payload, event.properties, event.body)

    def _with_content(self, channel: int, payload: bytes, properties: Properties, body: bytes) -> bytes:
        """Return method, header and body in one piece, so that nothing can come between them."""
        octets = properties.canonical_payload() if self._writes_anew else properties.payload()
        return codec.frame(codec.METHOD, channel, payload) + codec.content_frames(channel, octets, body, self.frame_max)


def _ack(event: events.Ack, waiting: deque[Saying]) -> bytes:
    """Return one frame for a run of acks, as RabbitMQ coalesces confirms (rabbit_channel:send_confirms)."""
    tag, multiple = event.delivery_tag, event.multiple
    while waiting:
        following = waiting[0]
        if not isinstance(following, events.Ack) or following.channel != event.channel:
            break
        tag, multiple = following.delivery_tag, True
        waiting.popleft()
    return _ACK.pack(codec.METHOD, event.channel, _ACK_PAYLOAD_SIZE, 60, 80, tag, multiple, codec.FRAME_END)
