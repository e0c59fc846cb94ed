"""Job queues on RabbitMQ."""
