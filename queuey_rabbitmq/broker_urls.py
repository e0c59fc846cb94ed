"""What the URL of a broker says: where its nodes are, who logs in, into which virtual host, over which TLS.

Owns the forms that a URL may have and what each parameter means. Refuses what it does not know: a parameter that is
silently ignored is found out in production. The words of a refusal never hold a part of the URL that may be secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote

from queuey_rabbitmq.core.errors import InvalidConfigError

PORTS = {"amqp": 5672, "amqps": 5671}

_FORM = (
    "(it is not shown, as it may hold a password). It must read amqp://user:password@host:port/vhost or amqps://..., "
    "with several nodes host1:port1,host2:port2; special characters in user, password and vhost are percent-encoded "
    "(the vhost / is %2f)"
)
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(\?(?P<query>[^#]*))?(#(?P<fragment>.*))?",
    re.DOTALL,
)
_NOT_PRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]*)(:(?P<port>\d{1,5})?)?")

_NUMBERS = {"heartbeat": (0, 65_535), "channel_max": (1, 65_535), "frame_max": (4_096, 2**32 - 1)}
_TLS = frozenset({"cacertfile", "certfile", "keyfile", "password", "verify", "server_name_indication"})
_SAID_ELSEWHERE = {
    "connection_attempts": "RabbitMqOptions(reconnect=...) says how often and when it is tried again",
    "retry_delay": "RabbitMqOptions(reconnect=...) says how often and when it is tried again",
    "connection_timeout": "RabbitMqOptions(connect_timeout=...) bounds connecting",
    "socket_timeout": "RabbitMqOptions(connect_timeout=...) bounds connecting",
    "stack_timeout": "RabbitMqOptions(connect_timeout=...) bounds connecting",
    "blocked_connection_timeout": "RabbitMqOptions(operation_timeout=...) bounds what waits for a blocked broker",
    "client_properties": "RabbitMqOptions(connection_properties=...) says them",
    "ssl_options": "the URL says cacertfile, certfile, keyfile, verify and server_name_indication, or "
    "RabbitMqOptions(ssl_context=...) everything about TLS",
    "auth_mechanism": "PLAIN is the only one that is spoken; over amqps nobody reads it",
    "fail_if_no_peer_cert": "it is for servers; verify=verify_peer, which is the default, checks the broker",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsParameters:
    """How TLS is spoken, by RabbitMQ's names for it (rabbitmq.com/docs/uri-query-parameters)."""

    cacertfile: str | None = None
    """Certificates of the authorities to trust, PEM; without it, those of the system."""
    certfile: str | None = None
    """The client's own certificate, PEM."""
    keyfile: str | None = None
    """The key of `certfile`, where it is not in the same file."""
    password: str | None = field(default=None, repr=False)
    """What the key is encrypted with."""
    verify: bool = True
    """Whether the broker's certificate, and the name in it, are checked."""
    server_name: str | None = None
    """The name that the certificate must bear, where that is not the host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """One node, and how to log in there. As text it is host and port, with nothing secret."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    virtual_host: str
    tls: TlsParameters | None = None
    heartbeat: int | None = None
    channel_max: int | None = None
    frame_max: int | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(urls: str | Sequence[str]) -> tuple[BrokerAddress, ...]:
    """Return the nodes of one URL or of several, in order. Raises InvalidConfigError that says what is wrong."""
    if isinstance(urls, str):
        urls = [urls]
    if not isinstance(urls, Sequence) or not all(isinstance(url, str) for url in urls):
        raise InvalidConfigError(f"the broker's URL: expected text or a sequence of texts, got {type(urls).__name__}")
    if not urls:
        raise InvalidConfigError("the broker's URL: the sequence of URLs is empty; give one for each node")
    return tuple(address for url in urls for address in _parse(url))


def split(url: str) -> SplitResult:
    """Return the parts of a URL as they stand, several nodes for a host. Raises InvalidConfigError for another scheme.

    Not by `urlsplit`: releases of Python differ in which brackets they allow where several nodes are the host.
    """
    found = _URL.fullmatch(url.strip())
    if found is None or found["scheme"].lower() not in PORTS:
        _refuse("it begins with neither amqp:// nor amqps://")
    return SplitResult(
        found["scheme"].lower(), found["authority"], found["path"], found["query"] or "", found["fragment"] or ""
    )


def _parse(url: str) -> list[BrokerAddress]:
    scheme, authority, path, query, _ = split(url)
    if _NOT_PRINTABLE.search(url.strip()):
        _refuse("a space, a line break or a control character is not percent-encoded")
    if "#" in url or "@" in path + query or authority.count("@") > 1:
        _refuse("a character such as # / ? or @ in user, password or vhost is not percent-encoded")
    if _BROKEN_ESCAPE.search(url):
        _refuse("a % is not followed by two hexadecimal digits")
    if "/" in path[1:]:
        _refuse("a / within the vhost is not percent-encoded as %2f")
    login, _, nodes = authority.rpartition("@")
    user, colon, password = login.partition(":")
    if login and not (user and colon):
        _refuse("there is a user without a password, or a password without a user")
    parameters = _parameters(query)
    return [
        BrokerAddress(
            host=host,
            port=port,
            user=unquote(user) if login else "guest",
            password=unquote(password) if login else "guest",
            virtual_host=unquote(path[1:]) or "/",
            tls=_tls(parameters, speaks_tls=scheme == "amqps"),
            heartbeat=_number(parameters, "heartbeat"),
            channel_max=_number(parameters, "channel_max"),
            frame_max=_number(parameters, "frame_max"),
        )
        for host, port in _nodes(nodes, PORTS[scheme])
    ]


def _nodes(text: str, default_port: int) -> list[tuple[str, int]]:
    nodes = []
    parts = text.split(",")
    for part in parts:
        found = _HOST_AND_PORT.fullmatch(part)
        if found is None or (len(parts) > 1 and not found["host"]):
            _refuse("what stands for host and port is not host:port, [IPv6 address]:port or several with commas")
        port = int(found["port"]) if found["port"] else default_port
        if not 0 < port <= 65_535:  # noqa: PLR2004 -- TCP's
            _refuse("a port is not from 1 to 65535")
        host = unquote(found["host"].strip("[]"))
        if found["host"].startswith("["):
            _check_ipv6(host)
        nodes.append((host or "localhost", port))
    return nodes


def _check_ipv6(host: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        _refuse("what stands in brackets is not an IPv6 address")


def _parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        _refuse("its query does not read name=value&name=value")
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        _refuse("a parameter is given twice")
    for name in parameters:
        if name in _SAID_ELSEWHERE:
            _refuse(f"the parameter {name} is not for the URL: {_SAID_ELSEWHERE[name]}")
        if name not in _NUMBERS and name not in _TLS:
            _refuse(f"there is no parameter {name}; there are {', '.join(sorted({*_NUMBERS, *_TLS}))}")
    return parameters


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    value = parameters.get(name)
    lowest, highest = _NUMBERS[name]
    if value is None:
        return None
    if not value.isdecimal() or not lowest <= int(value) <= highest:
        _refuse(f"the parameter {name} is not an integer from {lowest} to {highest}")
    return int(value)


def _tls(parameters: Mapping[str, str], *, speaks_tls: bool) -> TlsParameters | None:
    said = {name: parameters[name] for name in _TLS & parameters.keys()}
    if not speaks_tls:
        if said:
            _refuse(f"the parameter {min(said)} is about TLS, which amqps:// speaks and amqp:// does not")
        return None
    if empty := sorted(name for name, value in said.items() if not value):
        _refuse(f"the parameter {empty[0]} is empty")
    if "certfile" not in said and (alone := sorted({"keyfile", "password"} & said.keys())):
        _refuse(f"the parameter {alone[0]} goes with certfile, which is not given")
    verify = said.pop("verify", "verify_peer")
    if verify not in {"verify_peer", "verify_none"}:
        _refuse("the parameter verify is neither verify_peer nor verify_none")
    name = said.pop("server_name_indication", None)
    if name == "disable":
        _refuse("server_name_indication=disable is not supported; it is the name in the broker's certificate")
    return TlsParameters(verify=verify == "verify_peer", server_name=name, **said)


def _refuse(reason: str) -> NoReturn:
    raise InvalidConfigError(f"the broker's URL cannot be used: {reason} {_FORM}") from None
