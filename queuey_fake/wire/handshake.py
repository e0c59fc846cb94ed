"""What comes before a connection is open: the protocol header, SASL, and the tuning.

Owns the texts and numbers of connection.start and connection.tune and the checks of what the client answers. Knows no
frames and keeps no state.
"""

from collections.abc import Mapping

from queuey_fake.model import table_codec
from queuey_fake.model.fields import Field, Table, boolean, longstr, table
from queuey_fake.model.versions import Version

CHANNEL_MAX = 2047
FRAME_MAX = 131_072
HEARTBEAT_S = 60
LOCALES = b"en_US"
PROTOCOL_HEADER_SIZE = 8
_PROTOCOL_HEADERS = (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")

_CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


class InvalidResponse(ValueError):  # noqa: N818  it names what is invalid
    """The client's answer to the SASL challenge cannot be read."""


def speaks_amqp_0_9_1(header: bytes) -> bool:
    """Return whether the first eight octets of a client are those of AMQP 0-9-1 or of 0-9, which is taken for it."""
    return header in _PROTOCOL_HEADERS


def refused_header(header: bytes, version: Version) -> bytes:
    """Return what RabbitMQ writes to a client that speaks something else (rabbit_reader:version_negotiation)."""
    speaks_a_later_0_9 = header.startswith(b"AMQP\x00\x00") and header[6] >= 9  # noqa: PLR2004  the minor version
    return _PROTOCOL_HEADERS[0] if speaks_a_later_0_9 else version.protocol_header


def server_properties(version: Version) -> Table:
    """Return what RabbitMQ says of itself; clients read capabilities, product and version."""
    return {
        "capabilities": table({name: boolean(True) for name in _CAPABILITIES}),
        "cluster_name": longstr("rabbit@localhost"),
        "copyright": longstr("Copyright (c) 2007-2026 Broadcom Inc and/or its subsidiaries"),
        "information": longstr("Licensed under the MPL 2.0. Website: https://rabbitmq.com"),
        "platform": longstr("Erlang/OTP"),
        "product": longstr("RabbitMQ"),
        "version": longstr(version.release),
    }


def capabilities_of(client_properties: Table) -> frozenset[str]:
    """Return the names of what the client says it is capable of."""
    capabilities = client_properties.get("capabilities")
    if capabilities is None or capabilities.type != "table":
        return frozenset()
    return frozenset(name for name, field in capabilities.value.items() if field == Field("bool", True))


def connection_name_of(client_properties: Table) -> str | None:
    """Return what the client calls its connection, None where it says nothing that is text."""
    name = client_properties.get("connection_name")
    return name.value if name is not None and name.type == "longstr" else None


def login(mechanism: str, response: bytes, users: Mapping[str, str]) -> str | None:
    """Return the user that the response logs in, None where name or password are wrong. Raises InvalidResponse."""
    if mechanism == "ANONYMOUS":
        return next(iter(users), None)
    user, password = _credentials_amqplain(response) if mechanism == "AMQPLAIN" else _credentials_plain(response)
    return user if users.get(user) == password else None


def _credentials_plain(response: bytes) -> tuple[str, str]:
    first, *credentials = response.split(b"\x00")
    if first or len(credentials) != 2:  # noqa: PLR2004  name and password
        raise InvalidResponse("a PLAIN response is a zero octet, the name, a zero octet and the password")
    user, password = credentials
    return user.decode("utf-8", "replace"), password.decode("utf-8", "replace")


def _credentials_amqplain(response: bytes) -> tuple[str, str]:
    try:
        fields = table_codec.decode_table(response)
    except table_codec.MalformedTable as error:
        raise InvalidResponse("an AMQPLAIN response is the inside of a field table") from error
    user, password = fields.get("LOGIN"), fields.get("PASSWORD")
    if user is None or password is None or user.type != "longstr" or password.type != "longstr":
        raise InvalidResponse("an AMQPLAIN response has the strings LOGIN and PASSWORD")
    return user.value, password.value


def accepts_tuning(channel_max: int, frame_max: int, version: Version) -> bool:
    """Return whether RabbitMQ takes what the client made of connection.tune; 0 would mean no limit, which it has."""
    return 1 <= channel_max <= CHANNEL_MAX and version.min_frame_max <= frame_max <= FRAME_MAX
