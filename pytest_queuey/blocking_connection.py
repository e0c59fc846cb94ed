"""Owns the connections that the plugin itself makes to a real broker, to look and to tidy up; pika waits on them.

A URL says the same here as in production: several nodes, of which the first that answers is taken, and what TLS takes.
Refuses to come back when it is lost.
"""

from __future__ import annotations

import pika

from queuey_rabbitmq.pika_link.parameters import BrokerParameters, LinkSettings


def connect(url: str, *, name: str, within: float) -> pika.BlockingConnection:
    """Connect to the first node of a broker that answers, each within so many seconds, and so each thing asked of it.

    Raises InvalidConfigError for a URL or files that can never work, and pika's errors.
    """
    within_ms = round(within * 1000)
    # Nothing serves such a connection between two questions, so there are no heartbeats, whatever the URL says.
    broker = BrokerParameters(LinkSettings(url=url, connect_timeout_ms=within_ms))
    ways = [broker.named(name, node, within_ms=within_ms) for node in broker.nodes]
    for way in ways:
        way.heartbeat = 0
        way.stack_timeout = way.blocked_connection_timeout = within
    return pika.BlockingConnection(ways)
