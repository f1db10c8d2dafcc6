"""Calls an ASGI application in this process, without sockets. Responses still stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ors.client.transports.base import HeaderFields, Incoming, Response
from ors.errors import StartupFailed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Any, Receive, Send], Awaitable[None]]
"""Any ASGI application, such as `Server([...]).app`."""


class ASGITransport:
    """Sends requests to an ASGI application in this process, and runs its lifespan."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lifespan: _Lifespan | None = None
        self._exchanges: set[asyncio.Task[None]] = set()

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request; returns when the status and headers of the response have arrived."""
        if self._lifespan is None:
            self._lifespan = _Lifespan(self._app)
        await self._lifespan.started()
        exchange = _Exchange(body or b"")
        task = asyncio.create_task(exchange.run(self._app, _scope(method, path, headers)))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)
        return await exchange.arrived()

    async def close(self) -> None:
        """Cancels open requests, then shuts the application down."""
        running = tuple(self._exchanges)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()


class _Exchange(Incoming):
    """One request and its response: the application's side."""

    def __init__(self, body: bytes) -> None:
        super().__init__(asyncio.get_running_loop())
        self._request: bytes | None = body
        self._gone = asyncio.Event()
        self.headers = HeaderFields()

    def close(self) -> None:
        self._gone.set()

    async def run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            # To the client, any exception is what it would be over HTTP: a broken connection.
            self.cause = error
        finally:
            if not (self._complete and self.begun.done()):
                self.lose(f"the application did not complete its answer: {self.cause!r}")

    async def _receive(self) -> Message:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            for name, value in message.get("headers", ()):
                self.headers[name.decode("latin-1")] = value.decode("latin-1")
            self.status = message["status"]
            self.begin()
        elif message["type"] == "http.response.body" and not self._gone.is_set():
            self.add(bytes(message.get("body", b"")), last=not message.get("more_body", False))


class _Lifespan:
    def __init__(self, app: ASGIApp) -> None:
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._started = asyncio.Event()
        self._task = asyncio.create_task(self._run(app))
        self._failed: str | None = None

    async def started(self) -> None:
        await self._started.wait()
        if self._failed is not None:
            raise StartupFailed(self._failed or "the application did not start")

    async def stop(self) -> None:
        self._inbox.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, app: ASGIApp) -> None:
        self._inbox.put_nowait({"type": "lifespan.startup"})
        try:
            await app(
                {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._inbox.get, self._note
            )
        finally:
            # An application without lifespan support returns or raises immediately.
            self._started.set()

    async def _note(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.failed":
            self._failed = str(message.get("message", ""))
        if message["type"].startswith("lifespan.startup"):
            self._started.set()


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(path)
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode("ascii"),
        "query_string": parts.query.encode("ascii"),
        "root_path": "",
        "headers": [(b"host", b"in-process"), *pairs],
        "client": ("127.0.0.1", 0),
        "server": ("in-process", 80),
    }
