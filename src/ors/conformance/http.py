"""Strict HTTP/1.1 client and event-stream reader that keep every byte. They share no code with a server."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ors.conformance.requirements import ServerUnreachable, Violation

_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)")
_BOM = b"\xef\xbb\xbf"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5]\d\d [^\r\n]*(\r\n|\Z)")
_MAX_HEAD = 64 * 1024


@dataclass(frozen=True)
class RawEvent:
    name: str
    data: str
    raw: bytes
    end: int
    """Number of bytes of the body up to its end."""


def read_events(body: bytes) -> tuple[list[RawEvent], list[int], bytes]:
    """The events of a body, the ends of its comment lines, and what follows the last event."""
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
    return events, comments, body[begun:].strip(b"\r\n")


def _text(value: bytes) -> str:
    try:
        return value.removeprefix(b" ").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Violation(f"an event is not UTF-8: {error}", value) from None


class Answer:
    """An answer, as far as it has arrived."""

    def __init__(self, reader: asyncio.StreamReader, method: str, patience: float) -> None:
        self._reader = reader
        self._method = method
        self._patience = patience
        self._parser = HttpResponseParser(self)
        self._received = bytearray()
        self._head_ended = self._ended = False
        self._reads = 0
        self._arrivals: list[tuple[int, float, int]] = []
        """For each read from the socket the size of the body then, its time and its number."""
        self.started = asyncio.get_running_loop().time()
        self.ended = (0.0, 0)
        """When the whole answer had arrived, and after how many reads."""
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.raw = b""
        """Status line and headers."""
        self.body = b""

    # ── Reading ──

    async def head(self) -> None:
        while not self._head_ended:
            if len(self._received) > _MAX_HEAD:
                raise Violation("the headers are too long", bytes(self._received[:100]))
            if not await self._more():
                raise Violation("the connection ended within the headers", bytes(self._received))
        self.raw = bytes(self._received.partition(b"\r\n\r\n")[0])
        if not _STATUS_LINE.match(self.raw):
            raise Violation("the status line is not HTTP/1.1", self.raw)

    async def first(self) -> str:
        """Waits for the first event, which must have the task id."""
        async with asyncio.timeout(self._patience):
            while not self.events:
                if self._ended or not await self._more():
                    raise Violation("the stream ended before its first event", self.seen)
        event = self.events[0]
        if event.name != "task_id":
            raise Violation("the first event is not task_id", event.raw)
        return event.data

    async def rest(self) -> Self:
        if self._method != "HEAD":
            while not self._ended and await self._more():
                pass
            framed = self.header("content-length") or self.header("transfer-encoding")
            if framed and not self._ended:
                raise Violation("the body broke off before its end", self.raw)
        self.ended = asyncio.get_running_loop().time(), self._reads
        return self

    async def _more(self) -> bool:
        data = await self._reader.read(64 * 1024)
        if not self._head_ended:
            self._received += data
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise Violation(f"the answer is not HTTP/1.1: {error}", bytes(self._received) + data) from None
        self._reads += 1
        self._arrivals.append((len(self.body), asyncio.get_running_loop().time(), self._reads))
        return bool(data)

    # ── Callbacks of the parser ──

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head_ended = self.status >= 200

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self._ended = self._head_ended
        if not self._ended:  # 100 Continue, for example
            self.headers.clear()
            del self._received[: self._received.find(b"\r\n\r\n") + 4]

    # ── What has arrived ──

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(found) if found else None

    @property
    def seen(self) -> bytes:
        return self.raw.split(b"\r\n", 1)[0] + b"\r\n...\r\n\r\n" + self.body

    def fault_if(self, wrong: object, text: str) -> None:
        if wrong:
            raise Violation(text, self.seen)

    def arrival(self, end: int) -> tuple[float, int]:
        """When the body up to there had arrived, and after how many reads from the socket."""
        return next((at, reads) for length, at, reads in self._arrivals if length >= end)

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

    @property
    def events(self) -> list[RawEvent]:
        return read_events(self.body)[0]

    @property
    def pieces(self) -> list[RawEvent]:
        return [event for event in self.events if event.name in ("chunk", "end")]

    @property
    def task_id(self) -> str:
        return self._only("task_id")

    def error(self) -> str:
        return self._only("error")

    def _only(self, name: str) -> str:
        for event in self.events:
            if event.name == name:
                return event.data
        raise Violation(f"no {name} event", self.seen)

    @property
    def has_result(self) -> bool:
        return any(event.name == "end" for event in self.events)

    def value(self) -> dict[str, Any]:
        if not self.has_result:
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


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


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
    async def opened(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sid: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:
        """Sends a request and waits for the head of its answer; closes the connection after the block."""
        try:
            reader, writer = await self._connected()
            try:
                answer = Answer(reader, method, self.patience)
                async with asyncio.timeout(self.patience):
                    writer.write(self._request(method, path, body, sid, headers or {}))
                    await writer.drain()
                    await answer.head()
                yield answer
            finally:
                writer.close()
                with suppress(OSError):  # already closed
                    await writer.wait_closed()
        except TimeoutError:
            raise Violation(f"no complete answer to {method} {path} in time") from None
        except OSError as error:
            raise Violation(f"the connection broke during {method} {path}: {error}") from None

    async def ask(
        self, method: str, path: str, body: Any = None, *, takes: float = 0.0, **more: Any
    ) -> Answer:
        """The complete answer, which may take so many seconds longer than others."""
        async with self.opened(method, path, body, **more) as answer:
            async with asyncio.timeout(self.patience + takes):
                return await answer.rest()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self.secure else None
        try:
            async with asyncio.timeout(self.patience):
                return await asyncio.open_connection(self.host, self.port, ssl=context)
        except OSError as error:
            raise ServerUnreachable(f"{self.url} cannot be reached: {error or 'no answer'}") from None

    def _request(
        self, method: str, path: str, body: Any, sid: str | None, headers: Mapping[str, str]
    ) -> bytes:
        """Bytes of a request. A body of bytes is unchanged, anything else becomes JSON."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Host": f"{self.host}:{self.port}", "Connection": "close", **self.headers}
        if body is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        given |= {**headers, **({} if sid is None else {"X-Session-ID": sid})}
        lines = [f"{method} {self.prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + sent
