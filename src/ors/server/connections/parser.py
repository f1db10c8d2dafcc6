"""Parses the requests of one HTTP/1.1 connection: bytes in, requests out."""

import asyncio
from collections.abc import Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from ors.errors import BadRequest, ORSError
from ors.server.connections.context import ConnectionContext, seconds_for
from ors.server.connections.states import ADMITTED, ASKING, BODY, ENDED, HEAD, IDLE, Reading
from ors.server.http.requests import (
    MAX_HEADER_BYTES,
    MAX_TARGET_BYTES,
    SINGLE_HEADERS,
    Request,
    doubled,
    too_large,
    too_long,
    too_many_headers,
)

if TYPE_CHECKING:
    from ors.server.connections.connection import Connection

MAX_UPGRADES = 8
"""Pipelined requests that ask for another protocol; clients do so with one."""
CACHED_TARGETS = 1024
MAX_CACHED_BYTES = 256
"""Longest target whose path and query are cached: the same few come again and again."""
MAX_FEED_BYTES = MAX_HEADER_BYTES + 1
"""More is fed to the parser in pieces, so that headers over the limit are noticed."""
HEADER_PIECE, BODY_PIECE = 4 * 1024, 16 * 1024
"""Pieces are short: headers that share one with the end of another request are not counted."""


class RequestParser:
    """Reads the requests of a connection with httptools, and refuses invalid ones."""

    # CPython reads attributes quickly only of classes with slots, or with at most 30 attributes.
    __slots__ = (
        "_app", "_arriving_since", "_body", "_body_bytes", "_connection", "_context", "_counted", "_fields",
        "_header_bytes", "_headers", "_http", "_loop", "_max_body", "_parts", "_refusal_headers", "_url",
        "since", "state",
    )  # fmt: skip

    def __init__(
        self, connection: "Connection", context: ConnectionContext, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connection = connection
        self._context = context
        self._app = context.app
        self._loop = loop
        self._http: Any = httptools.HttpRequestParser(self)
        self.state: Reading = IDLE
        self.since = loop.time()
        """When the client last sent something, or the last answer ended; headers have one deadline."""
        self._url = b""
        self._fields: dict[bytes, bytes] = {}  # headers, then trailers, as they arrive
        self._headers: dict[bytes, bytes] = {}  # once they are complete
        self._header_bytes = 0  # received since the request began, or since its body went on
        self._body = b""
        self._parts: list[bytes] = []  # more of the body
        self._body_bytes = 0
        self._max_body = self._app.limits.body_bytes
        self._arriving_since = 0.0  # when the sender of the body was admitted
        self._counted = 0  # bytes of the body that the context has counted
        self._refusal_headers = b""  # what a refusal of this request sends besides

    def feed(self, data: bytes, upgrades: int = 0) -> None:
        """Parses bytes that have arrived. `upgrades` counts ignored requests for other protocols."""
        state = self.state
        if state is ENDED:
            return
        if state is not HEAD:  # headers have one deadline, however slowly they drip
            self.since = self._loop.time()
            if state is IDLE:
                self.state = HEAD
        header_bytes = self._header_bytes + len(data)
        if header_bytes > MAX_FEED_BYTES:
            self._feed_in_pieces(data, upgrades)
            return
        self._header_bytes = header_bytes  # the parser resets it if a body goes on, or a request ends
        try:
            self._http.feed_data(data)
            if self.state is not IDLE:
                self._check_partial()
        except httptools.HttpParserUpgrade as upgrade:
            if self.state is not ENDED:
                self._upgrade(data[upgrade.args[0] :], upgrades)
        except httptools.HttpParserCallbackError as error:
            # Raised by one of our callbacks.
            cause = error.__context__
            self.refuse(cause if isinstance(cause, ORSError) else BadRequest("Invalid HTTP request"))
        except httptools.HttpParserError:
            self.refuse(BadRequest("Invalid HTTP request"))
        except ORSError as error:
            self.refuse(error)

    def _feed_in_pieces(self, data: bytes, upgrades: int) -> None:
        # The parser buffers what is not complete: short pieces let us count it.
        at = 0
        while at < len(data) and self.state is not ENDED:
            piece = HEADER_PIECE if self.state in (IDLE, HEAD) else BODY_PIECE
            end = at + min(piece, MAX_FEED_BYTES - self._header_bytes)
            self.feed(data[at:end], upgrades)
            at = end

    def _check_partial(self) -> None:
        """Checks the limits of a request that is not complete, and who sends it.

        One that arrives in a single read is checked when it is taken.
        """
        if self.state is ENDED:
            return
        # The parser buffers a header, or a trailer, until it is complete, and does not tell.
        if len(self._url) > MAX_TARGET_BYTES:
            raise too_long()
        if self._header_bytes > MAX_HEADER_BYTES:
            raise too_many_headers()
        if self.state is not HEAD:
            if self.state is BODY:
                self._admit()
            grown, self._counted = self._body_bytes - self._counted, self._body_bytes
            self._context.arriving.add(grown)

    def _admit(self) -> None:
        """Checks whether the body may be sent, and how long it may be."""
        self._arriving_since = self._loop.time()
        url = self._url
        path, query = _target(url) if len(url) <= MAX_CACHED_BYTES else _long_target(url)
        request = Request(self._http.get_method().decode(), path, query, self._headers, b"")
        try:
            limit = self._app.admit(request)
        finally:
            self._refusal_headers = b"" if request.more is None else request.more.wire
        if isinstance(limit, int):
            self.state = ADMITTED
            self._max_body = limit
            if self._body_bytes > limit:
                raise too_large(limit)
        else:
            self.state = ASKING
            self._connection.pause_reading()
            self._context.start_task(self._await_admission(request.headers, limit))

    async def _await_admission(self, headers: dict[bytes, bytes], asking: Coroutine[Any, Any, int]) -> None:
        error = None
        try:
            limit = await asking
        except ORSError as refusal:
            error = refusal
        if self.state is not ASKING or self._headers is not headers:
            return  # the request was complete, or the client has left
        if error is not None:
            self.refuse(error)
        else:
            self.state = ADMITTED
            self._max_body = limit
            self._connection.resume_reading()

    def is_late(self, now: float, held: bool) -> bool:
        """Whether a body arrives too slowly. While the connection is `held`, it cannot arrive."""
        if self.state is ASKING or held:
            self._arriving_since = now
        return self.state is ADMITTED and now - self._arriving_since > seconds_for(self._body_bytes)

    def _upgrade(self, rest: bytes, upgrades: int) -> None:
        """Switches to a protocol that is served here, and ignores requests for others (RFC 9110, 7.8)."""
        method, version = self._http.get_method(), self._http.get_http_version().encode()
        upgrade = self._context.upgrades.get(self._headers.get(b"upgrade", b""))
        if upgrade is not None and (method, self._url) == (b"GET", upgrade.path):
            try:
                self._connection.switch_protocol(upgrade, self._headers, rest)
            except ORSError as error:
                self.refuse(error)
            return
        if method == b"CONNECT" or upgrades == MAX_UPGRADES:
            self.refuse(BadRequest("This server speaks HTTP/1.1 and is not a proxy"))
            return
        # The parser reads no body of such a request: it is parsed again, without the header.
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._header_bytes = 0
        state, self.state = self.state, IDLE
        if state is not BODY:
            self._end_body()
        self._http = httptools.HttpRequestParser(self)
        self.feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest, upgrades + 1)

    def refuse(self, error: ORSError) -> None:
        """Refuses the request that is arriving, and reads nothing after it."""
        if self.state is not ENDED:
            connection, headers = self._connection, self._refusal_headers
            self.stop()
            connection.refuse(error, headers)

    def stop(self) -> None:
        """Drops the request that is arriving, and all bytes after it."""
        if self.state is not ENDED:
            self._stop_counting()
            self.state = ENDED
            self._parts = []
            self._http = None
            del self._connection  # no cycle, so that both are freed at once

    # ── Called by httptools ─────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Begins a request, which may follow another one in the same read, if only with one byte."""
        if self.state is ENDED:
            raise BadRequest("Nothing is read after the last request")
        self.state = HEAD
        self._url = b""
        self._fields = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name, fields = name.lower(), self._fields
        if name in fields and name in SINGLE_HEADERS:
            raise doubled(name)
        fields[name] = value

    def on_headers_complete(self) -> None:
        """Ends the headers. Fields after them are trailers, which we do not use."""
        self.state = BODY
        self._headers = headers = self._fields
        length = headers.get(b"content-length")
        if length is None:
            self._fields = _Trailers()
        elif int(length) > self._max_body:
            raise too_large(self._max_body)
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            if self._http.get_http_version() == "1.0":
                return  # it does not know interim answers (RFC 9110, 10.1.1)
            self._admit()
            self._connection.send_continue()

    def on_body(self, body: bytes) -> None:
        if self._body_bytes:
            self._parts.append(body)
        else:
            self._body = body
        self._header_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body:
            raise too_large(self._max_body)

    def on_message_complete(self) -> None:
        http = self._http
        if http.should_upgrade():  # it is parsed again, without the header
            return
        url = self._url
        path, query = _target(url) if len(url) <= MAX_CACHED_BYTES else _long_target(url)
        method = http.get_method()
        body = self._body
        if self._parts:
            body = b"".join((body, *self._parts))
            self._parts = []
        request = Request(_METHODS.get(method) or method.decode(), path, query, self._headers, body)
        self._body = b""
        self._header_bytes = self._body_bytes = 0
        state, self.state = self.state, IDLE
        if state is not BODY:
            self._end_body()
        keep_alive = http.should_keep_alive()
        # Without a Connection header, keep-alive means HTTP/1.1; asking for the version takes 0.3 µs.
        modern = (keep_alive and b"connection" not in request.headers) or http.get_http_version() != "1.0"
        self._connection.received(request, modern, modern and keep_alive)

    def _end_body(self) -> None:
        self._stop_counting()
        self._connection.resume_reading()  # it may be complete before it is known who has sent it

    def _stop_counting(self) -> None:
        """Removes the body from the count: it is complete, or will never be."""
        self._context.arriving.bytes -= self._counted
        self._counted = 0
        self._refusal_headers = b""
        self._max_body = self._app.limits.body_bytes


class _Trailers(dict[bytes, bytes]):
    """Counts trailers, and keeps none of them."""

    _size = 0

    def __setitem__(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + len(": \r\n")
        if self._size > MAX_HEADER_BYTES:
            raise too_many_headers()


_METHODS = {b"GET": "GET", b"POST": "POST"}


@lru_cache(CACHED_TARGETS)
def _target(url: bytes) -> tuple[str, bytes]:
    path, _, query = url.partition(b"?")
    text = path.decode("ascii", "replace")
    if not text.startswith("/"):  # "http://host/path", as sent to a proxy
        text = "/" + text.partition("://")[2].partition("/")[2]
    return (unquote(text) if "%" in text else text), query


def _long_target(url: bytes) -> tuple[str, bytes]:
    if len(url) > MAX_TARGET_BYTES:
        raise too_long()
    return _target.__wrapped__(url)
