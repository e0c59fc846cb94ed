"""Values of transcripts: how JSON holds what AMQP has and JSON has not, and names that differ from run to run."""

import datetime as dt
import decimal
import hashlib
from typing import Any

from pika.compat import long

PROPERTIES = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
LONG_BODY = 200


class Values:
    """The values of one run: `@` stands for its prefix, `$name` for a name that the broker made up."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.made_up: dict[str, str] = {}

    def read(self, value: Any) -> Any:  # noqa: PLR0911  one return for each type
        """Return the Python value of what a script holds."""
        match value:
            case str():
                return self.made_up.get(value[1:], value) if value[:1] == "$" else value.replace("@", self.prefix)
            case list():
                return [self.read(item) for item in value]
            case {"$bytes": octets}:
                return bytes.fromhex(octets)
            case {"$ts": seconds}:
                return dt.datetime.fromtimestamp(seconds, dt.UTC)
            case {"$dec": text}:
                return decimal.Decimal(text)
            case {"$long": number}:
                return long(number)
            case {"$float": number}:
                return float(number)
            case {"$repeat": [text, times]}:
                return text * times
            case dict():
                return {self.read(key): self.read(item) for key, item in value.items()}
            case _:
                return value

    def text(self, text: str) -> str:
        """Return a text as transcripts hold it."""
        for name, made_up in self.made_up.items():
            text = text.replace(made_up, f"${name}")
        return text.replace(self.prefix, "@")

    def tag(self, consumer_tag: str) -> str:
        """Return a consumer tag; one that was made up is never the same."""
        text = self.text(consumer_tag)
        return "<ctag>" if text.startswith(("ctag", "amq.ctag")) else text

    def write(self, value: Any, key: str | None = None) -> Any:  # noqa: PLR0911  one return for each type
        """Return what a transcript holds for a Python value that pika gave."""
        match value:
            case None | bool():
                return value
            case str():
                return self.text(value)
            case long():
                return {"$long": int(value)}
            case int():
                return value
            case float():
                return {"$float": value}
            case bytes():
                return {"$bytes": value.hex()}
            case dt.datetime():
                return "<time>" if key == "time" else {"$ts": int(value.timestamp())}
            case decimal.Decimal():
                return {"$dec": str(value)}
            case list():
                return [self.write(item) for item in value]
            case _:
                return {self.text(name): self.write(item, name) for name, item in value.items()}

    def body(self, body: bytes | None) -> Any:
        """Return a body: short ones as text, long ones by length and hash."""
        if body is None:
            return None
        if len(body) > LONG_BODY:
            return {"$len": len(body), "$sha1": hashlib.sha1(body, usedforsecurity=False).hexdigest()}
        try:
            return self.text(body.decode())
        except UnicodeDecodeError:
            return {"$bytes": body.hex()}

    def properties(self, properties: Any) -> dict[str, Any]:
        """Return the properties that are present."""
        present = {name: getattr(properties, name) for name in PROPERTIES}
        return {name: self.write(value) for name, value in present.items() if value is not None}

    def message(self, method: Any, properties: Any, body: bytes) -> dict[str, Any]:
        """Return what deliveries, returns and basic.get have in common."""
        return {
            "exchange": self.text(method.exchange),
            "routing_key": self.text(method.routing_key),
            "body": self.body(body),
            "props": self.properties(properties),
        }

    def returned(self, method: Any, properties: Any, body: bytes) -> dict[str, Any]:
        """Return a basic.return."""
        head = {"ev": "return", "code": method.reply_code, "text": self.text(method.reply_text)}
        return head | self.message(method, properties, body)

    def error(self, error: Exception) -> dict[str, Any]:
        """Return what a call raised: a channel's end, a connection's end, or pika's own refusal."""
        names = [kind.__name__ for kind in type(error).__mro__]
        for kind, name in (("channel", "ChannelClosedByBroker"), ("connection", "ConnectionClosedByBroker")):
            if name in names:
                return {"error": kind, "code": error.reply_code, "text": self.text(error.reply_text)}  # type: ignore[attr-defined]  # pika's
        return {"error": "local", "type": type(error).__name__}
