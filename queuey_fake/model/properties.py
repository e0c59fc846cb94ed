"""The fourteen properties of a message, decoded only when somebody reads one.

Owns what a content header carries besides the body's size. A message that nobody changes keeps the octets it came with
and is written back octet for octet. Gives no property a meaning.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, overload

from queuey_fake.model import table_codec
from queuey_fake.model.fields import Table, in_key_order

_T = TypeVar("_T")


class _Property(Generic[_T]):
    """One property: absent (None) when its flag is not set, and then nothing is decoded."""

    def __init__(self, flag: int) -> None:
        self._flag = flag

    def __set_name__(self, owner: type[Properties], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Properties]) -> _Property[_T]: ...
    @overload
    def __get__(self, instance: Properties, owner: type[Properties]) -> _T | None: ...
    def __get__(self, instance: Properties | None, owner: type[Properties]) -> _Property[_T] | _T | None:
        if instance is None:
            return self
        if not instance.flags & self._flag:
            return None
        values = instance._values  # noqa: SLF001 -- its own descriptor; read several times for each message
        value: _T | None = (instance.values() if values is None else values)[self._name]
        return value


class Properties:
    """The properties of one message. Never changed; `replace` makes another.

    Short strings are `str` with undecodable octets as surrogate escapes, `timestamp` is whole seconds, `headers` a
    typed table that its reader must not change.
    """

    __slots__ = ("_canonical_payload", "_payload", "_values", "flags")

    content_type = _Property[str](table_codec.CONTENT_TYPE)
    content_encoding = _Property[str](table_codec.CONTENT_ENCODING)
    headers = _Property[Table](table_codec.HEADERS)
    delivery_mode = _Property[int](table_codec.DELIVERY_MODE)
    priority = _Property[int](table_codec.PRIORITY)
    correlation_id = _Property[str](table_codec.CORRELATION_ID)
    reply_to = _Property[str](table_codec.REPLY_TO)
    expiration = _Property[str](table_codec.EXPIRATION)
    message_id = _Property[str](table_codec.MESSAGE_ID)
    timestamp = _Property[int](table_codec.TIMESTAMP)
    type = _Property[str](table_codec.TYPE)
    user_id = _Property[str](table_codec.USER_ID)
    app_id = _Property[str](table_codec.APP_ID)
    cluster_id = _Property[str](table_codec.CLUSTER_ID)

    def __init__(self, **values: Any) -> None:
        """Take the values by name; None is absent. Raises TypeError for a name that is no property."""
        present = {name: value for name, value in values.items() if value is not None}
        try:
            flags = table_codec.flags_of(present)
        except KeyError:
            unknown = ", ".join(sorted(present.keys() - table_codec.PROPERTY_FLAGS.keys()))
            raise TypeError(f"no such properties of a message: {unknown}") from None
        self._values: dict[str, Any] | None = present
        self._payload: bytes | None = None
        self._canonical_payload: bytes | None = None
        self.flags: Final = flags

    @classmethod
    def of(cls, values: dict[str, Any]) -> Properties:
        """Take a dictionary of values by name, without those that are absent, which nobody changes from now on."""
        self = cls.__new__(cls)
        self._values = values
        self._payload = None
        self._canonical_payload = None
        self.flags = table_codec.flags_of(values)  # type: ignore[misc]  # as below
        return self

    @classmethod
    def from_payload(cls, payload: bytes) -> Properties:
        """Take the octets behind the body size of a content header: flags and property list. Decodes nothing yet."""
        self = cls.__new__(cls)
        self._values = None
        self._payload = payload
        self._canonical_payload = None
        self.flags = int.from_bytes(payload[:2], "big")  # type: ignore[misc]  # second constructor of the same value
        return self

    def values(self) -> dict[str, Any]:
        """Return the properties that are present. Raises MalformedTable for octets that are no property list."""
        if self._values is None:
            assert self._payload is not None, "properties without values and without octets"
            self._values = table_codec.decode_properties(self._payload)
        return self._values

    def payload(self) -> bytes:
        """Return flags and property list as they came, or encoded."""
        if self._payload is None:
            self._payload = table_codec.encode_properties(self.values())
        return self._payload

    def canonical_payload(self) -> bytes:
        """Return flags and property list as RabbitMQ 4 delivers them (mc_amqpl).

        It keeps a message's meaning and writes it anew: the keys of `headers` sorted, each once, booleans as 0 and 1.
        """
        if self._canonical_payload is None:
            values = self.values()
            if "headers" in values:
                values = {**values, "headers": in_key_order(values["headers"])}
            elif self._payload is not None and not self.flags & table_codec.NO_FLAGS:
                self._canonical_payload = self._payload
                return self._payload
            self._canonical_payload = table_codec.encode_properties(values)
        return self._canonical_payload

    def may_have_header(self, name: str) -> bool:
        """Return whether `headers` could have a key that holds this text; decodes nothing for that."""
        if not self.flags & table_codec.HEADERS:
            return False
        if self._payload is None:
            return name in "\n".join(self.values()["headers"])
        return name.encode() in self._payload

    def replace(self, **changes: Any) -> Properties:
        """Return the properties with some of them changed; None takes one away."""
        return Properties(**{**self.values(), **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(self.flags)

    def __repr__(self) -> str:
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in self.values().items())})"


NO_PROPERTIES = Properties()
