"""A server that answers by script: bytes as written, cut where the script says."""

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """Bytes to send, a `drip` so many times, 50 ms apart, `then` after `hold` is set; and a cut, or not."""

    data: bytes
    cut: bool = False
    hold: asyncio.Event | None = None
    then: bytes = b""
    drip: tuple[bytes, int] = (b"", 0)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Reply(head(status, {"Content-Type": "application/json", **(headers or {})}, len(body)) + body)


def head(status: int, headers: Mapping[str, str], length: int | None = None) -> bytes:
    fields = dict(headers) if length is None else {**headers, "Content-Length": str(length)}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def events(*pairs: tuple[str, str]) -> bytes:
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in pairs).encode()


def stream(*pairs: tuple[str, str], ours: bool = False, **kwargs: Any) -> Reply:
    """A whole event stream."""
    body = events(*pairs)
    return Reply(head(200, stream_headers(ours), len(body)) + body, **kwargs)


def stream_headers(ours: bool = False) -> dict[str, str]:
    return {"Content-Type": "text/event-stream", **({"ORS-Version": "1"} if ours else {})}


def result(text: str = "done", **output: Any) -> str:
    blocks = [{"text": text, "type": "text"}]
    return json.dumps({"ok": True, "output": {"blocks": blocks, **output}})


@dataclass
class Scripted:
    """Answers each path with its replies in turn; the last one stays."""

    replies: dict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    connections: int = 0
    url: str = ""

    def on(self, path: str, *replies: Reply) -> None:
        self.replies[path] = list(replies)

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    async def until_asked(self, path: str, times: int = 1) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.asked(path)) >= times)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await read(reader)) is not None:
                self.requests.append(request)
                async with self.arrived:
                    self.arrived.notify_all()
                if not await self.reply(request, writer):
                    break
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async def reply(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        queue = self.replies[request.path]
        assert queue, f"nothing scripted for {request.path}"
        reply = queue.pop(0) if len(queue) > 1 else queue[0]
        writer.write(reply.data)
        await writer.drain()
        for _ in range(reply.drip[1]):
            await asyncio.sleep(0.05)  # a real duration: it drips
            writer.write(reply.drip[0])
        if reply.hold is not None:
            await reply.hold.wait()
        writer.write(reply.then)
        await writer.drain()
        return not reply.cut


async def read(reader: asyncio.StreamReader) -> Request | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def accepting(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serves every connection to a free port, which it yields."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports let go of their sockets in the next turn


@asynccontextmanager
async def scripted(
    ours: bool = False, tls: ssl.SSLContext | None = None, script: Scripted | None = None
) -> AsyncIterator[Scripted]:
    """A server on which a session can be opened; `ours` says that it honours idempotency keys."""
    script = script or Scripted()
    mark = {"ORS-Version": "1"} if ours else {}
    for path in ("/create_session", "/create", "/delete"):
        script.on(path, answer({"sid": "s1"}, headers=mark))
    script.on("/ping", answer({"status": "ok"}, headers=mark))
    async with accepting(script.serve, tls) as port:
        script.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield script
