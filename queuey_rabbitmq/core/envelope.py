"""A job as it travels: what every queue message holds, and the JSON it is written in.

The wire format is shared with workers in other languages. It is compact JSON in one order of fields, as serde_json
writes it: job_id, job_type, queue, attempt, enqueued_at_ms, deferrals, priority, correlation_id, payload. Older
bodies have no deferrals, priority or correlation_id; newer ones may have fields that are unknown here, which are
ignored. All else is strict: no number is read from text, no integer from a float or a boolean.

The payload stays the JSON that it arrived as until somebody asks for its value, so a job that goes round (retry,
deferral, dead letter) carries the same bytes each time.

Headers travel beside that JSON and are no part of it: trace context, and what other programs have said of the message.
An envelope has them as they came; which of them go on is for the backend to say.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, Self, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import replace

from queuey_rabbitmq.core.errors import InvalidConfigError, SerializationError

JobType = TypeVar("JobType")

MAX_COUNTER = 2**32 - 1
MAX_PRIORITY = 255
MAX_ENQUEUED_AT_MS = 2**64 - 1
MAX_HEADER_NAME_BYTES = 255
"""A header's name is an AMQP short string."""

_JSON_WHITESPACE = b" \t\r\n"
_REPR_PAYLOAD_BYTES = 80
_REPR_NAME_CHARACTERS = 40


class _Wire(msgspec.Struct, kw_only=True, gc=False):
    """The JSON object itself; msgspec checks all but the upper bound of `enqueued_at_ms`, which passes 63 bits."""

    job_id: uuid.UUID
    job_type: str
    queue: str
    attempt: Annotated[int, Meta(ge=1, le=MAX_COUNTER)]
    enqueued_at_ms: Annotated[int, Meta(ge=0)]
    deferrals: Annotated[int, Meta(ge=0, le=MAX_COUNTER)] = 0
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    correlation_id: str | UnsetType | None = UNSET
    payload: Raw


def _encode_other(value: Any) -> Any:
    """Encode what msgspec does not by itself: pydantic models, told by their method, and kinds of dates and times."""
    if hasattr(value, "model_dump_json"):
        return Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())
    plain: Any = _plain_date_or_time(type(value))
    if plain is None:
        raise TypeError(f"values of type {type(value).__qualname__} cannot be written as JSON")
    return plain.fromisoformat(value.isoformat())


def _decode_other(kind: Any, value: Any) -> Any:
    """Decode the same inside another type, the way back from `_encode_other`."""
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(msgspec.json.encode(value))
    plain = _plain_date_or_time(kind)
    if plain is None:
        raise InvalidConfigError(f"values of type {kind!r} cannot be read from JSON")
    return kind.fromisoformat(msgspec.convert(value, plain).isoformat())


def _plain_date_or_time(kind: Any) -> type | None:
    """Return the standard library's date, time or datetime that a class derives from; None where it is no such class.

    pendulum has classes of its own, and libraries that freeze time in tests put theirs in place of Python's.
    """
    bases = kind.__mro__ if isinstance(kind, type) else ()
    return next((base for base in bases if base.__module__ == "datetime" and hasattr(base, "fromisoformat")), None)


def _is_model(kind: Any) -> bool:
    """Tell whether a type is a pydantic model."""
    return hasattr(kind, "model_validate_json")


_decode_wire = msgspec.json.Decoder(_Wire).decode
_encode_wire = msgspec.json.Encoder().encode
_encode_payload = msgspec.json.Encoder(enc_hook=_encode_other).encode
_decode_value = msgspec.json.Decoder().decode
_new = object.__new__
_NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Envelope:
    """A job on its way: what it is, where it belongs, how often it was tried, and its payload.

    Immutable, and equal by value, the payload by its JSON, whatever its headers. `payload` is any value that JSON can
    hold, a dataclass, a msgspec struct or a pydantic model; it is encoded here, once. `enqueued_at_ms` comes from the
    backend's clock (`Backend.now_ms`). Raises SerializationError that names the field.
    """

    __slots__ = ("_headers", "_wire")

    _wire: _Wire
    _headers: Mapping[str, Any]

    def __init__(  # noqa: PLR0913 -- the fields of the wire format
        self,
        *,
        job_id: uuid.UUID,
        job_type: str,
        queue: str,
        enqueued_at_ms: int,
        payload: Any,
        attempt: int = 1,
        deferrals: int = 0,
        priority: int = 0,
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(job_id, uuid.UUID):
            raise SerializationError(f"envelope field `job_id`: expected a uuid.UUID, got {_shown(job_id)}")
        _check_integers(attempt, enqueued_at_ms, deferrals, priority)
        wire = _Wire(
            job_id=job_id,
            job_type=_text("job_type", job_type),
            queue=_text("queue", queue),
            attempt=attempt,
            enqueued_at_ms=enqueued_at_ms,
            deferrals=deferrals,
            priority=priority,
            correlation_id=UNSET if correlation_id is None else _text("correlation_id", correlation_id),
            payload=_encoded(payload),
        )
        _set_wire(self, wire)
        _set_headers(self, _checked_headers(headers) if headers else _NO_HEADERS)

    @classmethod
    def with_payload_json(  # noqa: PLR0913 -- the fields of the wire format
        cls,
        payload_json: bytes | str,
        *,
        job_id: uuid.UUID,
        job_type: str,
        queue: str,
        enqueued_at_ms: int,
        attempt: int = 1,
        deferrals: int = 0,
        priority: int = 0,
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make an envelope whose payload is JSON already; whitespace around it is dropped, the rest kept as it is."""
        try:
            encoded = payload_json.encode() if isinstance(payload_json, str) else bytes(memoryview(payload_json))
            encoded.decode()
            _decode_value(encoded)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SerializationError(f"envelope field `payload`: not JSON: {error}") from error
        return cls(
            job_id=job_id,
            job_type=job_type,
            queue=queue,
            enqueued_at_ms=enqueued_at_ms,
            payload=Raw(encoded.strip(_JSON_WHITESPACE)),
            attempt=attempt,
            deferrals=deferrals,
            priority=priority,
            correlation_id=correlation_id,
            headers=headers,
        )

    @classmethod
    def from_bytes(cls, body: bytes | bytearray | memoryview, headers: Mapping[str, Any] | None = None) -> Self:
        """Read an envelope that came with headers; raise SerializationError that says what was wrong, and where."""
        if type(body) is not bytes:
            body = bytes(memoryview(body))  # the payload is a view on the body, which must not change
        try:
            body.decode()  # msgspec checks only the text that it keeps as text
            wire = _decode_wire(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SerializationError(f"not an envelope, in a body of {len(body)} bytes: {error}") from error
        if wire.enqueued_at_ms > MAX_ENQUEUED_AT_MS:
            raise SerializationError(
                f"not an envelope, in a body of {len(body)} bytes: "
                f"Expected `int` <= {MAX_ENQUEUED_AT_MS} - at `$.enqueued_at_ms`"
            )
        if wire.correlation_id is None:
            wire.correlation_id = UNSET
        return cls._of(wire, _NO_HEADERS if headers is None else headers)  # not looked at: they may be decoded late

    @classmethod
    def _of(cls, wire: _Wire, headers: Mapping[str, Any]) -> Self:
        envelope = _new(cls)
        _set_wire(envelope, wire)
        _set_headers(envelope, headers)
        return envelope

    def to_bytes(self) -> bytes:
        """Write the envelope as compact JSON in UTF-8."""
        return _encode_wire(self._wire)

    @property
    def job_id(self) -> uuid.UUID:
        """The job's identity, the same through all its attempts."""
        return self._wire.job_id

    @property
    def job_type(self) -> str:
        """The name that handlers are found by."""
        return self._wire.job_type

    @property
    def queue(self) -> str:
        """The work queue that the job belongs to."""
        return self._wire.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._wire.attempt

    @property
    def enqueued_at_ms(self) -> int:
        """When the job was first enqueued, in ms since the epoch."""
        return self._wire.enqueued_at_ms

    @property
    def deferrals(self) -> int:
        """How often the job was deferred."""
        return self._wire.deferrals

    @property
    def priority(self) -> int:
        """The priority that it is published at, 0 for ordinary work."""
        return self._wire.priority

    @property
    def correlation_id(self) -> str | None:
        """What ties the job to a request or to other jobs, if anything."""
        correlation_id = self._wire.correlation_id
        return None if correlation_id is UNSET else correlation_id

    @property
    def headers(self) -> Mapping[str, Any]:
        """What travels beside the job: as a delivery came with it, the broker's own among it; not to be changed."""
        return MappingProxyType(self._headers) if isinstance(self._headers, dict) else self._headers

    @property
    def payload(self) -> Any:
        """The payload's value, decoded anew each time; raises SerializationError where Python cannot hold it."""
        try:
            return _decode_value(self._wire.payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SerializationError(f"{self._what()}: its payload cannot be decoded: {error}") from error

    @property
    def payload_json(self) -> bytes:
        """The payload's JSON, byte for byte as it came."""
        return bytes(self._wire.payload)

    def decode(self, job_type: type[JobType]) -> JobType:
        """Decode the payload as a dataclass, msgspec struct, pydantic model or plain type.

        Does not compare `job_type` with the envelope's: look at that first. As strict as the envelope itself, except
        that a pydantic model sets its own rules. Raises SerializationError that names the field which does not fit.
        """
        kind: Any = job_type
        try:
            decoded: JobType = _reader(kind)(self._wire.payload)
        except InvalidConfigError:
            raise
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            name = getattr(job_type, "__qualname__", repr(job_type))
            raise SerializationError(f"{self._what()}: its payload is not a {name}: {error}") from error
        return decoded

    def next_attempt(self) -> Self:
        """Return the envelope of the next attempt: one more, at priority 0. A full counter stays full."""
        attempt = min(self._wire.attempt + 1, MAX_COUNTER)
        return self._of(replace(self._wire, attempt=attempt, priority=0), self._headers)

    def first_attempt(self) -> Self:
        """Return the envelope as it was first enqueued: attempt 1, no deferrals, at priority 0."""
        return self._of(replace(self._wire, attempt=1, deferrals=0, priority=0), self._headers)

    def deferred(self, priority: int) -> Self:
        """Return the envelope of the same attempt, deferred once more, to return at `priority`."""
        _check_integer("priority", priority, 0, MAX_PRIORITY)
        deferrals = min(self._wire.deferrals + 1, MAX_COUNTER)
        return self._of(replace(self._wire, deferrals=deferrals, priority=priority), self._headers)

    def with_headers(self, headers: Mapping[str, Any]) -> Self:
        """Return the envelope with these headers beside, or instead of, those it has."""
        return self._of(self._wire, {**self._headers, **_checked_headers(headers)})

    def _what(self) -> str:
        return f"job {self.job_id} ({self.job_type!r}) of queue '{self.queue}'"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Envelope is immutable, {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Envelope is immutable, {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Envelope):
            return NotImplemented
        return self._wire == other._wire

    def __hash__(self) -> int:
        return hash((self.job_id, self.attempt, self.deferrals))

    def __reduce__(self) -> tuple[Any, tuple[bytes, dict[str, Any]]]:
        return type(self).from_bytes, (self.to_bytes(), dict(self._headers))

    def __repr__(self) -> str:
        payload = self.payload_json
        shown = payload[:_REPR_PAYLOAD_BYTES].decode(errors="replace")
        cut = "" if len(payload) <= _REPR_PAYLOAD_BYTES else f"... ({len(payload)} bytes)"
        return (
            f"Envelope(job_id={str(self.job_id)!r}, job_type={self.job_type!r}, queue={self.queue!r}, "
            f"attempt={self.attempt}, enqueued_at_ms={self.enqueued_at_ms}, deferrals={self.deferrals}, "
            f"priority={self.priority}, correlation_id={self.correlation_id!r}, payload={shown}{cut})"
        )


_set_wire = Envelope.__dict__["_wire"].__set__  # the slot itself, past the __setattr__ that refuses
_set_headers = Envelope.__dict__["_headers"].__set__  # as above


def check_readable(job_type: Any) -> None:
    """Raise InvalidConfigError where no payload can be read as that type, and NameError where it names an unknown one.

    A name may come to be known, further down in a module.
    """
    _reader(job_type)
    if not _is_model(job_type):
        from msgspec.inspect import type_info

        for kind in _custom(type_info(job_type), set()):
            # Python's own dates are among those while a library that freezes time has replaced them in msgspec.
            if not _is_model(kind) and _plain_date_or_time(kind) is None:
                raise InvalidConfigError(f"JSON has no values of type {kind!r}")


def _custom(part: Any, seen: set[int]) -> Iterator[Any]:
    """Iterate over the types within a type that msgspec does not know itself."""
    from msgspec.inspect import CustomType, Field, Type

    if id(part) in seen:  # a type may hold itself
        return
    seen.add(id(part))
    if isinstance(part, CustomType):
        yield part.cls
    elif isinstance(part, Field):
        yield from _custom(part.type, seen)
    elif isinstance(part, Type):
        for name in part.__struct_fields__:
            yield from _custom(getattr(part, name), seen)
    elif isinstance(part, tuple):
        for inner in part:
            yield from _custom(inner, seen)


@lru_cache(maxsize=1024)
def _reader(job_type: Any) -> Callable[[Raw], Any]:
    """Return what reads the JSON of a payload as a value of a type."""
    if _is_model(job_type):
        validate = job_type.model_validate_json
        return lambda payload: validate(bytes(payload))
    try:
        return msgspec.json.Decoder(job_type, dec_hook=_decode_other).decode
    except TypeError as error:
        raise InvalidConfigError(f"{job_type!r} cannot be a job type: {error}") from error


def _encoded(payload: Any) -> Raw:
    try:
        return Raw(_encode_payload(payload))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SerializationError(f"envelope field `payload`: {error}, got {_shown(payload)}") from error


def _checked_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    for name in headers:
        size = len(_text("headers", name).encode())
        if size > MAX_HEADER_NAME_BYTES:
            raise SerializationError(
                f"envelope field `headers`: a name has at most {MAX_HEADER_NAME_BYTES} bytes of UTF-8, and not {size}: "
                f"{name[:_REPR_NAME_CHARACTERS]!r}..."
            )
    return dict(headers)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise SerializationError(f"envelope field `{field}`: expected text, got {_shown(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"envelope field `{field}`: cannot be written in UTF-8: {error}") from error
    return value


def _check_integers(attempt: object, enqueued_at_ms: object, deferrals: object, priority: object) -> None:
    if (
        type(attempt) is type(enqueued_at_ms) is type(deferrals) is type(priority) is int
        and 1 <= attempt <= MAX_COUNTER
        and 0 <= enqueued_at_ms <= MAX_ENQUEUED_AT_MS
        and 0 <= deferrals <= MAX_COUNTER
        and 0 <= priority <= MAX_PRIORITY
    ):  # as they are in nearly every job
        return
    _check_integer("attempt", attempt, 1, MAX_COUNTER)
    _check_integer("enqueued_at_ms", enqueued_at_ms, 0, MAX_ENQUEUED_AT_MS)
    _check_integer("deferrals", deferrals, 0, MAX_COUNTER)
    _check_integer("priority", priority, 0, MAX_PRIORITY)


def _check_integer(field: str, value: object, lowest: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise SerializationError(
            f"envelope field `{field}`: expected an integer from {lowest} to {highest}, got {_shown(value)}"
        )


def _shown(value: object) -> str:
    return f"a value of type {type(value).__qualname__}" if not isinstance(value, int | float | str) else repr(value)
