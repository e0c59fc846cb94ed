"""A faithful RabbitMQ in memory, with a clock that can be moved."""
