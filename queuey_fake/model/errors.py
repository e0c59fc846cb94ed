"""What the broker answers when it refuses: reply codes and RabbitMQ's exact texts, all of them here and nowhere else.

Owns the two exceptions of AMQP, the rule that makes a reply text of a code and an explanation, and one function for each
text. Decides nothing: whoever refuses raises what a function here returns.
"""

from queuey_fake.model.erlang import printed

CODE_NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}


class AmqpException(Exception):
    """A refusal. `code` is AMQP's reply code, `text` the whole reply text as it goes to the client."""

    def __init__(self, code: int, explanation: str) -> None:
        self.code = code
        self.text = reply_text(code, explanation)
        super().__init__(f"{self.code} {self.text}")


class ChannelException(AmqpException):
    """A refusal that closes the channel."""


class ConnectionException(AmqpException):
    """A refusal that closes the whole connection."""


def reply_text(code: int, explanation: str) -> str:
    """Return the code's name and the explanation, cut to a short string (rabbit_binary_generator:map_exception)."""
    text = f"{CODE_NAMES[code]} - {explanation}"
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) <= 255:
        return text
    return octets[:252].decode("utf-8", "surrogateescape") + "..."
