"""A server as the client sees it: requests with retries, and what the server supports."""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary, WeakSet

from ors._json import dumps, loads
from ors._protocol import API_KEY, SERVER_VERSION, Endpoint
from ors._version import __version__
from ors.client.requests.keepalive import KeepAlive
from ors.client.requests.line import WaitingLine
from ors.client.requests.retry import Retry
from ors.client.requests.status_errors import failure, too_large
from ors.client.transports.base import Broken, Response, Transport, running_loop
from ors.client.transports.multiplexed import MultiplexedTransport
from ors.client.transports.options import Options
from ors.errors import ResponseError

_REDIRECTS = frozenset({307, 308})
_MAX_REDIRECTS = 3
_BASE_HEADERS = {
    "Accept": "application/json",
    # A proxy that compresses an event stream also delays it.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"ors-python/{__version__}",
}


class Entered(Protocol):
    """A session that was entered by `with`."""

    def _abandon(self) -> None:
        """Deletes it in the background."""


class RemoteServer:
    """One server. Every request to it goes through here."""

    def __init__(
        self, base_url: str, transport: Transport, options: Options, keepalive: KeepAlive, api_key: str | None
    ) -> None:
        self.transport = transport
        self.links = transport if isinstance(transport, MultiplexedTransport) else None
        self.options = options
        self.keepalive = keepalive
        self.api_key = api_key
        self.base_url = base_url
        self.honours_keys = False
        self.reads_secrets_in_body = True
        self.usual = defaultdict[str, set[Endpoint]](set)
        """By environment: what sessions ask before their first call."""
        self._lines = WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[str, WaitingLine]]()
        self._background: set[asyncio.Task[None]] = set()
        self.entered: WeakSet[Entered] = WeakSet()
        """Sessions that end with the client at the latest, as Ctrl-C may come where nobody can catch it."""

    def headers(self, api_key: str | None = None, **more: str) -> dict[str, str]:
        """The headers of every request; `api_key` overrides the client's."""
        key = api_key or self.api_key
        return _BASE_HEADERS | ({API_KEY: key} if key else {}) | more

    def is_linked(self, headers: Mapping[str, str]) -> bool:
        """Whether requests with these headers go over a link."""
        return self.links is not None and self.links.link_up(headers, running_loop()) is not None

    def path(self, endpoint: Endpoint, environment: str = "") -> str:
        return endpoint.path(quote(environment))

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request once; returns the response, of any status.

        Raises:
            NotSent, Broken: there is no response.
        """
        response = await self.transport.send(method, path, headers, body)
        if response.status in _REDIRECTS:
            response = await self._follow(response, method, headers, body)
        if SERVER_VERSION in response.headers:
            self.honours_keys = True
        return response

    async def _follow(
        self, response: Response, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        # A server with one environment redirects bare paths to it. Other hosts must not get keys and secrets.
        for _ in range(_MAX_REDIRECTS):
            target = _own_path(response.headers.get("Location", ""))
            if response.status not in _REDIRECTS or target is None:
                break
            response.close()
            response = await self.transport.send(method, target, headers, body)
        return response

    async def ask(
        self,
        endpoint: Endpoint,
        environment: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        ahead: "asyncio.Task[Reply | None] | None" = None,
    ) -> Any:
        """The parsed answer of `endpoint`; for requests that may be repeated, so they are retried.

        `ahead` is an attempt that was made before.

        Raises:
            TransportError: there was no answer in time. Unavailable: the server kept answering "not now".
            ResponseError: the server refused.
        """
        path = self.path(endpoint, environment)
        sent = headers or self.headers()
        data = dumps(body) if body is not None else None

        async def attempt() -> Any:
            nonlocal ahead
            made, ahead = ahead, None
            reply = None if made is None else await made
            return parsed(reply or await self.exchange(endpoint.method, path, sent, data))

        return await self.retry(seconds).run(attempt)

    def retry(self, seconds: float | None = None) -> Retry:
        """The retries of one request that may be repeated."""
        options = self.options
        return Retry(options, limit=options.retries, seconds=seconds or options.request_seconds)

    async def exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> "Reply":
        """Sends a request once; returns the complete answer.

        Raises:
            NotSent, Broken: there is none. Unavailable: it is "not now". ResponseError: the server refused.
        """
        response = await self.send(method, path, headers, body)
        answer = Reply(
            response.headers.get("Content-Type", ""), await read_body(response, self.options.answer_bytes)
        )
        if not 200 <= response.status < 300:
            raise failure(response.status, response.headers, answer.data)
        return answer

    @property
    def lines(self) -> defaultdict[str, WaitingLine]:
        """Who waits for a place, by environment, since each may have a limit of its own."""
        return self._lines.setdefault(running_loop(), defaultdict(WaitingLine))

    def in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs `work` in a task that outlives its caller; closing the client waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def background_done(self) -> None:
        """Ends the entered sessions, and waits for the background work of this event loop."""
        loop = running_loop()
        for session in tuple(self.entered):
            session._abandon()
        if tasks := [task for task in self._background if task.get_loop() is loop]:
            await asyncio.wait(tasks)


def _own_path(location: str) -> str | None:
    """The path of a redirect; None if it leads to another server, or is not valid."""
    try:
        target = urlsplit(location)
    except ValueError:
        return None
    return None if target.netloc or not target.path.startswith("/") else target.geturl()


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer with a 2xx status."""

    kind: str
    data: bytes


async def read_body(response: Response, limit: int) -> bytes:
    """Reads the body of `response`.

    Raises:
        Broken: it is incomplete. ResponseError: it has more than `limit` bytes.
    """
    chunks, size = [], 0
    try:
        async for chunk in response.body:
            size += len(chunk)
            if size > limit:
                raise ResponseError(too_large("answer", limit), status=response.status, reason="limit")
            chunks.append(chunk)
    except BaseException:
        response.close()
        raise
    return b"".join(chunks)


def parsed(answer: Reply) -> Any:
    """The JSON value of an answer.

    Raises:
        Broken: it is not JSON, as when it was cut off or comes from a proxy.
    """
    try:
        return loads(answer.data)
    except ValueError:
        what = "is not JSON" if answer.data else "is empty"
        raise Broken(f"the server's answer {what}") from None
