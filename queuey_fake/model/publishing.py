"""From what a client publishes to a message: what RabbitMQ checks, and in which order.

Owns those checks and the routing keys of CC and BCC headers. Routes nothing.
"""

from __future__ import annotations

from queuey_fake.model import direct_reply, errors
from queuey_fake.model.arguments import expiration_ms
from queuey_fake.model.fields import Table
from queuey_fake.model.message import Message
from queuey_fake.model.properties import Properties
from queuey_fake.model.table_codec import DELIVERY_MODE, EXPIRATION, HEADERS, REPLY_TO, USER_ID
from queuey_fake.model.versions import Version


def published_message(
    number: int,
    exchange: str,
    routing_key: str,
    properties: Properties,
    body: bytes,
    *,
    user: str,
    reply_queue: str | None,
    version: Version,
) -> Message:
    """Return the message; `reply_queue` takes direct replies. Raises ChannelException for refused properties."""
    if len(body) > version.max_message_size:
        raise errors.message_too_large(len(body), version.max_message_size)
    flags = properties.flags
    if flags & REPLY_TO and properties.reply_to == direct_reply.PSEUDO_QUEUE:
        if reply_queue is None:
            raise errors.no_reply_consumer()
        properties = properties.replace(reply_to=reply_queue)
    # RabbitMQ 4 makes the message first and reads it then (mc_amqpl): the user is checked last (scenario
    # pub_order_user_vs_expiration), and an expiration of "007" is delivered as "7".
    makes_container = version.message_containers
    if flags & USER_ID and not makes_container:
        _check_user_id(properties, user)
    ttl_ms = None
    if flags & EXPIRATION:
        ttl_ms = expiration_ms(properties.expiration)
        if makes_container:
            properties = properties.replace(expiration=str(ttl_ms))
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    if flags & HEADERS and properties.may_have_header("CC"):  # BCC holds it too
        properties, cc, bcc = _carbon_copies(properties)
    if flags & DELIVERY_MODE and version.refuses_unknown_delivery_mode and properties.delivery_mode not in (1, 2):
        raise errors.unknown_delivery_mode(properties.delivery_mode or 0)
    if flags & USER_ID:
        _check_user_id(properties, user)
    return Message(number, exchange, routing_key, properties, body, other_keys=cc + bcc, expiration_ms=ttl_ms, bcc=bcc)


def _carbon_copies(properties: Properties) -> tuple[Properties, tuple[str, ...], tuple[str, ...]]:
    """Return the properties without their BCC header, and the routing keys of CC and of BCC."""
    headers = properties.headers or {}
    cc, bcc = _routes(headers, "CC"), _routes(headers, "BCC")
    if "BCC" in headers:
        properties = properties.replace(headers={key: field for key, field in headers.items() if key != "BCC"})
    return properties, cc, bcc


def _check_user_id(properties: Properties, user: str) -> None:
    claimed = properties.user_id
    if claimed is not None and claimed != user:
        raise errors.wrong_user_id(claimed, user)


def _routes(headers: Table, key: str) -> tuple[str, ...]:
    """Return the routing keys in a header; only strings among its elements count (rabbit_basic:header_routes)."""
    field = headers.get(key)
    if field is None:
        return ()
    if field.type != "array":
        raise errors.unacceptable_header_type(key, field.type)
    return tuple(item.value for item in field.value if item.type == "longstr")
