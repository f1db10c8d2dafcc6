"""Serves the inspector's page on this machine, and forwards everything else to a server."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from ors import __version__
from ors.client import Response, Transport
from ors.errors import Forbidden, ORSError, TransportError
from ors.inspector.runs_api import RunsApi
from ors.server.admin.pages import page_file, page_files
from ors.server.http.answers import Answer, Redirect, answer, refusal
from ors.server.http.origin_check import LOOPBACK, OriginCheck
from ors.server.http.requests import Request
from ors.server.http.routing import HOME, Coming, RouteTable
from ors.server.routes import ABOUT, PAGE_FILES

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BODY_BYTES = 64 * 2**20
TOKEN = b"ors-inspect-token"
"""Header with the token of the page."""
SENT = ("accept", "content-type", "idempotency-key", "x-api-key", "x-secrets", "x-session-id")
RECEIVED = ("allow", "content-type", "location", "ors-reason", "ors-version", "retry-after")
# A browser must not treat an answer of the remote server as one of our pages.
INERT = [
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
]


class InspectorProxy:
    """ASGI application: the inspector's page for a server, or for runs. The page shows `url`."""

    def __init__(self, url: str, behind: Transport | RunsApi, api_key: str | None = None) -> None:
        self._url = url
        self._behind = behind
        self._headers = {"accept-encoding": "identity", "user-agent": f"ors-inspect/{__version__}"}
        if api_key:
            self._headers["x-api-key"] = api_key
        # Requests are forwarded with our API key, so only our page may send them, and no other process of
        # this machine. The page gets the token from its address.
        self._origins = OriginCheck(LOOPBACK)
        self.token = secrets.token_urlsafe(32)
        """Sent by the page with every request."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            query = scope.get("query_string", b"")
            request = Request(scope["method"], scope["path"], query, dict(scope["headers"]), b"")
            await self._serve(request, scope["raw_path"].decode("ascii"), receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        if not isinstance(self._behind, RunsApi):
            await self._behind.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, request: Request, path: str, receive: Receive, send: Send) -> None:
        try:
            self._origins.check(request)
            if found := _TABLE.find(request.method, request.path):
                handler, named = found
                await _reply(send, await handler(self, *named.values(), request))
                return
            self._check_token(request)
            if isinstance(self._behind, RunsApi):
                await _reply(send, await self._behind.respond(request))
            else:
                await self._forward(self._behind, request, path, receive, send)
        except TransportError as error:
            detail = {"detail": f"{self._url or 'The server'} does not answer: {error}"}
            await _reply(send, Answer(502, json.dumps(detail).encode()))
        except ORSError as error:
            await _reply(send, refusal(error))

    def _check_token(self, request: Request) -> None:
        if not secrets.compare_digest(request.headers.get(TOKEN) or b"", self.token.encode()):
            command = "ors view" if isinstance(self._behind, RunsApi) else "ors inspect"
            raise Forbidden(f"The token is missing or wrong: open the address that `{command}` printed")

    async def home(self, request: Request) -> Answer:
        if request.path != HOME:
            raise Redirect(HOME.encode(), for_good=False)
        return page_file("index.html")

    async def file(self, name: str, request: Request) -> Answer:
        if name not in page_files():
            self._check_token(request)
        return page_file(name)

    async def about(self, request: Request) -> Answer:
        self._check_token(request)
        offered: dict[str, Any] = {"runs": True, "serves": False}
        if not isinstance(self._behind, RunsApi):
            response, offered = await self._behind.send("GET", ABOUT, self._sent(request), None), {}
            body = b"".join([part async for part in response.body])
            with suppress(ValueError, TypeError):  # another server, or another answer
                offered = dict(json.loads(body)) if response.status == 200 else {}
        return answer(
            {
                "version": __version__,
                "server": self._url or None,
                "live": offered.get("live") is True,
                "runs": offered.get("runs") is True,
                "serves": offered.get("serves") is not False,
            }
        )

    async def _forward(
        self, transport: Transport, request: Request, path: str, receive: Receive, send: Send
    ) -> None:
        target = path + (f"?{request.query.decode('latin-1')}" if request.query else "")
        body = await _body(receive)
        if body is None:
            return
        sent = body if request.method != "GET" else None
        response = await transport.send(request.method, target, self._sent(request), sent)
        left = asyncio.create_task(_gone(receive, response))
        try:
            headers = [*_received(response.headers), *INERT]
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for part in response.body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TransportError:
            return  # the page sees a broken stream, too
        finally:
            left.cancel()
            response.close()

    def _sent(self, request: Request) -> Mapping[str, str]:
        given = {
            name: value.decode("latin-1") for name in SENT if (value := request.headers.get(name.encode()))
        }
        return {**self._headers, **given}


async def _gone(receive: Receive, response: Response) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    response.close()


def _received(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    pairs = [(name, headers.get(name)) for name in RECEIVED]
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs if value]


async def _body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request" or len(body) > MOST_BODY_BYTES:
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _reply(send: Send, answered: Answer) -> None:
    length = (b"content-length", b"%d" % len(answered.body))
    # The files of the page have a policy of their own.
    inert = [] if any(name == INERT[0][0] for name, _ in answered.headers.pairs) else INERT
    headers = [*answered.headers.pairs, *inert, length]
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": answered.body})


_TABLE: RouteTable[Callable[..., Coming]] = RouteTable(
    [
        ("GET", "/", InspectorProxy.home),
        ("GET", HOME, InspectorProxy.home),
        ("GET", PAGE_FILES, InspectorProxy.file),
        ("GET", ABOUT, InspectorProxy.about),
    ]
)
