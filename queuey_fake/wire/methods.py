"""The methods of AMQP 0-9-1 as RabbitMQ speaks it: one table of names, ids and the types of their fields.

Owns the table and nothing else. The octets of fields are the codec's, their meaning is the connection's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """One method. Fields are named as in Python, with their types: octet, short, long, longlong, shortstr, ..."""

    class_id: int
    method_id: int
    name: str
    fields: tuple[tuple[str, str], ...] = ()
    has_content: bool = False


def _method(class_id: int, method_id: int, name: str, fields: str = "", *, has_content: bool = False) -> Method:
    pairs = (field.split(":") for field in fields.split())
    return Method(class_id, method_id, name, tuple((field, type_) for field, type_ in pairs), has_content)


_REFUSAL = "reply_code:short reply_text:shortstr class_id:short method_id:short"
_TUNING = "channel_max:short frame_max:long heartbeat:short"
_BINDING = "exchange:shortstr routing_key:shortstr"
_E2E_BINDING = "ticket:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table"

CONNECTION_START = _method(
    10,
    10,
    "connection.start",
    "version_major:octet version_minor:octet server_properties:table mechanisms:longstr locales:longstr",
)
CONNECTION_START_OK = _method(
    10, 11, "connection.start-ok", "client_properties:table mechanism:shortstr response:longstr locale:shortstr"
)
CONNECTION_SECURE = _method(10, 20, "connection.secure", "challenge:longstr")
CONNECTION_SECURE_OK = _method(10, 21, "connection.secure-ok", "response:longstr")
CONNECTION_TUNE = _method(10, 30, "connection.tune", _TUNING)
CONNECTION_TUNE_OK = _method(10, 31, "connection.tune-ok", _TUNING)
CONNECTION_OPEN = _method(10, 40, "connection.open", "virtual_host:shortstr capabilities:shortstr insist:bit")
CONNECTION_OPEN_OK = _method(10, 41, "connection.open-ok", "known_hosts:shortstr")
CONNECTION_CLOSE = _method(10, 50, "connection.close", _REFUSAL)
CONNECTION_CLOSE_OK = _method(10, 51, "connection.close-ok")
CONNECTION_BLOCKED = _method(10, 60, "connection.blocked", "reason:shortstr")
CONNECTION_UNBLOCKED = _method(10, 61, "connection.unblocked")
CONNECTION_UPDATE_SECRET = _method(10, 70, "connection.update-secret", "new_secret:longstr reason:shortstr")
CONNECTION_UPDATE_SECRET_OK = _method(10, 71, "connection.update-secret-ok")

CHANNEL_OPEN = _method(20, 10, "channel.open", "out_of_band:shortstr")
CHANNEL_OPEN_OK = _method(20, 11, "channel.open-ok", "channel_id:longstr")
CHANNEL_FLOW = _method(20, 20, "channel.flow", "active:bit")
CHANNEL_FLOW_OK = _method(20, 21, "channel.flow-ok", "active:bit")
CHANNEL_CLOSE = _method(20, 40, "channel.close", _REFUSAL)
CHANNEL_CLOSE_OK = _method(20, 41, "channel.close-ok")

ACCESS_REQUEST = _method(
    30, 10, "access.request", "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit"
)
ACCESS_REQUEST_OK = _method(30, 11, "access.request-ok", "ticket:short")

EXCHANGE_DECLARE = _method(
    40,
    10,
    "exchange.declare",
    "ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit nowait:bit "
    "arguments:table",
)
EXCHANGE_DECLARE_OK = _method(40, 11, "exchange.declare-ok")
EXCHANGE_DELETE = _method(40, 20, "exchange.delete", "ticket:short exchange:shortstr if_unused:bit nowait:bit")
EXCHANGE_DELETE_OK = _method(40, 21, "exchange.delete-ok")
EXCHANGE_BIND = _method(40, 30, "exchange.bind", _E2E_BINDING)
EXCHANGE_BIND_OK = _method(40, 31, "exchange.bind-ok")
EXCHANGE_UNBIND = _method(40, 40, "exchange.unbind", _E2E_BINDING)
EXCHANGE_UNBIND_OK = _method(40, 51, "exchange.unbind-ok")

QUEUE_DECLARE = _method(
    50,
    10,
    "queue.declare",
    "ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit nowait:bit arguments:table",
)
QUEUE_DECLARE_OK = _method(50, 11, "queue.declare-ok", "queue:shortstr message_count:long consumer_count:long")
QUEUE_BIND = _method(50, 20, "queue.bind", f"ticket:short queue:shortstr {_BINDING} nowait:bit arguments:table")
QUEUE_BIND_OK = _method(50, 21, "queue.bind-ok")
QUEUE_PURGE = _method(50, 30, "queue.purge", "ticket:short queue:shortstr nowait:bit")
QUEUE_PURGE_OK = _method(50, 31, "queue.purge-ok", "message_count:long")
QUEUE_DELETE = _method(50, 40, "queue.delete", "ticket:short queue:shortstr if_unused:bit if_empty:bit nowait:bit")
QUEUE_DELETE_OK = _method(50, 41, "queue.delete-ok", "message_count:long")
QUEUE_UNBIND = _method(50, 50, "queue.unbind", f"ticket:short queue:shortstr {_BINDING} arguments:table")
QUEUE_UNBIND_OK = _method(50, 51, "queue.unbind-ok")

BASIC_QOS = _method(60, 10, "basic.qos", "prefetch_size:long prefetch_count:short global_:bit")
BASIC_QOS_OK = _method(60, 11, "basic.qos-ok")
BASIC_CONSUME = _method(
    60,
    20,
    "basic.consume",
    "ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit nowait:bit "
    "arguments:table",
)
BASIC_CONSUME_OK = _method(60, 21, "basic.consume-ok", "consumer_tag:shortstr")
BASIC_CANCEL = _method(60, 30, "basic.cancel", "consumer_tag:shortstr nowait:bit")
BASIC_CANCEL_OK = _method(60, 31, "basic.cancel-ok", "consumer_tag:shortstr")
BASIC_PUBLISH = _method(
    60, 40, "basic.publish", f"ticket:short {_BINDING} mandatory:bit immediate:bit", has_content=True
)
BASIC_RETURN = _method(60, 50, "basic.return", f"reply_code:short reply_text:shortstr {_BINDING}", has_content=True)
BASIC_DELIVER = _method(
    60, 60, "basic.deliver", f"consumer_tag:shortstr delivery_tag:longlong redelivered:bit {_BINDING}", has_content=True
)
BASIC_GET = _method(60, 70, "basic.get", "ticket:short queue:shortstr no_ack:bit")
BASIC_GET_OK = _method(
    60, 71, "basic.get-ok", f"delivery_tag:longlong redelivered:bit {_BINDING} message_count:long", has_content=True
)
BASIC_GET_EMPTY = _method(60, 72, "basic.get-empty", "cluster_id:shortstr")
BASIC_ACK = _method(60, 80, "basic.ack", "delivery_tag:longlong multiple:bit")
BASIC_REJECT = _method(60, 90, "basic.reject", "delivery_tag:longlong requeue:bit")
BASIC_RECOVER_ASYNC = _method(60, 100, "basic.recover-async", "requeue:bit")
BASIC_RECOVER = _method(60, 110, "basic.recover", "requeue:bit")
BASIC_RECOVER_OK = _method(60, 111, "basic.recover-ok")
BASIC_NACK = _method(60, 120, "basic.nack", "delivery_tag:longlong multiple:bit requeue:bit")

CONFIRM_SELECT = _method(85, 10, "confirm.select", "nowait:bit")
CONFIRM_SELECT_OK = _method(85, 11, "confirm.select-ok")

TX_SELECT = _method(90, 10, "tx.select")
TX_SELECT_OK = _method(90, 11, "tx.select-ok")
TX_COMMIT = _method(90, 20, "tx.commit")
TX_COMMIT_OK = _method(90, 21, "tx.commit-ok")
TX_ROLLBACK = _method(90, 30, "tx.rollback")
TX_ROLLBACK_OK = _method(90, 31, "tx.rollback-ok")

METHODS = {
    (method.class_id, method.method_id): method for method in list(globals().values()) if isinstance(method, Method)
}
