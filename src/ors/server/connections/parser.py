"""Reading one HTTP/1.1 connection: bytes in, requests out."""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import httptools

from ors.errors import BadRequest, ORSError
from ors.server.connections.context import (
    LAST_READ_SECONDS,
    REQUEST_SECONDS,
    ConnectionContext,
    Upgrade,
    seconds_for,
    too_slow,
)
from ors.server.http.answers import Answer
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

MAX_UPGRADES = 8
"""Pipelined requests that ask for another protocol; clients do so with one."""
CACHED_TARGETS = 1024
MAX_CACHED_BYTES = 256
"""Longest target whose path and query are cached: the same few come again and again."""
MAX_FEED_BYTES = MAX_HEADER_BYTES + 1
"""More is fed to the parser in pieces, so that headers over the limit are noticed."""
HEADER_PIECE, BODY_PIECE = 4 * 1024, 16 * 1024
"""Pieces are short: headers that share one with the end of another request are not counted."""


class RequestParser(asyncio.Protocol):
    """Reads requests with httptools, and refuses invalid ones."""

    # CPython reads attributes quickly only of classes with slots, or with at most 30 attributes.
    __slots__ = (
        "_app",
        "_arriving",
        "_arriving_since",
        "_asking",
        "_body",
        "_body_bytes",
        "_busy",
        "_context",
        "_counted",
        "_fields",
        "_header_bytes",
        "_headers",
        "_in_headers",
        "_loop",
        "_max_body",
        "_parser",
        "_parts",
        "_paused",
        "_progressed",
        "_reading",
        "_refusal_headers",
        "_since",
        "_transport",
        "_unread",
        "_upgrades",
        "_url",
        "_waiting",
    )  # fmt: skip

    def __init__(self, context: ConnectionContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._app = context.app
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._busy = False  # a request is being answered
        self._paused = False  # the client reads slower than we write
        self._asking = 0  # lookups of who sends a request; its body waits for them
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()  # pipelined, with their body bytes
        self._fields: dict[bytes, bytes] = {}  # headers, then trailers, as they arrive
        self._parser: Any = httptools.HttpRequestParser(self)
        self._reading = False  # a request has begun to arrive
        self._in_headers = False  # ... and its headers are not complete
        self._upgrades = 0  # requests for another protocol in the current read
        self._unread = 0  # bytes that the client had not read at the last sweep
        self._since = loop.time()  # of the last progress
        self._url = b""
        self._headers: dict[bytes, bytes] = {}  # once they are complete
        self._header_bytes = 0  # received since the request began, or since its body went on
        self._progressed = False  # whether body bytes came, or a request ended, in the current read
        self._body = b""
        self._parts: list[bytes] = []  # more of the body
        self._body_bytes = 0
        self._max_body = self._app.limits.body_bytes
        self._arriving = False  # the headers are complete, the body is not
        self._arriving_since = 0.0
        self._counted = 0  # bytes of the body that the context has counted
        self._refusal_headers = b""  # what a refusal of this request sends besides

    @abstractmethod
    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        """Answers a complete request; `modern` is HTTP/1.1."""

    @abstractmethod
    def _send_continue(self) -> None:
        """Tells a client that waits with its body to send it."""

    @abstractmethod
    def _answer_last(self, answer: Answer, more: bytes) -> None:
        """Answers with additional headers, and closes."""

    @abstractmethod
    def _switch_protocol(self, upgrade: Upgrade, rest: bytes) -> None:
        """Hands the connection to another protocol, with the bytes of it that have arrived."""

    def data_received(self, data: bytes) -> None:
        """Parses bytes that have arrived."""
        if self._parser is None:  # nothing is read after a refusal
            return
        if not self._in_headers and not self._unread:  # headers have one deadline, however slowly they drip
            self._since = self._loop.time()
        if not self._reading:
            self._reading = self._in_headers = True
        size = len(data)
        if self._header_bytes + size > MAX_FEED_BYTES:
            self._read_in_pieces(data)
            return
        self._progressed = False
        try:
            self._parser.feed_data(data)
            if self._reading and self._parser is not None:
                self._check_partial(size)
        except httptools.HttpParserUpgrade as upgrade:
            if self._parser is not None:
                self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            # Raised by one of our callbacks.
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ORSError) else BadRequest("Invalid HTTP request"))
        except httptools.HttpParserError:
            self._refuse(BadRequest("Invalid HTTP request"))
        except ORSError as error:
            self._refuse(error)

    def _read_in_pieces(self, data: bytes) -> None:
        # The parser buffers what is not complete: short pieces let us count it.
        at = 0
        while at < len(data) and self._parser is not None:
            in_headers = self._in_headers or not self._reading
            piece = HEADER_PIECE if in_headers else BODY_PIECE
            end = at + min(piece, MAX_FEED_BYTES - self._header_bytes)
            self.data_received(data[at:end])
            at = end

    def _check_partial(self, size: int) -> None:
        """Checks the limits of a request that is not complete, and who sends it.

        One that arrives in a single read is checked when it is taken.
        """
        if not self._progressed:
            # The parser buffers a header, or a trailer, until it is complete, and does not tell.
            self._header_bytes += size
            if len(self._url) > MAX_TARGET_BYTES:
                raise too_long()
            if self._header_bytes > MAX_HEADER_BYTES:
                raise too_many_headers()
        if not self._in_headers:
            if not self._arriving:
                self._admit()
            grown, self._counted = self._body_bytes - self._counted, self._body_bytes
            self._context.arriving.add(grown)

    def _admit(self) -> None:
        """Checks whether the body may be sent, and how long it may be."""
        self._arriving = True
        self._arriving_since = self._loop.time()
        url = self._url
        path, query = _target(url) if len(url) <= MAX_CACHED_BYTES else _long_target(url)
        request = Request(self._parser.get_method().decode(), path, query, self._headers, b"")
        try:
            limit = self._app.admit(request)
        finally:
            self._refusal_headers = b"" if request.more is None else request.more.wire
        if isinstance(limit, int):
            self._max_body = limit
            if self._body_bytes > limit:
                raise too_large(limit)
        else:
            self._asking += 1
            if self._transport is not None:
                self._transport.pause_reading()
            self._context.start_task(self._await_admission(request.headers, limit))

    async def _await_admission(self, headers: dict[bytes, bytes], asking: Coroutine[Any, Any, int]) -> None:
        try:
            limit = await asking
            if self._arriving and self._headers is headers:
                self._max_body = limit
        except ORSError as error:
            if self._arriving and self._headers is headers:
                self._refuse(error)
        finally:
            self._asking -= 1
            self._resume_reading()

    def _stop_counting(self) -> None:
        """Removes the body from the count: it is complete, or will never be."""
        self._context.arriving.remove(self._counted)
        self._counted = 0
        self._arriving = False
        self._refusal_headers = b""
        self._max_body = self._app.limits.body_bytes

    def _stop_reading(self) -> None:
        """Drops the request that is arriving, and all bytes after it."""
        self._parser = None
        self._stop_counting()
        self._reset()

    def _upgrade(self, rest: bytes) -> None:
        """Switches to a protocol that is served here, and ignores requests for others (RFC 9110, 7.8)."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        upgrade = self._context.upgrades.get(self._headers.get(b"upgrade", b""))
        if upgrade is not None and (method, self._url) == (b"GET", upgrade.path):
            self._switch_protocol(upgrade, rest)
            return
        if method == b"CONNECT" or self._upgrades == MAX_UPGRADES:
            self._refuse(BadRequest("This server speaks HTTP/1.1 and is not a proxy"))
            return
        # The parser reads no body of such a request: it is parsed again, without the header.
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._reset()
        self._parser = httptools.HttpRequestParser(self)
        self._upgrades += 1
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        self._upgrades -= 1

    # ── Called by the parser ────────────────────────────────────────────────────────────────────

    def on_url(self, url: bytes) -> None:
        """Adds a part of the request's target."""
        self._reading = self._in_headers = True
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name, fields = name.lower(), self._fields
        if name in fields and name in SINGLE_HEADERS:
            raise doubled(name)
        fields[name] = value

    def on_headers_complete(self) -> None:
        """Ends the headers. Fields after them are trailers, which we do not use."""
        self._in_headers = False
        self._headers = headers = self._fields
        length = headers.get(b"content-length")
        if length is None:
            self._fields = _Trailers()
        elif int(length) > self._max_body:
            raise too_large(self._max_body)
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            if self._parser.get_http_version() == "1.0":
                return  # it does not know interim answers (RFC 9110, 10.1.1)
            self._admit()
            self._send_continue()

    def on_body(self, body: bytes) -> None:
        if self._body_bytes:
            self._parts.append(body)
        else:
            self._body = body
        self._progressed = True
        self._header_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body:
            raise too_large(self._max_body)

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():  # it is parsed again, without the header
            return
        url = self._url
        path, query = _target(url) if len(url) <= MAX_CACHED_BYTES else _long_target(url)
        method = parser.get_method()
        body = self._body if not self._parts else b"".join((self._body, *self._parts))
        request = Request(_METHODS.get(method) or method.decode(), path, query, self._headers, body)
        if self._arriving:
            self._stop_counting()
        self._reset()
        keep_alive = parser.should_keep_alive()
        # Without a Connection header, keep-alive means HTTP/1.1; asking for the version takes 0.3 µs.
        modern = (keep_alive and b"connection" not in request.headers) or parser.get_http_version() != "1.0"
        self._received(request, modern, modern and keep_alive)

    def _reset(self) -> None:
        self._reading = False
        self._progressed = True
        self._url = self._body = b""
        self._header_bytes = self._body_bytes = 0
        self._fields = {}
        if self._parts:
            self._parts = []

    # ── Pipelined requests ───────────────────────────────────────────────────────────────────────

    def _queue(self, request: Request, modern: bool, keep_alive: bool) -> None:
        size = len(request.body)
        self._waiting.append((partial(self._answer_queued, request, modern, keep_alive), size))
        self._context.arriving.bytes += size
        if self._transport is not None:
            self._transport.pause_reading()

    def _take_waiting(self) -> None:
        """Answers the next queued request, if there is one and the client reads its answers."""
        if self._waiting and not self._busy and not self._paused and self._is_open:
            self._busy = True
            answer, size = self._waiting.popleft()
            self._context.arriving.remove(size)
            # Not called here, or a thousand pipelined requests would be a thousand frames deep.
            self._loop.call_soon(answer)
            self._resume_reading()

    def _answer_queued(self, request: Request, modern: bool, keep_alive: bool) -> None:
        self._busy = False
        self._received(request, modern, keep_alive)

    def _drop_waiting(self) -> None:
        self._context.arriving.remove(sum(size for _, size in self._waiting))
        self._waiting.clear()

    def _refuse(self, error: ORSError) -> None:
        """Answers a request that cannot be read, after all that came before it, and closes."""
        if self._parser is None or not self._is_open:
            return
        answer = partial(self._answer_last, self._app.refused(error), self._refusal_headers)
        self._stop_reading()
        if self._busy or self._waiting:
            self._waiting.append((answer, 0))
        else:
            answer()

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _holding(self) -> bool:
        """Whether this server does not read, for now."""
        return self._paused or bool(self._waiting or self._asking)

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._holding and not self._transport.is_closing():
            self._transport.resume_reading()

    # ── Deadlines ────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float) -> None:
        """Closes the connection if nothing has happened on it for too long."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if unread != self._unread:  # the client reads, however slowly
            self._unread, self._since = unread, now
        quiet = now - self._since
        if unread and quiet > REQUEST_SECONDS:
            self._transport.abort()
        elif self._arriving and self._is_late(now):
            self._refuse(too_slow())
        elif not self._busy and quiet > self._idle_limit:
            self._transport.close()

    def _is_late(self, now: float) -> bool:
        if self._holding:
            self._arriving_since = now
        return now - self._arriving_since > seconds_for(self._body_bytes)

    @property
    def _idle_limit(self) -> float:
        if self._parser is None:
            return LAST_READ_SECONDS
        return REQUEST_SECONDS if self._reading else self._context.idle_seconds


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
    """Splits a request's target into path and query."""
    path, _, query = url.partition(b"?")
    text = path.decode("ascii", "replace")
    if not text.startswith("/"):  # "http://host/path", as sent to a proxy
        text = "/" + text.partition("://")[2].partition("/")[2]
    return (unquote(text) if "%" in text else text), query


def _long_target(url: bytes) -> tuple[str, bytes]:
    if len(url) > MAX_TARGET_BYTES:
        raise too_long()
    return _target.__wrapped__(url)
