"""How a real broker is obtained: a URL, a private local server, a container."""
