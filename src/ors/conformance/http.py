"""Strict HTTP/1.1 client and event-stream reader that keep every byte. They share no code with a server."""

import asyncio
import json
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ors.conformance.requirements import ServerUnreachable, Violation

_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)")
_BOM = b"\xef\xbb\xbf"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5]\d\d [^\r\n]*(\r\n|\Z)")
_MAX_HEAD = 64 * 1024


@dataclass
class Head:
    status: int
    headers: list[tuple[str, str]]
    raw: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(found) if found else None

    def seen_with(self, body: bytes) -> bytes:
        return self.raw.split(b"\r\n", 1)[0] + b"\r\n...\r\n\r\n" + body


@dataclass
class RawAnswer(Head):
    body: bytes = b""

    @property
    def seen(self) -> bytes:
        return self.seen_with(self.body)

    def json(self) -> Any:
        try:
            return json.loads(self.body.decode("utf-8"), parse_constant=_no_constant)
        except ValueError as error:
            raise Violation(f"the body is not JSON: {error}", self.seen) from None

    def json_or_none(self) -> Any:
        try:
            return self.json()
        except Violation:
            return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class RawConnection:
    """One connection: write a request, then read the answer piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = HttpResponseParser(self)
        self._received = bytearray()
        self._headers: list[tuple[str, str]] = []
        self._pieces = deque[bytes]()
        self._head_ended = self._ended = False
        self.arrivals = 0
        """Number of reads from the socket."""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Head:
        while not self._head_ended:
            if len(self._received) > _MAX_HEAD:
                raise Violation("the headers are too long", bytes(self._received[:100]))
            if not await self._more():
                raise Violation("the connection ended within the headers", bytes(self._received))
        raw = bytes(self._received.partition(b"\r\n\r\n")[0])
        if not _STATUS_LINE.match(raw):
            raise Violation("the status line is not HTTP/1.1", raw)
        return Head(self._parser.get_status_code(), self._headers, raw)

    async def body(self, head: Head, method: str) -> AsyncIterator[bytes]:
        if method == "HEAD":
            return
        framed = head.header("content-length") or head.header("transfer-encoding")
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self._ended:
                return
            if not await self._more():
                if framed:
                    raise Violation("the body broke off before its end", head.raw)
                return

    async def _more(self) -> bool:
        data = await self._reader.read(64 * 1024)
        self.arrivals += 1
        if not self._head_ended:
            self._received += data
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise Violation(f"the answer is not HTTP/1.1: {error}", bytes(self._received) + data) from None
        return bool(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._head_ended = self._parser.get_status_code() >= 200

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._ended = self._head_ended
        if not self._ended:  # 100 Continue, for example
            self._headers.clear()
            del self._received[: self._received.find(b"\r\n\r\n") + 4]

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # already closed


@dataclass
class Http:
    """Sends requests to one server, each over a new connection."""

    url: str
    patience: float = 10.0
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request, for example an API key."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a server's URL is like http://host:port, not {self.url!r}")
        self.host = parts.hostname
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RawConnection]:
        context = ssl.create_default_context() if self.secure else None
        try:
            async with asyncio.timeout(self.patience):
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise ServerUnreachable(f"{self.url} cannot be reached: {error or 'no answer'}") from None
        connection = RawConnection(reader, writer)
        try:
            yield connection
        finally:
            await connection.close()

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += ["Connection: close"]
        given = {**self.headers, **(headers or {})}
        if body is not None and "Content-Length" not in given:
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{key}: {value}" for key, value in given.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sid: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        sent = self.request(method, path, encoded(body), headed(body, sid, headers))
        try:
            async with asyncio.timeout(self.patience), self.connect() as connection:
                await connection.write(sent)
                head = await connection.head()
                answer = RawAnswer(head.status, head.headers, head.raw)
                async for piece in connection.body(head, method):
                    answer.body += piece
                return answer
        except TimeoutError:
            raise Violation(f"no complete answer to {method} {path} within {self.patience:g} s") from None
        except OSError as error:
            raise Violation(f"the connection broke during {method} {path}: {error}") from None


def encoded(body: Any) -> bytes | None:
    """Encodes a body: bytes are unchanged, anything else becomes JSON."""
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


def headed(body: Any, sid: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of a request: its session, and a JSON content type unless `headers` has one."""
    given = dict(headers or {})
    if body is not None:
        given.setdefault("Content-Type", "application/json")
    if sid is not None:
        given["X-Session-ID"] = sid
    return {key: value for key, value in given.items() if value}


@dataclass(frozen=True)
class RawEvent:
    name: str
    data: str
    raw: bytes
    end: int
    """Number of bytes of the body up to its end."""


@dataclass(frozen=True)
class RawEvents:
    events: list[RawEvent]
    comments: list[int]
    """The ends of comment lines."""
    unfinished: bytes
    """What follows the last event."""


def read_events(body: bytes) -> RawEvents:
    events, comments = list[RawEvent](), list[int]()
    begun, name, data = 0, "", list[str]()
    for line in _LINE.finditer(body, len(_BOM) if body.startswith(_BOM) else 0):
        key, _, value = line[1].partition(b":")
        if key == b"event":
            name = _text(value)
        elif key == b"data":
            data.append(_text(value))
        elif line[1].startswith(b":"):
            comments.append(line.end())
        elif not line[1]:
            raw = body[begun : line.end()].lstrip(b"\r\n")
            if data:
                events.append(RawEvent(name or "message", "\n".join(data), raw, line.end()))
            begun, name, data = line.end(), "", []
    return RawEvents(events, comments, body[begun:].strip(b"\r\n"))


def lines_of(raw: bytes) -> list[bytes]:
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _text(value: bytes) -> str:
    try:
        return value.removeprefix(b" ").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Violation(f"an event is not UTF-8: {error}", value) from None


@dataclass
class RawStream:
    """The answer to a call, as far as it has arrived."""

    head: Head
    started: float
    body: bytes = b""
    ended: tuple[float, int] = (0.0, 0)
    """When the whole answer had arrived, and after how many reads."""
    _arrivals: list[tuple[int, float, int]] = field(default_factory=list)
    """For each piece of the body its end, its time, and the number of reads from the socket so far."""

    def add(self, piece: bytes, now: float, reads: int) -> None:
        self.body += piece
        self._arrivals.append((len(self.body), now, reads))

    def arrival(self, end: int) -> tuple[float, int]:
        """When the body up to there had arrived, and after how many reads from the socket."""
        return next((at, reads) for length, at, reads in self._arrivals if length >= end)

    @property
    def parsed(self) -> RawEvents:
        return read_events(self.body)

    @property
    def events(self) -> list[RawEvent]:
        return self.parsed.events

    @property
    def seen(self) -> bytes:
        return self.head.seen_with(self.body)

    @property
    def task_id(self) -> str:
        for event in self.events:
            if event.name == "task_id":
                return event.data
        raise Violation("no task_id event", self.seen)

    @property
    def pieces(self) -> list[RawEvent]:
        return [event for event in self.events if event.name in ("chunk", "end")]

    def value(self) -> dict[str, Any]:
        if not any(event.name == "end" for event in self.events):
            raise Violation("the call did not finish with an end event", self.seen)
        try:
            value = json.loads("".join(event.data for event in self.pieces))
        except ValueError as error:
            raise Violation(f"the pieces do not make JSON: {error}", self.seen) from None
        if not isinstance(value, dict):
            raise Violation("the result is not an object", self.seen)
        return value

    def output(self) -> dict[str, Any]:
        value = self.value()
        if value.get("ok") is not True or not isinstance(value.get("output"), dict):
            raise Violation('no {"ok": true, "output": {...}}', self.seen)
        return dict(value["output"])

    def text(self) -> str:
        blocks = self.output().get("blocks")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise Violation("the output has no list of blocks", self.seen)
        return "".join(str(block["text"]) for block in blocks if "text" in block)

    def error(self) -> str:
        for event in self.events:
            if event.name == "error":
                return event.data
        raise Violation("no error event", self.seen)
