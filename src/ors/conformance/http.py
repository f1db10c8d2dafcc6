"""Strict HTTP/1.1 client and event-stream reader that keep every byte. They share no code with a server."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ors.conformance.requirements import ServerUnreachable, Violation

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d) [^\r\n]*\Z")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*\Z")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?\Z")
_MAX_LINE = 64 * 1024


class Malformed(Violation):
    """The answer is not valid HTTP."""


@dataclass
class Head:
    status: int
    headers: list[tuple[str, str]]
    raw: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(found) if found else None


@dataclass
class RawAnswer(Head):
    body: bytes = b""

    @property
    def seen(self) -> bytes:
        return self.raw.split(b"\r\n", 1)[0] + b"\r\n...\r\n\r\n" + self.body

    def json(self) -> Any:
        try:
            return json.loads(self.body.decode("utf-8"), parse_constant=_no_constant)
        except ValueError as error:
            raise Violation(f"the body is not JSON: {error}", self.seen) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class RawConnection:
    """One connection: write a request, then read the answer piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self.arrivals = 0
        """Number of reads from the socket."""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Head:
        while True:
            raw = bytearray()
            line = await self._line(raw)
            match = _STATUS_LINE.match(line)
            if match is None:
                raise Malformed("the status line is not HTTP/1.1", bytes(raw))
            headers = await self._headers(raw)
            if not match[1].startswith(b"1"):
                return Head(int(match[1]), headers, bytes(raw))

    async def _headers(self, raw: bytearray) -> list[tuple[str, str]]:
        headers = []
        while line := await self._line(raw):
            match = _HEADER.match(line)
            if match is None:
                raise Malformed("a header line is not HTTP/1.1", line)
            headers.append((match[1].decode().lower(), match[2].decode("latin-1")))
        return headers

    async def body(self, head: Head, method: str) -> AsyncIterator[bytes]:
        length, coding = head.header("content-length"), head.header("transfer-encoding")
        if method == "HEAD" or head.status in (204, 304):
            return
        if length is not None and coding is not None:
            raise Malformed("both Content-Length and Transfer-Encoding", head.raw)
        if coding is not None:
            if coding.lower() != "chunked":
                raise Malformed(f"an unknown transfer coding {coding!r}", head.raw)
            async for piece in self._chunked():
                yield piece
        elif length is not None:
            if not re.fullmatch(r"\d+", length):
                raise Malformed("the Content-Length is not a number", head.raw)
            async for piece in self._counted(int(length)):
                yield piece
        else:
            while self._buffer or await self._more():
                piece = bytes(self._buffer)
                self._buffer.clear()
                yield piece

    async def _chunked(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._line(bytearray())
            match = _CHUNK_SIZE.match(line)
            if match is None:
                raise Malformed("a chunk's size is not hexadecimal", line)
            size = int(match[1], 16)
            if size == 0:
                await self._headers(bytearray())
                return
            async for piece in self._counted(size):
                yield piece
            if await self._line(bytearray()):
                raise Malformed("a chunk is longer than its size says", line)

    async def _counted(self, size: int) -> AsyncIterator[bytes]:
        while size:
            if not self._buffer and not await self._more():
                raise Malformed(f"the body broke off, {size} bytes before its end")
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            size -= len(piece)
            yield piece

    async def _line(self, raw: bytearray) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MAX_LINE:
                raise Malformed("a line is too long", bytes(self._buffer[:100]))
            if not await self._more():
                raise Malformed("the connection ended within a line", bytes(raw + self._buffer))
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        raw += line
        if not line.endswith(b"\r\n"):
            raise Malformed("a line does not end with CR LF", line)
        return line[:-2]

    async def _more(self) -> bool:
        data = await self._reader.read(64 * 1024)
        self._buffer += data
        self.arrivals += 1
        return bool(data)

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
    at: float
    """Time of its last byte, on the clock of the event loop."""


@dataclass
class EventReader:
    """Turns bytes into events, and records comments with their arrival time."""

    events: list[RawEvent] = field(default_factory=list)
    comments: list[tuple[float, bytes]] = field(default_factory=list)
    body: bytes = b""
    _line: bytearray = field(default_factory=bytearray)
    _block: bytearray = field(default_factory=bytearray)
    _after_cr: bool = False

    def feed(self, data: bytes, now: float) -> None:
        if not self.body and data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        self.body += data
        for byte in data:
            if byte == 0x0A and self._after_cr:
                self._block.append(byte)
                self._after_cr = False
                continue
            self._after_cr = byte == 0x0D
            self._block.append(byte)
            if byte in (0x0A, 0x0D):
                self._take(bytes(self._line), now)
                self._line.clear()
            else:
                self._line.append(byte)

    def _take(self, line: bytes, now: float) -> None:
        if line.startswith(b":"):
            self.comments.append((now, line))
        if line == b"":
            self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        raw = bytes(self._block).lstrip(b"\r\n")
        self._block.clear()
        name, data = "", []
        for line in lines_of(raw):
            key, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if key == b"event":
                name = _text(value, raw)
            elif key == b"data":
                data.append(_text(value, raw))
        if data:
            self.events.append(RawEvent(name or "message", "\n".join(data), raw, now))

    @property
    def unfinished(self) -> bytes:
        return bytes(self._block).strip(b"\r\n")


def lines_of(raw: bytes) -> list[bytes]:
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _text(value: bytes, raw: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Violation(f"an event is not UTF-8: {error}", raw) from None


@dataclass
class RawStream:
    head: Head
    events: list[RawEvent]
    comments: list[tuple[float, bytes]]
    body: bytes
    unfinished: bytes = b""
    started: float = 0.0
    ended: float = 0.0
    arrivals_after_last: int = 0
    """Number of reads between the last event and the end of the body."""

    @property
    def seen(self) -> bytes:
        return self.head.raw.split(b"\r\n", 1)[0] + b"\r\n...\r\n\r\n" + self.body

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
