"""Requests that nobody should send, without end: bytes, headers, JSON, paths, framing."""

import json
import random
from collections.abc import Callable
from typing import Any

from ors._protocol import CALL, CREATE, ENDPOINTS

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "BREW", "get")
SEGMENTS = (
    *(endpoint.name for endpoint in ENDPOINTS), "rough", "census", "ROUGH", "-", "metrics", "sessions",
    "health", "live", "ready", "..", ".", "%2e%2e", "%00", "%ff", "%", "nowhere", "a" * 300, "", "*",
    "{}", "%C3%A9",
)  # fmt: skip
HEADERS = (
    "X-Session-ID", "Idempotency-Key", "X-Secrets", "X-API-Key", "Authorization", "Accept",
    "Content-Type", "Origin", "Host", "Expect", "Connection", "Upgrade", "Cookie", "Range",
    "traceparent", "X-More", "Accept-Encoding", "TE",
)  # fmt: skip
WORDS = (
    "train", "rough", "echo", "fail", "big", "hang", "", "null", "true", "-1", "NaN", "1e999", "\x00",
    "\ud800", "é" * 9, "http://[", "http://evil.example", "null://", "100-continue", "keep-alive",
    "close", "Upgrade", "h2c", "Bearer x", "text/event-stream", "e30=", "eyJhIjp7InZhbHVlIjoxfX0=",
    "bytes=0-", "gzip", "00-0-0-0", "%s%n", "9" * 30, "a" * 500,
)  # fmt: skip
FIELDS = (
    "env_name",
    "task_spec",
    "split",
    "index",
    "secrets",
    "name",
    "input",
    "task_id",
    "start",
    "stop",
    "call",
)
FRAMES = (
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"Content-Length: -1\r\n\r\n",
    b"Content-Length: 99999999999999999999\r\n\r\n",
    b"Content-Length: 1e3\r\n\r\n",
    b"Content-Length: 40000000\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nX-Trailer: z\r\n\r\n",
    b"Transfer-Encoding: identity\r\n\r\n",
    b"X-Folded: a\r\n b\r\n\r\n",
    b"X Space: a\r\n\r\n",
    b": empty\r\n\r\n",
    b"X-Nul: \0\r\n\r\n",
    b"X-Bare: a\nX-Other: b\n\n",
    b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
    b"X-Long: " + b"y" * 70_000 + b"\r\n\r\n",
    b"X-Many: z\r\n" * 500 + b"\r\n",
)


class Hostile:
    """One source of requests, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._broken: tuple[Callable[[], bytes], ...] = (
            self._mutated,
            self._mutated,
            self._framed,
            self._noise,
        )

    def broken(self) -> bytes:
        """Bytes that are hardly a request; a server may close the connection upon them."""
        return self._random.choice(self._broken)()

    def request(self) -> bytes:
        """A request that is whole, whatever it asks for."""
        pick = self._random.choice
        body = self._body()
        if self._random.random() < 0.6:  # deep enough to do harm
            endpoint = pick((*ENDPOINTS, CREATE, CALL, CALL))
            line = f"{endpoint.method} {endpoint.path('rough')}"
        else:
            line = f"{pick(METHODS[:6])} {self._path()}"
        lines = [f"{line} HTTP/1.1", "Host: 127.0.0.1"]
        if self._random.random() < 0.8:
            lines.append(f"X-Session-ID: fuzz-{self._random.randrange(300)}")
        for _ in range(self._random.randrange(3)):
            value = "".join(character for character in self._word() if character.isprintable())
            lines.append(f"{pick(HEADERS[:8])}: {value}")
        head = "\r\n".join(lines).encode("latin-1", "replace")
        return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def _path(self) -> str:
        if self._random.random() < 0.7:
            name = self._random.choice(ENDPOINTS).name
            return self._random.choice((f"/{name}", f"/rough/{name}", f"/rough/{name}?a=b&limit=%ff"))
        parts = "/".join(self._random.choices(SEGMENTS, k=self._random.randrange(5)))
        query = "".join(character for character in self._word()[:20] if "!" <= character <= "~")
        return f"/{parts}?{query}"

    def _body(self) -> bytes:
        chance = self._random.random()
        if chance < 0.2:
            return b""
        if chance < 0.3:
            return self._random.randbytes(self._random.randrange(80))
        if chance < 0.35:
            return b"[" * self._random.choice((10, 1000, 20_000))
        if chance < 0.6:
            value: Any = {"name": self._random.choice(("echo", "fail", "x")), "input": self._value(2)}
        elif chance < 0.8:
            value = {"env_name": self._random.choice(("rough", self._word())), "task_spec": self._value(2)}
        else:
            value = {field: self._value(2) for field in self._random.sample(FIELDS, 3)}
        return json.dumps(value, ensure_ascii=self._random.random() < 0.9).encode(errors="surrogatepass")

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(9 if depth else 6)
        if kind < 2:
            return self._word()
        if kind == 2:
            return self._random.choice((0, -1, 3, 2**31, 2**64, -(10**30), 0.5, 1e308))
        if kind < 6:
            return self._random.choice((None, True, False, {}, [], {"call": 1}))
        if kind < 8:
            return {self._random.choice(FIELDS): self._value(depth - 1) for _ in range(2)}
        return [self._value(depth - 1) for _ in range(3)]

    def _word(self) -> str:
        if self._random.random() < 0.7:
            return self._random.choice(WORDS)
        return "".join(map(chr, self._random.choices(range(1, 300), k=self._random.randrange(12))))

    def _mutated(self) -> bytes:
        data = bytearray(self.request())
        for _ in range(self._random.randrange(1, 6)):
            at = self._random.randrange(len(data))
            match self._random.randrange(3):
                case 0:
                    data[at] = self._random.randrange(256)
                case 1:
                    del data[at : at + self._random.randrange(1, 9)]
                case _:
                    data[at:at] = self._random.randbytes(self._random.randrange(1, 9))
            data = data or bytearray(b"x")
        return bytes(data)

    def _framed(self) -> bytes:
        version = self._random.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", ""))
        line = f"{self._random.choice(METHODS)} {self._path()} {version}"
        return line.encode("latin-1", "replace") + b"\r\nHost: 127.0.0.1\r\n" + self._random.choice(FRAMES)

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.randrange(1, 400))
