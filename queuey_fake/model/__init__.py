"""The broker: synchronous, deterministic, without clock, socket, thread or randomness; time is passed in as ms."""
