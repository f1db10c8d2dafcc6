"""Answers requests with 503 while a server cannot start."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BODY_BYTES = 2**20
REQUEST_SECONDS = 5.0


@dataclass(frozen=True)
class Refusing:
    """Answers requests while a server cannot start; `tells` clients why, encrypted if there is `tls`."""

    tells: bool
    tls: ssl.SSLContext | None

    @contextmanager
    def on(self, listener: socket.socket, why: str) -> Iterator[None]:
        """Answers what arrives on a listening socket, while the block runs."""
        told = (why if self.tells else "") or "The server does not run now: its log says why"
        server = ThreadingHTTPServer(("", 0), partial(_Refusal, told), bind_and_activate=False)
        server.socket.close()
        server.socket = listener.dup()
        if self.tls is not None:  # each connection shakes hands in its own thread
            server.socket = self.tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.socket.close()


class _Refusal(BaseHTTPRequestHandler):
    """Answers one request of any method."""

    timeout = REQUEST_SECONDS

    def __init__(self, why: str, *connection: Any) -> None:
        self._why = why
        super().__init__(*connection)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # the base class asks for the method of the request
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        # All that was sent is read first: closing before that would lose the answer.
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(min(int(length), MOST_BODY_BYTES) if length.isdigit() else 0)
        body = json.dumps({"detail": self._why}).encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "1")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing: the reason is on the terminal already."""
