"""Reading one HTTP/1.1 connection: bytes in, requests out."""

import asyncio
from abc import abstractmethod
from collections.abc import Container
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools

from ors._protocol import Limits
from ors.errors import BadRequest, ORSError, ResponseError
from ors.server.requests import Request, too_large

MAX_HEADER_BYTES = 64 * 1024
MOST_WISHES = 8
"""Requests behind each other that ask for another protocol; clients do so with one."""
KNOWN_TARGETS = 1024
LONGEST_KNOWN = 256
"""Bytes of a target that is remembered once it is taken apart: the same few come again and again."""


class Reader(asyncio.Protocol):
    """Reads requests with httptools, and refuses what cannot be one."""

    def __init__(self, limits: Limits, upgrades: Container[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._upgrades = upgrades  # the protocols that this connection can change to
        self._loop = loop
        self._lines: dict[bytes, bytes] = {}  # headers, then trailers, as they come
        self._parser: Any = httptools.HttpRequestParser(self)
        self._reading = False  # a request has begun to arrive
        self._heading = False  # ... and its headers are not through
        self._wishes = 0  # for another protocol, in what is being read
        self._unread = 0  # bytes that the client has not taken, when we looked last
        self._since = loop.time()  # when there was progress last
        self._url = b""
        self._headers: dict[bytes, bytes] = {}  # once they are all there
        self._header_bytes = 0  # received since the request began, or since its body went on
        self._moved = False  # whether one of these happened with what is being read
        self._body = b""
        self._parts: list[bytes] = []  # more of the body
        self._body_bytes = 0

    @abstractmethod
    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        """A request is whole; `modern` is HTTP/1.1."""

    @abstractmethod
    def _go_on(self) -> None:
        """The client waits for a word before it sends the body."""

    @abstractmethod
    def _refuse(self, error: ORSError) -> None:
        """Nothing more can be read."""

    @abstractmethod
    def _upgraded(self, rest: bytes) -> None:
        """The client asks for one of `upgrades` from here on; `rest` has come already."""

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._parser is None:  # nothing can be read behind what was refused
            return
        if not self._heading and not self._unread:  # headers have one deadline, however slowly they drip
            self._since = self._loop.time()
        self._moved = False
        self._reading = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            # One of our callbacks refused what it was told.
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ORSError) else BadRequest("Invalid HTTP request"))
        except httptools.HttpParserError:
            self._refuse(BadRequest("Invalid HTTP request"))
        if self._reading and not self._moved:
            # The parser gathers a header, or a trailer, until it is whole; we would not hear of it.
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                text = f"The request's headers are over {MAX_HEADER_BYTES} bytes"
                self._refuse(ResponseError(text, status=431))

    def _pass_over_upgrade(self, rest: bytes) -> None:
        # A server need not follow to HTTP/2 (RFC 9110, 7.8), but the parser reads no body after such a wish.
        if self._headers.get(b"upgrade") in self._upgrades:
            self._upgraded(rest)
            return
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT" or self._wishes == MOST_WISHES:
            self._refuse(BadRequest("This server speaks HTTP/1.1, and is no proxy"))
            return
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._forget()
        self._parser = httptools.HttpRequestParser(self)
        self._wishes += 1
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        self._wishes -= 1

    # ── What the parser tells ────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """The first byte of a request, maybe behind the end of another one in the same read."""
        self._reading = True

    def on_url(self, url: bytes) -> None:
        """A part of the request's target: a request begins."""
        self._heading = True
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._lines[name.lower()] = value

    def on_headers_complete(self) -> None:
        """All headers are there. What comes later are trailers: nothing of ours may stand there."""
        self._heading = False
        self._headers = headers = self._lines
        self._lines = {}
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._go_on()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._body_bytes:
            self._parts.append(body)
        else:
            self._body = body
        self._moved = True
        self._header_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)

    def on_message_complete(self) -> None:
        """The request is whole."""
        parser = self._parser
        if parser.should_upgrade():  # it is read again, without that wish
            return
        url = self._url
        path, query = _target(url) if len(url) <= LONGEST_KNOWN else _target.__wrapped__(url)
        method = parser.get_method()
        body = self._body if not self._parts else b"".join((self._body, *self._parts))
        request = Request(_METHODS.get(method) or method.decode(), path, query, self._headers, body)
        self._forget()
        keep_alive = parser.should_keep_alive()
        # Without a word about it only HTTP/1.1 keeps a connection; to ask for the version takes 0.3 µs.
        modern = (keep_alive and b"connection" not in request.headers) or parser.get_http_version() != "1.0"
        self._received(request, modern, modern and keep_alive)

    def _forget(self) -> None:
        self._reading = False
        self._moved = True
        self._url = self._body = b""
        self._header_bytes = self._body_bytes = 0
        if self._lines or self._parts:
            self._lines, self._parts = {}, []


_METHODS = {b"GET": "GET", b"POST": "POST"}


@lru_cache(KNOWN_TARGETS)
def _target(url: bytes) -> tuple[str, bytes]:
    """The path and the query of a request's target."""
    path, _, query = url.partition(b"?")
    text = path.decode("ascii", "replace")
    if not text.startswith("/"):  # "http://host/path", as clients ask a proxy
        text = "/" + text.partition("://")[2].partition("/")[2]
    return (unquote(text) if "%" in text else text), query
