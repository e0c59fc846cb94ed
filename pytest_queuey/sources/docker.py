"""Owns the question whether a Docker answers here, asked without its client: importing that costs 0.1 s.

Refuses to start anything; `container` does.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from http.client import HTTPException
from urllib.parse import urlsplit

from pytest_queuey.sources.container_keeper import connect
from pytest_queuey.sources.server import SourceError

_DEFAULT_HOST = "unix:///var/run/docker.sock"
_PING_WITHIN = 0.5


def find_docker() -> str:
    """Return the address of a Docker that answers, without importing its client; raises SourceError.

    A `docker` command proves nothing: it is there without a daemon too.
    """
    host = os.environ.get("DOCKER_HOST") or _DEFAULT_HOST
    if not is_plain(host):
        return host  # that is for the client to try
    connection = connect(host, within=_PING_WITHIN)
    try:
        connection.request("GET", "/_ping")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise SourceError(f"no Docker answers at {host}: {error}") from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise SourceError(f"what answers at {host} is no Docker: /_ping gave HTTP status {status}")
    return host


def is_plain(host: str) -> bool:
    """Tell whether an address needs no more than a socket: no TLS, no ssh."""
    return urlsplit(host).scheme in ("unix", "tcp") and not os.environ.get("DOCKER_TLS_VERIFY")
