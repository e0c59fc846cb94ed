"""The link to a real RabbitMQ: the port's commands and events over pika, on one I/O thread.

Owns sockets, the thread and pika. Refuses every decision: what is sent when, ledgers, attribution and the deadlines
of operations are the session's. Importing this package imports pika.
"""

from queuey_rabbitmq.pika_link.link import PikaLink
from queuey_rabbitmq.pika_link.parameters import LinkSettings

__all__ = ["LinkSettings", "PikaLink"]
