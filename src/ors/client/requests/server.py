"""A server as the client sees it: requests with retries, and what the server supports."""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary, WeakSet

from ors._json import dumps, loads
from ors._protocol import API_KEY, SERVER_VERSION, Endpoint
from ors._version import __version__
from ors.client.requests.decode import tools
from ors.client.requests.keepalive import KeepAlive
from ors.client.requests.retry import Retry, WaitingLine, failure, too_large
from ors.client.transports.base import Broken, Response, Transport, running_loop
from ors.client.transports.multiplexed import Answer, Link, MultiplexedTransport
from ors.client.transports.options import Options
from ors.errors import ORSError, ResponseError
from ors.providers.convert import convert_tool_response
from ors.types import ToolSpec

_REDIRECTS = frozenset({307, 308})
_MAX_REDIRECTS = 3
_quoted = lru_cache(256)(quote)
BASE_HEADERS = {
    "Accept": "application/json",
    # A proxy that compresses an event stream also delays it.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"ors-python/{__version__}",
}


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
        self._tools: dict[tuple[str, bool], tuple[Any, tuple[ToolSpec, ...]]] = {}
        self._lines = WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[str, WaitingLine]]()
        self._background: set[asyncio.Future[Any]] = set()
        self._last_loop: asyncio.AbstractEventLoop | None = None
        self.entered = WeakSet[Any]()
        """Sessions that end with the client at the latest, as Ctrl-C may come where nobody can catch it."""

    def headers(self, api_key: str | None = None, **more: str) -> dict[str, str]:
        """The headers of every request; `api_key` overrides the client's."""
        key = api_key or self.api_key
        return BASE_HEADERS | ({API_KEY: key} if key else {}) | more

    def link(self, headers: Mapping[str, str]) -> Link | None:
        """The link over which requests with these headers go, if there is one."""
        return None if self.links is None else self.links.link_up(headers, running_loop())

    def ask_by_link(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes = b"") -> Answer | None:
        """Sends a request now, if it goes over a link."""
        link = self.link(headers)
        return None if link is None else link.ask(endpoint.method, endpoint.path(), headers, body)

    def shared_tools(self, environment: str, answer: Any, *, terminal: bool) -> tuple[ToolSpec, ...]:
        """The tools of an answer: those of the last one of this environment, if they are the same."""
        kept = self._tools.get((environment, terminal))
        if kept is None or kept[0] != answer:
            found = tuple(convert_tool_response(tools(answer, terminal=terminal)))
            kept = self._tools[environment, terminal] = (answer, found)
        return kept[1]

    def path(self, endpoint: Endpoint, environment: str = "") -> str:
        return endpoint.path(_quoted(environment))

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request once; returns the response, of any status. Raises NotSent, Broken."""
        response = await self.transport.send(method, path, headers, body)
        if response.status in _REDIRECTS:
            response = await self._follow(response, method, headers, body)
        if not self.honours_keys:
            self.honours_keys = SERVER_VERSION in response.headers
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
        ahead: Answer | None = None,
    ) -> Any:
        """The parsed answer of `endpoint`; for requests that may be repeated, so they are retried.

        `ahead` is the answer to an attempt that was made before.

        Raises:
            TransportError: there was no answer in time. Unavailable: the server kept answering "not now".
            ResponseError: the server refused.
        """
        path = self.path(endpoint, environment)
        sent = headers or self.headers()
        data = dumps(body) if body is not None else None

        async def attempt() -> Any:
            nonlocal ahead
            asked, ahead = ahead, None
            if asked is not None:
                with suppress(ORSError):
                    return parsed(await self.complete(await asked.arrived()))
            return parsed(await self.exchange(endpoint.method, path, sent, data))

        return await self.retry(seconds).run(attempt)

    def retry(self, seconds: float | None = None) -> Retry:
        """The retries of one request that may be repeated."""
        options = self.options
        return Retry(options, limit=options.retries, seconds=seconds or options.request_seconds)

    async def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Sends a request once; returns the body of its answer.

        Raises:
            NotSent, Broken: there is none. Unavailable: it is "not now". ResponseError: the server refused.
        """
        return await self.complete(await self.send(method, path, headers, body))

    async def complete(self, response: Response) -> bytes:
        """Reads the body of an answer. Raises as `exchange`."""
        data = await read_body(response, self.options.answer_bytes)
        if not 200 <= response.status < 300:
            raise failure(response.status, response.headers, data)
        return data

    @property
    def lines(self) -> defaultdict[str, WaitingLine]:
        """Who waits for a place, by environment, since each may have a limit of its own."""
        return self._lines.setdefault(running_loop(), defaultdict(WaitingLine))

    def in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs `work` in a task that outlives its caller; closing the client waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self.wait_at_close(task)
        return task

    def wait_at_close(self, ending: asyncio.Future[Any]) -> None:
        """Makes closing the client wait for something, for a while."""
        loop = ending.get_loop()
        if loop is not self._last_loop:
            self._last_loop = loop
            # What is pending in a loop that has ended never ends.
            self._background -= {each for each in self._background if each.get_loop().is_closed()}
        self._background.add(ending)
        ending.add_done_callback(self._background.discard)

    def freed(self) -> None:
        """Tells those who wait for a place on a full server that there is one."""
        for line in self.lines.values():
            line.freed.set()

    async def background_done(self) -> None:
        """Ends the entered sessions, and waits for the background work of this event loop."""
        loop = running_loop()
        for session in tuple(self.entered):
            session._abandon()
        while pending := [each for each in self._background if each.get_loop() is loop]:
            _, late = await asyncio.wait(pending, timeout=self.options.cleanup_seconds + 1)
            for each in late:
                each.cancel()


def _own_path(location: str) -> str | None:
    """The path of a redirect; None if it leads to another server, or is not valid."""
    try:
        target = urlsplit(location)
    except ValueError:
        return None
    return None if target.netloc or not target.path.startswith("/") else target.geturl()


async def read_body(response: Response, limit: int) -> bytes:
    """Reads the body of `response`. Raises Broken, ResponseError."""
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


def parsed(data: bytes) -> Any:
    """The JSON value of an answer. Raises Broken."""
    try:
        return loads(data)
    except ValueError:
        what = "is not JSON" if data else "is empty"
        raise Broken(f"the server's answer {what}") from None
