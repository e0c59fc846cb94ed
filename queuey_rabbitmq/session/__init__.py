"""The rules above the port: confirms, returns, bounds, acks, channels and connections, whatever the link.

Synchronous code that runs in a link's turns (see `queuey_rabbitmq.amqp`); no thread, no socket, no clock of its own.
"""
