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
from ors.server.connections.body_limits import seconds_for, too_slow
from ors.server.connections.listener import LAST_READ_SECONDS, REQUEST_SECONDS, Listener, Upgrade
from ors.server.http.answers import Answer
from ors.server.http.requests import (
    MAX_HEADER_BYTES,
    MAX_TARGET_BYTES,
    Request,
    too_large,
    too_long,
    too_many_headers,
    two_hosts,
)

MOST_WISHES = 8
"""Requests behind each other that ask for another protocol; clients do so with one."""
KNOWN_TARGETS = 1024
LONGEST_KNOWN = 256
"""Bytes of a target that is remembered once it is taken apart: the same few come again and again."""
MOST_AT_ONCE = MAX_HEADER_BYTES + 1
"""More is read in pieces, so that headers over the limit are noticed ..."""
HEADER_PIECE, BODY_PIECE = 4 * 1024, 16 * 1024
"""... which are not long: in that which ends one request, those of the next are not counted."""


class RequestParser(asyncio.Protocol):
    """Reads requests with httptools, and refuses what cannot be one."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._app = listener.app
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._busy = False  # a request is being answered
        self._paused = False  # the client reads slower than we write: nothing is read then
        self._waiting: deque[Callable[[], None]] = (
            deque()
        )  # answers to pipelined requests; nothing is read then
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
        self._most = self._app.limits.body_bytes  # that the body may have
        self._arriving = False  # the headers are through, the body is not
        self._begun = 0.0  # since when
        self._counted = 0  # bytes of it that the arriving knows of
        self._aside = b""  # headers that a refusal of it has besides
        self._ahead = 0  # bytes of bodies whose turn has not come

    @abstractmethod
    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        """A request is whole; `modern` is HTTP/1.1."""

    @abstractmethod
    def _go_on(self) -> None:
        """The client waits for a word before it sends the body."""

    @abstractmethod
    def _answer_last(self, answer: Answer, more: bytes) -> None:
        """Answers, and closes; `more` are headers that the answer has besides."""

    @abstractmethod
    def _change_to(self, upgrade: Upgrade, rest: bytes) -> None:
        """Speaks another protocol from here on; `rest` of it has come already."""

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._parser is None:  # nothing can be read behind what was refused
            return
        if not self._heading and not self._unread:  # headers have one deadline, however slowly they drip
            self._since = self._loop.time()
        if not self._reading:
            self._reading = self._heading = True
        size = len(data)
        if self._header_bytes + size > MOST_AT_ONCE:
            self._read_in_pieces(data)
            return
        self._moved = False
        try:
            self._parser.feed_data(data)
            if self._reading and self._parser is not None:
                self._wait_for_the_rest(size)
        except httptools.HttpParserUpgrade as upgrade:
            if self._parser is not None:
                self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            # One of our callbacks refused what it was told.
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ORSError) else BadRequest("Invalid HTTP request"))
        except httptools.HttpParserError:
            self._refuse(BadRequest("Invalid HTTP request"))
        except ORSError as error:
            self._refuse(error)

    def _read_in_pieces(self, data: bytes) -> None:
        # Small enough to be taken at once, so that whatever the parser gathers is counted.
        at = 0
        while at < len(data) and self._parser is not None:
            heading = self._heading or not self._reading
            end = at + min(HEADER_PIECE if heading else BODY_PIECE, MOST_AT_ONCE - self._header_bytes)
            self.data_received(data[at:end])
            at = end

    def _wait_for_the_rest(self, size: int) -> None:
        """Looks at a request of which more is to come: it is kept within bounds, and not for anybody.

        What comes whole at once is looked at once, when it is taken.
        """
        if not self._moved:
            # The parser gathers a header, or a trailer, until it is whole; we would not hear of it.
            self._header_bytes += size
            if len(self._url) > MAX_TARGET_BYTES:
                raise too_long()
            if self._header_bytes > MAX_HEADER_BYTES:
                raise too_many_headers()
        if not self._heading:
            if not self._arriving:
                self._admit()
            grown, self._counted = self._body_bytes - self._counted, self._body_bytes
            self._listener.arriving.add(grown)

    def _admit(self) -> None:
        """Lets the body come, if whoever sends it may ask."""
        self._arriving = True
        self._begun = self._loop.time()
        url = self._url
        path, query = _target(url) if len(url) <= LONGEST_KNOWN else _long_target(url)
        request = Request(self._parser.get_method().decode(), path, query, self._headers, b"")
        try:
            most = self._app.admit(request)
        finally:
            self._aside = b"" if request.more is None else request.more.wire
        if isinstance(most, int):
            self._most = most
            if self._body_bytes > most:
                raise too_large(most)
        else:
            self._listener.beside(self._admit_later(request.headers, most))

    async def _admit_later(self, headers: dict[bytes, bytes], asking: Coroutine[Any, Any, int]) -> None:
        transport = self._transport
        if transport is not None:
            transport.pause_reading()
        try:
            most = await asking
            if self._headers is headers:
                self._most = most
        except ORSError as error:
            if self._headers is headers and self._arriving:
                self._refuse(error)
        if transport is not None and not self._waiting and not self._paused and not transport.is_closing():
            transport.resume_reading()

    def _let_go(self) -> None:
        """Keeps nothing more of the body, which is whole, or will never be."""
        self._listener.arriving.remove(self._counted)
        self._counted = 0
        self._arriving = False
        self._aside = b""
        self._most = self._app.limits.body_bytes

    def _stop_reading(self) -> None:
        """Drops what has come of a request, and all that comes from now on."""
        self._parser = None
        self._let_go()
        self._forget()

    def _pass_over_upgrade(self, rest: bytes) -> None:
        # A server need not follow to HTTP/2 (RFC 9110, 7.8), but the parser reads no body after such a wish.
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        upgrade = self._listener.upgrades.get(self._headers.get(b"upgrade", b""))
        if upgrade is not None and (method, self._url) == (b"GET", upgrade.path):
            self._change_to(upgrade, rest)
            return
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
        self._reading = self._heading = True
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        name = name.lower()
        if name in self._lines and name == b"host":
            raise two_hosts()
        self._lines[name] = value

    def on_headers_complete(self) -> None:
        """All headers are there. What comes later are trailers: nothing of ours may stand there."""
        self._heading = False
        self._headers = headers = self._lines
        self._lines = {}
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._most:
            raise too_large(self._most)
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._admit()
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
        if self._body_bytes > self._most:
            raise too_large(self._most)

    def on_message_complete(self) -> None:
        """The request is whole."""
        parser = self._parser
        if parser.should_upgrade():  # it is read again, without that wish
            return
        url = self._url
        path, query = _target(url) if len(url) <= LONGEST_KNOWN else _long_target(url)
        method = parser.get_method()
        body = self._body if not self._parts else b"".join((self._body, *self._parts))
        request = Request(_METHODS.get(method) or method.decode(), path, query, self._headers, body)
        if self._arriving:
            self._let_go()
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

    # ── What has to wait, or to go ───────────────────────────────────────────────────────────────

    def _wait(self, request: Request, modern: bool, keep_alive: bool) -> None:
        self._waiting.append(partial(self._take_next, request, modern, keep_alive))
        self._ahead += len(request.body)
        self._listener.arriving.bytes += len(request.body)
        if self._transport is not None:
            self._transport.pause_reading()

    def _take_next(self, request: Request, modern: bool, keep_alive: bool) -> None:
        self._busy = False
        self._ahead -= len(request.body)
        self._listener.arriving.remove(len(request.body))
        self._received(request, modern, keep_alive)

    def _leave_line(self) -> None:
        self._waiting.clear()
        self._listener.arriving.remove(self._ahead)
        self._ahead = 0

    def _refuse(self, error: ORSError) -> None:
        """Answers what cannot be read on from, behind all that came before it, and closes."""
        if self._parser is None or self._transport is None or self._transport.is_closing():
            return
        answer = partial(self._answer_last, self._app.refused(error), self._aside)
        self._stop_reading()
        self._waiting.append(answer) if self._busy else answer()

    # ── What takes too long ──────────────────────────────────────────────────────────────────────

    def sweep(self, now: float) -> None:
        """Closes the connection if nothing has happened on it for too long."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if unread != self._unread:  # what was written is being read, however slowly
            self._unread, self._since = unread, now
        quiet = now - self._since
        if unread and quiet > REQUEST_SECONDS:
            self._transport.abort()
        elif self._arriving and self._is_late(now):
            self._refuse(too_slow())
        elif not self._busy and quiet > self._patience:
            self._transport.close()

    def _is_late(self, now: float) -> bool:
        if self._waiting or self._paused:  # it is we who do not read
            self._begun = now
        return now - self._begun > seconds_for(self._body_bytes)

    @property
    def _patience(self) -> float:
        if self._parser is None:
            return LAST_READ_SECONDS
        return REQUEST_SECONDS if self._reading else self._listener.patience


_METHODS = {b"GET": "GET", b"POST": "POST"}


@lru_cache(KNOWN_TARGETS)
def _target(url: bytes) -> tuple[str, bytes]:
    """The path and the query of a request's target."""
    path, _, query = url.partition(b"?")
    text = path.decode("ascii", "replace")
    if not text.startswith("/"):  # "http://host/path", as clients ask a proxy
        text = "/" + text.partition("://")[2].partition("/")[2]
    return (unquote(text) if "%" in text else text), query


def _long_target(url: bytes) -> tuple[str, bytes]:
    if len(url) > MAX_TARGET_BYTES:
        raise too_long()
    return _target.__wrapped__(url)
