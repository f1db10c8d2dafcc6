"""HTTP in, HTTP out: a plain ASGI application."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from ors import _protocol
from ors._json import dumps
from ors._protocol import Endpoint, Limits
from ors._sse import PING, encode
from ors._version import __version__
from ors.errors import MethodNotAllowed, NotFound, ORSError, Unavailable
from ors.server.calls import GONE, Call
from ors.server.episode import House
from ors.server.kept import Kept
from ors.server.offers import Offer
from ors.server.pulse import Pulse
from ors.server.requests import Message, Receive, Request
from ors.server.sessions import Session, Sessions
from ors.types import CreateSession, GetTask, GetTaskRange, ListTasks, NumTasks

log = logging.getLogger("ors.server")

Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Request, Send, Offer | None], Awaitable[None]]
Header = tuple[bytes, bytes]

REAP_SECONDS = 5.0
AT_ONCE_SECONDS = 0.002
"""A call that is done by then is answered in one write; otherwise its stream opens with the task id."""
ONE_WRITE_BYTES = 64 * 1024

_VERSION: Header = (_protocol.SERVER_VERSION.lower().encode(), __version__.encode())
_JSON_HEADERS: list[Header] = [_VERSION, (b"content-type", b"application/json")]
_STREAM_HEADERS: list[Header] = [
    _VERSION,
    (b"content-type", _protocol.EVENT_STREAM.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class App:
    """The server as an ASGI application. It needs no lifespan events, and uses them if they come."""

    def __init__(self, offers: dict[str, Offer], house: House) -> None:
        self._offers = offers
        self._limits: Limits = house.limits
        self._house = house
        self._kept = Kept(self._limits.kept_seconds, self._limits.kept_bytes)
        self.sessions = Sessions(self._limits, self._kept)
        self._pulse = Pulse(self._limits.ping_seconds)
        self._first = next(iter(offers.values()))
        self._routes = _routes(self._handlers(), offers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.draining = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        if self._loop is None:
            self._start()
        request = Request(scope, receive, self._limits.body_bytes)
        try:
            handler, offer = self._route(scope)
            await handler(request, send, offer)
        except ORSError as error:
            await self._refuse(send, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await _answer(send, 500, {"detail": self._house.wording.told("Internal Server Error", error)})

    # ── Life ─────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        # By a timer, not a task: under a server that sends no lifespan events nobody would end the task.
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(REAP_SECONDS, self._reap)

    def _reap(self) -> None:
        assert self._loop is not None
        self.sessions.reap(self._loop.time())
        self._loop.call_later(REAP_SECONDS, self._reap)

    async def drain(self) -> None:
        """Takes nothing new, lets running calls go on for the grace period, then ends their streams."""
        self.draining = True
        try:
            async with asyncio.timeout(self._limits.grace_seconds):
                await self.sessions.drain()
        except TimeoutError:
            self.sessions.stop_calls("Server is shutting down")

    async def close(self) -> None:
        """Ends every session."""
        self.draining = True
        await self.sessions.close(asyncio.get_running_loop().time(), "Server is shutting down")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ── Routing ──────────────────────────────────────────────────────────────────────────────────

    def _handlers(self) -> dict[Endpoint, Handler]:
        return {
            _protocol.HEALTH: self._fixed(b'{"status":"ok"}'),
            _protocol.VERSION: self._fixed(dumps({"version": __version__})),
            _protocol.LIST_ENVIRONMENTS: self._fixed(dumps(list(self._offers))),
            _protocol.CREATE_SESSION: self._create_session,
            _protocol.CREATE: self._create,
            _protocol.DELETE: self._delete,
            _protocol.DELETE_SESSION: self._delete_session,
            _protocol.PING: self._ping,
            _protocol.TOOLS: self._tools,
            _protocol.SPLITS: self._splits,
            _protocol.TASKS: self._tasks,
            _protocol.NUM_TASKS: self._num_tasks,
            _protocol.TASK: self._task,
            _protocol.TASK_RANGE: self._task_range,
            _protocol.TASK_TOOLS: self._task_tools,
            _protocol.PROMPT: self._prompt,
            _protocol.CALL: self._call,
        }

    def _route(self, scope: Message) -> tuple[Handler, Offer | None]:
        path, method = scope["path"], scope["method"]
        route = self._routes.get((method, path))
        if route is not None:
            return route
        first, _, rest = path.strip("/").partition("/")
        known = (
            f"/{first.lower()}/{rest}" if first.lower() in self._offers else f"/{first}/{rest}".rstrip("/")
        )
        if method == "HEAD":
            method = "GET"
        route = self._routes.get((method, known))
        if route is not None:
            return route
        allowed = [verb for verb, where in self._routes if where == known]
        if allowed:
            allow = ", ".join(sorted({*allowed, "HEAD"} if "GET" in allowed else allowed))
            raise MethodNotAllowed(f"{scope['method']} is not allowed here; use {allow}", allow=allow)
        raise self._elsewhere(scope, first.lower())

    def _elsewhere(self, scope: Message, first: str) -> ORSError:
        if first in self._offers or first in _ROOT_NAMES:
            return NotFound("There is nothing at this path")
        if len(self._offers) == 1 or scope["path"].strip("/") in _BARE_DISCOVERY:
            return _Redirect(self._first.name, scope)
        return NotFound(f"Unknown environment; the environments are: {', '.join(self._offers)}")

    # ── Discovery ────────────────────────────────────────────────────────────────────────────────

    def _fixed(self, body: bytes) -> Handler:
        async def answer(request: Request, send: Send, offer: Offer | None) -> None:
            self._touch(request)
            await _send(send, 200, body)

        return answer

    async def _tools(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        await _answer(send, 200, _named(offer).tools)

    async def _splits(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        await _answer(send, 200, _named(offer).splits)

    async def _tasks(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        query = await request.model(ListTasks)
        tasks = await _named(offer).tasks(query.split)
        await _answer(send, 200, {"tasks": tasks, "env_name": _named(offer).name})

    async def _num_tasks(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        query = await request.model(NumTasks)
        await _answer(send, 200, {"num_tasks": await _named(offer).num_tasks(query.split)})

    async def _task(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        query = await request.model(GetTask)
        task = await _named(offer).task(query.split, query.index)
        # ors-sdk 0.1.0 and the specification have no env_name here; openreward 0.1.167 fails without it.
        await _answer(send, 200, {"task": task, "env_name": _named(offer).name})

    async def _task_range(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._touch(request)
        query = await request.model(GetTaskRange)
        tasks = await _named(offer).task_range(query.split, query.start, query.stop)
        await _answer(send, 200, {"tasks": tasks, "env_name": _named(offer).name})

    # ── Sessions ─────────────────────────────────────────────────────────────────────────────────

    async def _create_session(self, request: Request, send: Send, offer: Offer | None) -> None:
        sid = _protocol.new_session_id()
        body = dumps({"sid": sid})
        if not request.wants_events():
            await _send(send, 200, body)
            return
        # ors-sdk 0.1.0 and openreward 0.1.167 understand only this form.
        events = _protocol.task_id_event(sid) + encode("end", body.decode())
        await _send(send, 200, events, _STREAM_HEADERS)

    async def _create(self, request: Request, send: Send, offer: Offer | None) -> None:
        sid = request.session_id()
        given = await request.model(CreateSession)
        secrets = {**(given.secrets or {}), **request.secrets()}
        offer = self._offer_named(given.env_name)
        if self.draining:
            raise Unavailable("Server is shutting down", retry_after=1)
        session = self.sessions.reserve(sid, offer.name, self._now())
        try:
            session.start(offer.episode(await self._task_of(offer, given), secrets))
        except BaseException:
            self.sessions.release(session)
            raise
        await _answer(send, 200, {"sid": sid})

    async def _task_of(self, offer: Offer, given: CreateSession) -> Any:
        if given.task_spec is not None:
            return given.task_spec
        return await offer.task(given.split or "", given.index or 0)  # the model has checked both

    def _offer_named(self, name: str | None) -> Offer:
        if name is None:
            return self._first
        offer = self._offers.get(name.lower())
        if offer is None:
            raise NotFound(f"Unknown environment; the environments are: {', '.join(self._offers)}")
        return offer

    async def _delete(self, request: Request, send: Send, offer: Offer | None) -> None:
        sid = request.session_id()
        await self.sessions.delete(sid, self._now())
        await _answer(send, 200, {"sid": sid})

    async def _delete_session(self, request: Request, send: Send, offer: Offer | None) -> None:
        # Deletes nothing: both clients in the field call it after every discovery call.
        sid = request.session_id()
        self._touch(request)
        await _answer(send, 200, {"sid": sid})

    async def _ping(self, request: Request, send: Send, offer: Offer | None) -> None:
        self._session(request).check()
        await _send(send, 200, b'{"status":"ok"}')

    # ── Episodes ─────────────────────────────────────────────────────────────────────────────────

    async def _prompt(self, request: Request, send: Send, offer: Offer | None) -> None:
        episode = await self._session(request).ready()
        await _answer(send, 200, await episode.prompt())

    async def _task_tools(self, request: Request, send: Send, offer: Offer | None) -> None:
        episode = await self._session(request).ready()
        await _answer(send, 200, {"tools": await episode.tools()})

    async def _call(self, request: Request, send: Send, offer: Offer | None) -> None:
        session = self._session(request)
        if offer is not None and offer.name != session.environment:
            raise NotFound(f"This session is of the environment {session.environment!r}")
        key = request.idempotency_key()
        name, given, task_id = await request.tool_call()
        if task_id is not None:
            found = session.calls.by_id(task_id)
            if found is None:
                await self._unknown(send, task_id, _protocol.error_event("unknown task_id"))
                return
        else:
            found = self._once(session, key, name, given)
            if found is None:
                await self._unknown(send, _protocol.new_task_id(), GONE)
                return
        await self._stream(send, found)

    def _once(self, session: Session, key: str | None, name: str, given: dict[str, Any]) -> Call | None:
        """The call of that key, or a new one; None if it has run and its result is gone."""
        if key is not None:
            if session.calls.spent(key):
                return None
            known = session.calls.by_key(key)
            if known is not None:
                return known
        if self.draining:
            raise Unavailable("Server is shutting down", retry_after=1)
        return session.calls.start(session.call, name, given, key)

    async def _unknown(self, send: Send, task_id: str, events: bytes) -> None:
        await _send(send, 200, _protocol.task_id_event(task_id) + events, _STREAM_HEADERS)

    async def _stream(self, send: Send, call: Call) -> None:
        if call.tail is None:
            await asyncio.sleep(0)  # one step: an async tool that waits for nothing is done after it
            if call.tail is None:
                await call.wait(AT_ONCE_SECONDS)
        if call.tail is not None and len(call.tail) <= ONE_WRITE_BYTES:
            await _send(send, 200, call.head + call.tail, _STREAM_HEADERS)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await send({"type": "http.response.body", "body": call.head, "more_body": True})
            while call.tail is None:
                if not await call.wait_or_beat(self._pulse):
                    await send({"type": "http.response.body", "body": PING, "more_body": True})
            await send({"type": "http.response.body", "body": call.tail})
        call.delivered = True

    # ── Small things ─────────────────────────────────────────────────────────────────────────────

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _session(self, request: Request) -> Session:
        return self.sessions.find(request.session_id(), self._now())

    def _touch(self, request: Request) -> None:
        self.sessions.touch(request.maybe_session_id(), self._now())

    async def _refuse(self, send: Send, error: ORSError) -> None:
        headers: list[Header] = []
        if isinstance(error, _Redirect):
            await _send(send, 308, b"", [_VERSION, (b"location", error.location)])
            return
        if isinstance(error, MethodNotAllowed):
            headers.append((b"allow", error.allow.encode()))
        if isinstance(error, Unavailable) and error.retry_after is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after))
        await _send(send, error.status, dumps({"detail": str(error)}), [*_JSON_HEADERS, *headers])


class _Redirect(ORSError):
    """The path means something below the first environment."""

    def __init__(self, environment: str, scope: Message) -> None:
        super().__init__("redirect")
        query = scope.get("query_string", b"")
        path = quote(f"/{environment}/{scope['path'].lstrip('/')}", safe="/:@!$&'()*+,;=~-._").encode()
        self.location = path + (b"?" + query if query else b"")


_ROOT_NAMES = {e.name for e in _protocol.ENDPOINTS if not e.per_environment} | {_protocol.OWN_PREFIX}
_BARE_DISCOVERY = {e.name for e in _protocol.ENDPOINTS if e.per_environment and not e.needs_session}


def _routes(
    handlers: dict[Endpoint, Handler], offers: dict[str, Offer]
) -> dict[tuple[str, str], tuple[Handler, Offer | None]]:
    routes: dict[tuple[str, str], tuple[Handler, Offer | None]] = {}
    for endpoint, handler in handlers.items():
        if not endpoint.per_environment:
            routes[endpoint.method, endpoint.path()] = (handler, None)
            continue
        for name, offer in offers.items():
            routes[endpoint.method, endpoint.path(name)] = (handler, offer)
        if endpoint.needs_session and len(offers) > 1:
            # openreward 0.1.167 without a variant: the session knows its environment.
            routes[endpoint.method, endpoint.path()] = (handler, None)
    return routes


def _named(offer: Offer | None) -> Offer:
    assert offer is not None  # discovery is routed by environment
    return offer


async def _answer(send: Send, status: int, value: Any) -> None:
    await _send(send, status, dumps(value))


async def _send(send: Send, status: int, body: bytes, headers: list[Header] = _JSON_HEADERS) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
