"""The model behind AMQP 0-9-1 on a port: codec, connections without sockets, and the server that owns the sockets."""
