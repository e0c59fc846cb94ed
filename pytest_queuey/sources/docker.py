"""Owns the question whether a Docker answers here, asked without its client: importing that costs 0.1 s.

Refuses to start anything; `container` does.
"""

from __future__ import annotations

import os
import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from pytest_queuey.sources.server import SourceError

_DEFAULT_HOST = "unix:///var/run/docker.sock"
_PING_WITHIN = 0.5


def find_docker() -> str:
    """Return the address of a Docker that answers, without importing its client; raises SourceError.

    A `docker` command proves nothing: it is there without a daemon too.
    """
    host = os.environ.get("DOCKER_HOST", _DEFAULT_HOST)
    parts = urlsplit(host)
    connection = HTTPConnection(parts.hostname or "localhost", parts.port or 2375, timeout=_PING_WITHIN)
    try:
        if parts.scheme == "unix":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_PING_WITHIN)
            connection.sock.connect(parts.path)
        elif parts.scheme != "tcp":
            return host  # ssh:// and npipe:// are for the client to try
        connection.request("GET", "/_ping")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise SourceError(f"no Docker answers at {host}: {error}") from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise SourceError(f"what answers at {host} is no Docker: /_ping gave HTTP status {status}")
    return host
