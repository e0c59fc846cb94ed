"""What the broker answers when it refuses: reply codes and RabbitMQ's exact texts, all of them here and nowhere else.

Owns the two exceptions of AMQP, the rule that makes a reply text of a code and an explanation, and one function for
each text. Decides nothing: whoever refuses raises what a function here returns.
"""

from collections.abc import Sequence

from queuey_fake.model.erlang import Atom, Printed, Term, printed, written
from queuey_fake.model.fields import Field, octets_of, text_of

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
_TEXT_LIMIT = 255


class AmqpException(Exception):  # noqa: N818  AMQP calls them exceptions
    """A refusal. `code` is AMQP's reply code, `text` the whole reply text as RabbitMQ 4 sends it to the client."""

    def __init__(self, code: int, *explanation: str | Printed) -> None:
        """Take RabbitMQ's explanation; none where it gives none and the text is the code's name alone."""
        self.code = code
        self._explanation = explanation
        self.text = self.text_of()
        super().__init__(f"{self.code} {self.text}")

    def text_of(self, *, octets: bool = False) -> str:
        """Return the reply text; with `octets` that of RabbitMQ 3.10, where every character is an octet."""
        if not self._explanation:
            return CODE_NAMES[self.code]
        return reply_text(self.code, self._explanation, octets=octets)


class ChannelException(AmqpException):
    """A refusal that closes the channel."""


class ConnectionException(AmqpException):
    """A refusal that closes the whole connection."""


def reply_text(code: int, explanation: Sequence[str | Printed], *, octets: bool = False) -> str:
    """Return the code's name and the explanation, cut to 255 characters, or octets (amqp_exception_explanation)."""
    text = f"{CODE_NAMES[code]} - {written(explanation, octets=octets)}"
    units: str | bytes = octets_of(text) if octets else text
    if len(units) <= _TEXT_LIMIT:
        return text
    cut = units[: _TEXT_LIMIT - 3]
    return (cut if isinstance(cut, str) else text_of(cut)) + "..."


def as_sent(refusal: AmqpException, *, octets: bool) -> AmqpException:
    """Return what of the refusal reaches the client; `octets` as for reply texts.

    What has 255 characters and more octets is no short string: RabbitMQ 4 crashes when it writes it.
    """
    if octets:
        refusal.text = refusal.text_of(octets=True)
    elif len(octets_of(refusal.text)) > _TEXT_LIMIT:
        return internal_error()
    return refusal


def resource(kind: str, name: str, vhost: str) -> str:
    """Return the words for a queue or exchange (rabbit_misc:rs)."""
    return f"{kind} '{name}' in vhost '{vhost}'"


# What does not exist, or may not be used


def not_found(kind: str, name: str, vhost: str) -> ChannelException:
    """Say that there is no such queue or exchange (rabbit_amqqueue:not_found)."""
    return ChannelException(404, f"no {resource(kind, name, vhost)}")


def no_previously_declared_queue() -> ChannelException:
    """Say that an empty queue name stands for the last declared queue, and there is none."""
    return ChannelException(404, "no previously declared queue")


def resource_locked(queue: str, vhost: str) -> ChannelException:
    """Say that the queue is another connection's or the exclusive flag differs (check_exclusive_access)."""
    return ChannelException(
        405,
        f"cannot obtain exclusive access to locked {resource('queue', queue, vhost)}. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration.",
    )


def exclusive_use(queue: str, vhost: str) -> ChannelException:
    """Say that an exclusive consumer is there, or asked for while others are."""
    return ChannelException(403, f"{resource('queue', queue, vhost)} in exclusive use")


def default_exchange_operation() -> ChannelException:
    """Say that the default exchange can be neither declared, deleted nor bound."""
    return ChannelException(403, "operation not permitted on the default exchange")


def system_exchange_deletion(exchange: str, vhost: str) -> ChannelException:
    """Say that the exchange is one of RabbitMQ's own."""
    return ChannelException(403, f"deletion of system {resource('exchange', exchange, vhost)} not allowed")


def internal_exchange_publish(exchange: str, vhost: str) -> ChannelException:
    """Say that clients do not publish to internal exchanges."""
    return ChannelException(403, f"cannot publish to internal {resource('exchange', exchange, vhost)}")


def reserved_prefix(kind: str, name: str) -> ChannelException:
    """Say that names that start with amq. are RabbitMQ's own (rabbit_channel:check_name)."""
    return ChannelException(403, f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def in_use(kind: str, name: str, vhost: str) -> ChannelException:
    """Say that a deletion asked for an unused queue or exchange."""
    return ChannelException(406, f"{resource(kind, name, vhost)} in use")


def not_empty(queue: str, vhost: str) -> ChannelException:
    """Say that a deletion asked for an empty queue."""
    return ChannelException(406, f"{resource('queue', queue, vhost)} not empty")


# Declarations


def invalid_argument(key: str, queue: str, vhost: str, reason: Term) -> ChannelException:
    """Say that an argument's type or value is refused (rabbit_amqqueue:check_arguments_type_and_value)."""
    text = f"invalid arg '{key}' for {resource('queue', queue, vhost)}: "
    return ChannelException(406, text, Printed(reason, width=255, is_unicode=False))


def argument_of_other_queue_type(key: str, queue: str, vhost: str, module: str) -> ChannelException:
    """Say that RabbitMQ knows the argument, but not for this type of queue (rabbit_amqqueue:check_arguments_key)."""
    return ChannelException(406, f"invalid arg '{key}' for {resource('queue', queue, vhost)} of queue type {module}")


def invalid_argument_type(type_: str, key: str, kind: str, name: str, vhost: str) -> ChannelException:
    """Say that the name of an exchange in the arguments is no string (rabbit_channel)."""
    return ChannelException(406, f"invalid type '{type_}' for arg '{key}' in {resource(kind, name, vhost)}")


def invalid_property(property_: str, queue: str, vhost: str) -> ChannelException:
    """Say that queues of this type cannot be declared so (rabbit_queue_type_util:run_checks)."""
    return ChannelException(406, f"invalid property '{property_}' for {resource('queue', queue, vhost)}")


def unknown_queue_type(queue_type: str) -> ChannelException:
    """Say that there is no such queue type, before a name is made up (rabbit_queue_type:discover, 4.3)."""
    return ChannelException(406, f"unknown queue type '{queue_type}'")


def server_named_queue_of_type(module: str) -> ChannelException:
    """Say that RabbitMQ makes up no names for queues of this type."""
    return ChannelException(406, f"Cannot declare a server-named queue for type {module}")


def inequivalent(key: str, *, kind: str, name: str, vhost: str, received: object, current: object) -> ChannelException:
    """Say that a second declaration says something else (rabbit_misc:equivalence_fail).

    A Field is printed with its type, None as none, and anything else bare.
    """
    return ChannelException(
        406,
        f"inequivalent arg '{key}' for {resource(kind, name, vhost)}: "
        f"received {_declared(received)} but current is {_declared(current)}",
    )


def _declared(value: object) -> str:
    match value:
        case None:
            return "none"
        case Field(type_, inner):
            return f"the value '{_plain(inner)}' of type '{type_}'"
        case _:
            return f"'{_plain(value)}'"


def _plain(value: object) -> str:
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else text_of(value)
    return printed(erlang_of(value))


def erlang_of(value: object) -> Term:
    """Return the Erlang term that RabbitMQ holds for the value of a field."""
    match value:
        case str():
            return octets_of(value)
        case dict():
            return [(octets_of(key), Atom(field.type), erlang_of(field.value)) for key, field in value.items()]
        case tuple() if all(isinstance(item, Field) for item in value):
            return [(Atom(item.type), erlang_of(item.value)) for item in value]
        case _:
            return value


def deprecated_feature_denied(feature: str) -> ConnectionException:
    """Say that the feature is denied unless rabbitmq.conf permits it (rabbit_deprecated_features:generate_warnings)."""
    return ConnectionException(
        541,
        f"Feature `{feature}` is deprecated.\n"
        "By default, this feature is not permitted anymore.\n"
        "The feature will be removed from a future major RabbitMQ version, regardless of the configuration; actual "
        "version to be determined.\n"
        "To continue using this feature when it is not permitted by default, set the following parameter in your "
        "configuration:\n"
        f'    "deprecated_features.permit.{feature} = true"',
    )


def no_streams(queue: str, vhost: str) -> ConnectionException:
    """Say that the imitation has no streams. RabbitMQ has; this text is ours."""
    return ConnectionException(540, f"{resource('queue', queue, vhost)} cannot be a stream: streams are not imitated")


def segment_size_exceeded() -> ChannelException:
    """Say that the segments of a stream would be too large (rabbit_stream_queue:check_max_segment_size_bytes)."""
    return ChannelException(406, "Exceeded max value for x-stream-max-segment-size-bytes")


def invalid_filter_size(text: str) -> ChannelException:
    """Say in the version's own text that a filter has no such size (rabbit_stream_queue:check_filter_size)."""
    return ChannelException(406, text)


def unknown_exchange_type(type_: str, *, is_word: bool, closes_connection: bool) -> AmqpException:
    """Say that there is no such exchange type (rabbit_exchange:check_type); 3.10 closes the connection for it.

    RabbitMQ has another word for what it knows as an atom, though for no type.
    """
    explanation = f"{'invalid' if is_word else 'unknown'} exchange type '{type_}'"
    return ConnectionException(503, explanation) if closes_connection else ChannelException(406, explanation)


def too_many_hashes(routing_key: str, hashes: int, limit: int) -> ChannelException:
    """Say that a topic exchange would have too much work with the key of a binding."""
    return ChannelException(
        406, f"Topic binding key '{routing_key}' uses {hashes} '#' wildcards, at most {limit} are allowed"
    )


def binding_key_not_permitted(routing_key: str) -> ChannelException:
    """Say that a binding to an x-local-random exchange has no key; octet by octet (rabbit_exchange_type_local_random).

    RabbitMQ prints the key with ~s, for which each octet is a character.
    """
    key = octets_of(routing_key).decode("latin-1")
    return ChannelException(406, f"Non empty binding '{key}' key not permitted")


def destination_is_no_queue() -> ChannelException:
    """Say that no exchange can be bound to an x-local-random exchange (rabbit_exchange_type_local_random)."""
    return ChannelException(406, "Destination not found")


def queue_type_not_valid(queue_type: str) -> ChannelException:
    """Say that no such queue can be bound to an x-local-random exchange (rabbit_exchange_type_local_random)."""
    return ChannelException(406, f"Queue type rabbit_{queue_type}_queue not valid for this exchange type")


def invalid_x_match(field: Field) -> ChannelException:
    """Say that the x-match of a binding to a headers exchange is none of the four (rabbit_exchange_type_headers)."""
    value = Printed(erlang_of(field.value))
    if field.type == "longstr":
        expected = "; expected all, any, all-with-x, or any-with-x"
        return ChannelException(406, "Invalid x-match field value ", value, expected)
    return ChannelException(406, f"Invalid x-match field type {field.type} (value ", value, "); expected longstr")


# Publishing


def invalid_expiration(expiration: str, reason: Term) -> ChannelException:
    """Say that the expiration of a message is no number of milliseconds (rabbit_channel:check_expiration_header)."""
    return ChannelException(406, f"invalid expiration '{expiration}': ", Printed(reason))


def invalid_message(reason: Term) -> ChannelException:
    """Say that a message cannot be made of what was published."""
    return ChannelException(406, "invalid message: ", Printed(reason))


def unacceptable_header_type(header: str, type_: str) -> ChannelException:
    """Say that CC and BCC are arrays (rabbit_basic:header_routes)."""
    return invalid_message((Atom("unacceptable_type_in_header"), header, Atom(type_)))


def unknown_delivery_mode(delivery_mode: int) -> ChannelException:
    """Say that 3.10 knows delivery modes 1 and 2 only (rabbit_basic:is_message_persistent)."""
    return invalid_message((Atom("delivery_mode_unknown"), delivery_mode))


def message_too_large(size: int, limit: int) -> ChannelException:
    """Say that the body exceeds max_message_size (rabbit_channel:check_msg_size)."""
    return ChannelException(406, f"message size {size} is larger than configured max size {limit}")


def wrong_user_id(claimed: str, actual: str) -> ChannelException:
    """Say that the user_id property names somebody else (rabbit_channel:check_user_id_header)."""
    return ChannelException(406, f"user_id property set to '{claimed}' but authenticated user was '{actual}'")


def no_reply_consumer() -> ChannelException:
    """Say that reply_to asks for direct reply-to, and the channel consumes no replies."""
    return ChannelException(406, "fast reply consumer does not exist")


def immediate() -> ConnectionException:
    """Say that RabbitMQ does not do immediate."""
    return ConnectionException(540, "immediate=true")


# Consuming and settling


def unknown_delivery_tag(delivery_tag: int) -> ChannelException:
    """Say that nothing with this tag is outstanding."""
    return ChannelException(406, f"unknown delivery tag {delivery_tag}")


def consumer_tag_reused(consumer_tag: str) -> ConnectionException:
    """Say that the channel has a consumer of this tag."""
    return ConnectionException(530, f"attempt to reuse consumer tag '{consumer_tag}'")


def prefetch_size(size: int) -> ConnectionException:
    """Say that RabbitMQ has no limit by size."""
    return ConnectionException(540, f"prefetch_size!=0 ({size})")


def global_qos_unsupported(queue: str, vhost: str) -> ConnectionException:
    """Say that quorum queues have no limit shared by a channel's consumers."""
    return ConnectionException(540, f"{resource('queue', queue, vhost)} does not support global qos")


def recover_without_requeue() -> ConnectionException:
    """Say that RabbitMQ does not redeliver to the same consumer."""
    return ConnectionException(540, "requeue=false")


def flow_inactive() -> ConnectionException:
    """Say that RabbitMQ does not let clients stop its deliveries."""
    return ConnectionException(540, "active=false")


def reply_consumer_acknowledges() -> ChannelException:
    """Say that direct replies are consumed without acknowledgement."""
    return ChannelException(406, "reply consumer cannot acknowledge")


def binding_to_reply_address() -> ChannelException:
    """Say that nothing is bound to the address of direct replies (reject_volatile_queue_as_binding_target)."""
    return ChannelException(403, "cannot bind or unbind to a volatile (direct reply-to) queue")


def get_from_reply_address(name: str, vhost: str) -> ConnectionException:
    """Say that direct replies are not fetched (rabbit_volatile_queue:dequeue)."""
    return ConnectionException(540, f"basic.get not supported by volatile {resource('queue', name, vhost)}")


def reply_address_of_another(name: str, vhost: str) -> ChannelException:
    """Say that the address is another channel's (rabbit_volatile_queue:consume)."""
    return ChannelException(406, f"only creator channel may consume from {resource('queue', name, vhost)}")


def reply_address_consumed(name: str, vhost: str) -> ChannelException:
    """Say that the channel consumes from the address already (rabbit_volatile_queue:consume)."""
    return ChannelException(406, f"multiple consumers are unsupported for {resource('queue', name, vhost)}")


def reply_consumer_set() -> ChannelException:
    """Say that a channel has one consumer of direct replies."""
    return ChannelException(406, "reply consumer already set")


def get_from_single_active_consumer(queue: str, vhost: str, *, prints_binary: bool) -> ChannelException:
    """Say that a quorum queue with a single active consumer is not for basic.get; 4.3 prints its type as a binary."""
    type_ = printed(b"quorum") if prints_binary else "quorum"
    return ChannelException(
        405,
        f"cannot obtain access to locked {resource('queue', queue, vhost)}. basic.get operations are not supported by "
        f"{type_} queues with single active consumer",
    )


def conditional_quorum_delete(queue: str, vhost: str, condition: str) -> ConnectionException:
    """Say that quorum queues are deleted unconditionally; `condition` is "if-unused" or "if-empty"."""
    return ConnectionException(
        540,
        f"cannot delete {resource('queue', queue, vhost)}. queue.delete operations with {condition} flag set are not "
        "supported by quorum queues",
    )


# Modes of a channel


def confirm_to_tx() -> ChannelException:
    """Say that a channel in confirm mode cannot have transactions."""
    return ChannelException(406, "cannot switch from confirm to tx mode")


def tx_to_confirm() -> ChannelException:
    """Say that a channel with transactions cannot be in confirm mode."""
    return ChannelException(406, "cannot switch from tx to confirm mode")


def not_transactional() -> ChannelException:
    """Say that tx.select was not called."""
    return ChannelException(406, "channel is not transactional")


def partial_tx_completion() -> ChannelException:
    """Say that a queue refused a message of the transaction."""
    return ChannelException(406, "partial tx completion")


def undeliverable(queue: str, vhost: str) -> ConnectionException:
    """Say that a queue of the transaction is gone; 4.3 then says so (rabbit_channel:deliver_to_queues)."""
    reason = (Atom("not_found"), (Atom("resource"), octets_of(vhost), Atom("queue"), octets_of(queue)))
    return ConnectionException(506, "failed to deliver message: ", Printed(reason))


def unimplemented_method() -> ConnectionException:
    """Say that no client sends this method."""
    return ConnectionException(503, "unimplemented method")


def internal_error() -> ConnectionException:
    """Say that a process of RabbitMQ crashed; it gives no explanation."""
    return ConnectionException(541)


# Connections and channels


def channel_opened_twice() -> ConnectionException:
    """Say that channel.open came on an open channel."""
    return ConnectionException(504, "second 'channel.open' seen")


def channel_not_open() -> ConnectionException:
    """Say that a method came on a channel that was not opened."""
    return ConnectionException(504, "expected 'channel.open'")


def too_many_channels(open_channels: int, channel_max: int) -> ConnectionException:
    """Say that channel_max bounds the number of open channels, whatever their numbers."""
    return ConnectionException(
        530, f"number of channels opened ({open_channels}) has reached the negotiated channel_max ({channel_max})"
    )


def vhost_not_found(vhost: str) -> ConnectionException:
    """Say that connection.open names a vhost that there is not."""
    return ConnectionException(530, f"vhost {vhost} not found")


def login_refused(mechanism: str) -> ConnectionException:
    """Say that name or password are wrong."""
    return ConnectionException(
        403,
        f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.",
    )


def unexpected_method(state: str) -> ConnectionException:
    """Say that a method of class connection came that does not belong here."""
    return ConnectionException(504, f"unexpected method in connection state {state}")


def shutdown() -> ConnectionException:
    """Say that the broker goes down in good order (measured with rabbitmqctl stop_app)."""
    return ConnectionException(320, "broker forced connection closure with reason 'shutdown'")


def malformed_short_string() -> ConnectionException:
    """Say that a short string is not UTF-8 (rabbit_binary_parser:assert_utf8)."""
    return ConnectionException(501, "Malformed UTF-8 in shortstr")


# Frames


def unexpected_frame(explanation: str) -> ConnectionException:
    """Say that a frame came that has no place here (rabbit_command_assembler)."""
    return ConnectionException(505, explanation)


def unexpected_frame_type(type_: int, payload: bytes) -> ConnectionException:
    """Say that a frame of this type has no place on this channel (rabbit_reader:unexpected_frame)."""
    return ConnectionException(505, *_snippet(type_, payload))


def frame_error(type_: int, payload: bytes, reason: Term) -> ConnectionException:
    """Say that a frame cannot be read (rabbit_reader:frame_error)."""
    return ConnectionException(501, *_snippet(type_, payload), ": ", Printed(reason))


def _snippet(type_: int, payload: bytes) -> tuple[str | Printed, ...]:
    size = 16
    which = "all" if len(payload) <= size else f"first {size}"
    return f"type {type_}, {which} octets = ", Printed(payload[:size])


def cannot_decode(octets: bytes) -> ConnectionException:
    """Say that the fields do not fit their method (rabbit_misc:frame_error)."""
    return ConnectionException(501, f"cannot decode <<{','.join(map(str, octets))}>>")


def body_size_over_limit(size: int, limit: int) -> ConnectionException:
    """Say that a content header announces a body that is never taken; 4.3 says so (rabbit_command_assembler)."""
    return ConnectionException(501, f"content body size {size} exceeds maximum allowed size {limit}")


def too_much_unfinished(limit: int) -> ConnectionException:
    """Say that the messages that are still being sent are too long together; RabbitMQ would run out of memory."""
    return ConnectionException(506, f"unfinished messages of this connection have more than {limit} octets")


def overlong_body() -> ConnectionException:
    """Say that more octets came than the content header announced; 4.3 says so."""
    return ConnectionException(501, "content body frame exceeds remaining content size")
