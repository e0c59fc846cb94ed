"""Control over HTTP, on 127.0.0.1, in JSON: for test suites in other languages.

    GET  /                what there is to ask for
    GET  /now             {"now_ms": ms since 1970}
    POST /advance         {"ms": 30000}  moves a virtual clock; everything due happens
    GET  /queues          what every queue is like; renews no lease
    GET  /pending         what is due and when, soonest first
    GET  /exchanges       what every exchange is like
    GET  /bindings        which exchange leads where
    GET  /connections     who is connected
    POST /reset           forgets everything and drops every client

Answers 400 with {"error": ...} to what it does not understand and 409 to what this broker cannot do.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from queuey_fake.model.fields import Field, field_to_python
from queuey_fake.model.properties import Properties
from queuey_fake.service import Service

MAX_REQUEST = 65_536
REQUEST_TIMEOUT_S = 10.0
CLOSES_WITHIN_S = 0.05
"""How often `socketserver` looks whether it is to end; what waits for requests is no polling."""

GETS: Mapping[str, Callable[[Service], Any]] = {
    "/": lambda _: {"get": sorted(GETS), "post": ["/advance", "/reset"]},
    "/now": lambda service: {"now_ms": service.clock.now_ms()},
    "/queues": lambda service: service.look(lambda broker: broker.queue_snapshots()),
    "/exchanges": lambda service: service.look(lambda broker: broker.exchange_snapshots()),
    "/bindings": lambda service: service.look(lambda broker: broker.binding_snapshots()),
    "/pending": lambda service: service.look(lambda broker: broker.pending()),
    "/connections": lambda service: service.look(lambda broker: broker.connection_snapshots()),
}


class ControlServer:
    """Serves the control of one broker on a port of 127.0.0.1."""

    def __init__(self, service: Service, *, port: int = 0) -> None:
        """Open the port; 0 takes a free one. Raises OSError where it cannot be had."""
        self._http = _Http(service, port)
        self._thread = threading.Thread(target=self._serve, name="queuey_fake control", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _serve(self) -> None:
        self._http.serve_forever(poll_interval=CLOSES_WITHIN_S)

    @property
    def url(self) -> str:
        """The URL of the port."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        """Close the port."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _NotUnderstoodError(Exception):
    """The request makes no sense."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service: Service, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service = service
        self.lock = threading.Lock()  # one request at a time asks for something or moves the time


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        ask = GETS.get(self.path)
        if ask is None:
            self._send(404, {"error": f"there is no {self.path}"})
        else:
            self._answer(lambda: ask(self.server.service))

    def do_POST(self) -> None:
        if self.path == "/advance":
            self._answer(self._advance)
        elif self.path == "/reset":
            self._answer(self.server.service.reset)
        else:
            self._send(404, {"error": f"there is no {self.path}"})

    def _advance(self) -> Any:
        request = self._request()
        ms = request.get("ms") if isinstance(request, dict) else None
        if not isinstance(ms, int) or isinstance(ms, bool):
            raise _NotUnderstoodError('advance needs {"ms": a whole number of milliseconds}')
        self.server.service.advance_ms(ms)
        return {"now_ms": self.server.service.clock.now_ms()}

    def _request(self) -> Any:
        size = self.headers.get("Content-Length", "0")
        if not size.isdecimal() or int(size) > MAX_REQUEST:
            raise _NotUnderstoodError(f"a request has a Content-Length of at most {MAX_REQUEST}")
        try:
            return json.loads(self.rfile.read(int(size)) or b"{}")
        except ValueError as error:
            raise _NotUnderstoodError(f"the request is no JSON: {error}") from error

    def _answer(self, work: Callable[[], Any]) -> None:
        try:
            with self.server.lock:
                answer = work()
        except _NotUnderstoodError as error:
            self._send(400, {"error": str(error)})
        except ValueError as error:
            self._send(409, {"error": str(error)})
        else:
            self._send(200, {} if answer is None else answer)

    def _send(self, status: int, answer: Any) -> None:
        octets = json.dumps(plain(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def log_message(self, format: str, *_arguments: Any) -> None:  # noqa: A002  the name that http.server has
        """Log nothing."""


def plain(value: Any) -> Any:  # noqa: PLR0911  one return for each kind of value
    """Return the value in the words that JSON has; octets that are no text are {"base64": ...}."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case Field():
            return plain(field_to_python(value))
        case Properties():
            return plain(value.values())
        case dict():
            names = (key.decode(errors="replace") if isinstance(key, bytes) else plain(key) for key in value)
            return dict(zip(names, map(plain, value.values()), strict=True))
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return str(value)
