"""Job-queue vocabulary: what a job, a queue, a retry and a backend are. Knows no AMQP client."""
