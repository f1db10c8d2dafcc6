"""What the server does with a request, whoever read it from the wire."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import quote

from ors import _protocol
from ors._json import dumps
from ors._protocol import Endpoint, Limits
from ors._sse import encode
from ors._version import __version__
from ors.errors import MethodNotAllowed, NotFound, ORSError, Unavailable
from ors.server.access import LOOPBACK, Door, Keys
from ors.server.answers import STREAM, Answer, Headers, Redirect, answer, refusal
from ors.server.calls import GONE, Call
from ors.server.feeds import Feed
from ors.server.house import House
from ors.server.inspector import FILES, HOME, Inspector
from ors.server.journal import Journal
from ors.server.live import Live
from ors.server.metrics import Metrics
from ors.server.observers import CallReplayed, CallStarted, Rejected
from ors.server.offers import Offer
from ors.server.pages import HEALTH_PATHS, Pages
from ors.server.pulse import Pulse
from ors.server.requests import Request
from ors.server.session import Session
from ors.server.sessions import Sessions
from ors.types import CreateSession, GetTask, GetTaskRange, ListTasks, ListToolsOutput, NumTasks

log = logging.getLogger("ors.server")

Later = Coroutine[Any, Any, Answer]
Outcome = Answer | Later | Call | Feed
Handler = Callable[[Request, Offer], Outcome]

REAP_SECONDS = 5.0
LAST_WORDS_SECONDS = 5.0
"""For observers to pass on what they were told, such as the last spans."""
AT_ONCE_SECONDS = 0.002
"""A call that is done by then is answered in one write; otherwise its stream opens with the task id."""

_OK = Answer(200, b'{"status":"ok"}')


class App:
    """The server without a wire. `take` every request; the rest is life: drain, close."""

    def __init__(self, offers: dict[str, Offer], house: House, keys: Keys, origins: Sequence[str]) -> None:
        self.limits: Limits = house.limits
        self.house = house
        self.keys = keys
        self._origins = origins
        self.door = Door(None, origins)
        self._offers = offers
        self.sessions = Sessions(house, keys)
        self.opening = Pulse(AT_ONCE_SECONDS)
        self.pings = Pulse(self.limits.ping_seconds)
        self._first = next(iter(offers.values()))
        self.metrics = Metrics(
            house, self.sessions, {name: offer.tool_names for name, offer in offers.items()}
        )
        house.observers.all[:0] = [self.metrics, Journal()]
        inspector = Inspector(Live(house, self.sessions, offers, keys), self.sessions, offers)
        self.pages = Pages(self.sessions, self.metrics, inspector, self._is_ready)
        self._routes = _routes(self._handlers(), self._bare, offers)
        self._task_ids = _protocol.task_ids()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.draining = False
        self._next_reap = 0.0
        self._reaping: asyncio.TimerHandle | None = None

    def guard(self, host: str, *, loopback: bool) -> None:
        """On loopback and without keys, only a name of this machine's own is a host we answer to."""
        self.door = Door(LOOPBACK | {host.lower()} if loopback and not self.keys else None, self._origins)

    @property
    def environments(self) -> list[str]:
        """The names of what is served, the default first."""
        return list(self._offers)

    def take(self, request: Request) -> Outcome:
        """The answer, or what will give it, or the call or feed whose stream it is. Never raises."""
        if self._loop is None:
            self.start()
        try:
            self.door.check(request)
            asked_before = request.method == "OPTIONS" and request.more is not None  # which carries no key
            if self.keys and not asked_before and not _is_open(request.path):
                request.key = self.keys.name_of(request)
            handler, offer = self._routes.get((request.method, request.path)) or self._route(request)
            return handler(request, offer)
        except ORSError as error:
            return self._refused(error)
        except Exception as error:
            return self._failure(request, error)

    async def finish(self, request: Request, later: Later) -> Answer:
        """Waits for an answer. Never raises."""
        try:
            return await later
        except ORSError as error:
            return self._refused(error)
        except Exception as error:
            return self._failure(request, error)

    def _refused(self, error: ORSError) -> Answer:
        if error.reason in _REJECTIONS:
            self.house.observers.tell(Rejected(error.reason))
        return refusal(error)

    def _failure(self, request: Request, error: Exception) -> Answer:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return Answer(500, dumps({"detail": self.house.wording.told("Internal Server Error", error)}))

    # ── Life ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begins to reap, on the running loop."""
        # By a timer, not a task: under a server that sends no lifespan events nobody would end the task.
        self._loop = asyncio.get_running_loop()
        self._later_reap()

    def _reap(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        self.metrics.lag = max(0.0, now - self._next_reap)
        self.sessions.reap(now)
        self._later_reap()

    def _later_reap(self) -> None:
        assert self._loop is not None
        self._next_reap = self._loop.time() + REAP_SECONDS
        self._reaping = self._loop.call_at(self._next_reap, self._reap)

    def _is_ready(self) -> bool:
        return not self.draining and not self.sessions.admission.saturated

    @property
    def ending_seconds(self) -> float:
        """The longest that an end takes, if no code of an author's holds up the event loop."""
        teardown = max(offer.limits.teardown_seconds for offer in self._offers.values())
        return self.limits.grace_seconds + 2 * teardown + 10  # calls that are stopped may clean up first

    async def drain(self) -> None:
        """Takes nothing new, lets running calls go on for the grace period, then ends their streams."""
        self.draining = True
        self.sessions.turn_away(asyncio.get_running_loop().time(), SHUTDOWN)
        try:
            async with asyncio.timeout(self.limits.grace_seconds):
                await self.sessions.drain()
        except TimeoutError:
            self.sessions.stop_calls(SHUTDOWN, "shutdown")

    async def close(self) -> None:
        """Ends every session."""
        self.draining = True
        if self._reaping is not None:
            self._reaping.cancel()
        await self.sessions.close(asyncio.get_running_loop().time(), SHUTDOWN)
        last = [self.house.threads.run(observer.close) for observer in self.house.observers.closing]
        if last:
            await asyncio.wait(last, timeout=LAST_WORDS_SECONDS)

    # ── Routing ──────────────────────────────────────────────────────────────────────────────────

    def _handlers(self) -> dict[Endpoint, Handler]:
        return {
            _protocol.HEALTH: self._fixed(_OK),
            _protocol.VERSION: self._fixed(answer({"version": __version__})),
            _protocol.LIST_ENVIRONMENTS: self._fixed(answer(self.environments)),
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

    def _route(self, request: Request) -> tuple[Handler, Offer]:
        """Finds a path that is written in another way than ours."""
        first, _, rest = request.path.strip("/").partition("/")
        environment = first.lower() if first.lower() in self._offers else first
        path = f"/{environment}/{rest}".rstrip("/")
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.get((method, path))
        if route is not None:
            return route
        if f"{path}/".startswith(_OWN):
            return self.pages.route(method, path), self._first
        allowed = {verb for verb, where in self._routes if where == path}
        if allowed and not (request.method == "OPTIONS" and request.more is not None):
            allow = ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))
            raise MethodNotAllowed(f"{request.method} is not allowed here; use {allow}", allow=allow)
        if request.method == "OPTIONS" and request.more is not None:
            return _preflight, self._first
        raise self._elsewhere(request, first.lower())

    def _elsewhere(self, request: Request, first: str) -> ORSError:
        if first in self._offers or first in _ROOT_NAMES:
            return NotFound("There is nothing at this path")
        if len(self._offers) == 1 or request.path.strip("/") in _BARE_DISCOVERY:
            return Redirect(_below(self._first.name, request))
        return (
            self._unknown_environment()
            if first
            else NotFound("There is nothing here; try /list_environments")
        )

    def _unknown_environment(self) -> NotFound:
        return NotFound(f"Unknown environment; the environments are: {', '.join(self._offers)}")

    # ── Discovery ────────────────────────────────────────────────────────────────────────────────

    def _fixed(self, fixed: Answer) -> Handler:
        def handler(request: Request, offer: Offer) -> Answer:
            self._touch(request)
            return fixed

        return handler

    def _tools(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        return _tools(offer.tools)

    def _splits(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        return answer(offer.splits)

    async def _tasks(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        tasks = await offer.tasks(request.model(ListTasks).split)
        return answer({"tasks": self._shown(request, offer, tasks), "env_name": offer.name})

    async def _num_tasks(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        return answer({"num_tasks": await offer.num_tasks(request.model(NumTasks).split)})

    async def _task(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        query = request.model(GetTask)
        task = await offer.task(query.split, query.index)
        # ors-sdk 0.1.0 and the specification have no env_name here; openreward 0.1.167 fails without it.
        return answer({"task": self._shown(request, offer, [task])[0], "env_name": offer.name})

    async def _task_range(self, request: Request, offer: Offer) -> Answer:
        self._touch(request)
        query = request.model(GetTaskRange)
        tasks = await offer.task_range(query.split, query.start, query.stop)
        return answer({"tasks": self._shown(request, offer, tasks), "env_name": offer.name})

    def _shown(self, request: Request, offer: Offer, tasks: Sequence[Any]) -> Sequence[Any]:
        return tasks if self.keys.sees_private(request.key) else offer.without_private(tasks)

    # ── Sessions ─────────────────────────────────────────────────────────────────────────────────

    def _create_session(self, request: Request, offer: Offer) -> Answer:
        sid = _protocol.new_session_id()
        body = dumps({"sid": sid})
        if not request.wants_events():
            return Answer(200, body)
        # ors-sdk 0.1.0 and openreward 0.1.167 understand only this form.
        return Answer(200, _protocol.task_id_event(sid) + encode("end", body.decode()), STREAM)

    def _create(self, request: Request, offer: Offer) -> Answer | Later:
        sid = request.new_session_id()
        given = request.model(CreateSession)
        secrets = {**(given.secrets or {}), **request.secrets()}
        offer = self._offer_named(given.env_name)
        self._check_open()
        if not self.sessions.admission.enter(offer.name, request.key):
            if not self.limits.queue:
                raise self.sessions.admission.full()
            return self._create_in_turn(request, sid, offer, given, secrets)
        return self._create_now(request, sid, offer, given, secrets)

    async def _create_in_turn(
        self, request: Request, sid: str, offer: Offer, given: CreateSession, secrets: dict[str, str]
    ) -> Answer:
        request.waiting = True
        await self.sessions.admission.wait(offer.name, request.key)
        request.waiting = False
        if self.draining:
            self.sessions.admission.leave(offer.name, request.key)
            self._check_open()
        created = self._create_now(request, sid, offer, given, secrets)
        return created if isinstance(created, Answer) else await created

    def _create_now(
        self, request: Request, sid: str, offer: Offer, given: CreateSession, secrets: dict[str, str]
    ) -> Answer | Later:
        try:
            session = self.sessions.reserve(sid, offer.name, self._now(), offer.limits, request.key)
        except ORSError:
            self.sessions.admission.leave(offer.name, request.key)
            raise
        if given.task_spec is None:
            return self._create_by_index(session, offer, given, secrets, request.trace())
        session.start(offer.episode(given.task_spec, secrets), request.trace())
        return answer({"sid": sid})

    async def _create_by_index(
        self, session: Session, offer: Offer, given: CreateSession, secrets: dict[str, str], trace: str
    ) -> Answer:
        try:
            task = await session.task(
                offer.task(given.split or "", given.index or 0)
            )  # the model has checked
            session.start(offer.episode(task, secrets), trace)
        except BaseException:
            self.sessions.release(session)
            self._check_open()
            raise
        return answer({"sid": session.sid})

    def _check_open(self) -> None:
        if self.draining:
            raise Unavailable(SHUTDOWN, retry_after=1, reason="shutdown")

    def _offer_named(self, name: str | None) -> Offer:
        if name is None:
            return self._first
        offer = self._offers.get(name.lower())
        if offer is None:
            raise self._unknown_environment()
        return offer

    def _delete(self, request: Request, offer: Offer) -> Answer | Later:
        sid = request.session_id()
        ending = self.sessions.delete(sid, self._now(), request.key)
        return answer({"sid": sid}) if ending is None else self._deleted(sid, ending)

    async def _deleted(self, sid: str, ending: asyncio.Task[None]) -> Answer:
        await asyncio.wait({ending})
        return answer({"sid": sid})

    def _delete_session(self, request: Request, offer: Offer) -> Answer:
        # Deletes nothing: both clients in the field call it after every discovery call.
        sid = request.session_id()
        self._touch(request)
        return answer({"sid": sid})

    def _ping(self, request: Request, offer: Offer) -> Answer:
        self._session(request).check()
        return _OK

    # ── Episodes ─────────────────────────────────────────────────────────────────────────────────

    async def _prompt(self, request: Request, offer: Offer) -> Answer:
        episode = await self._session(request).ready()
        return answer(await episode.prompt())

    async def _task_tools(self, request: Request, offer: Offer) -> Answer:
        episode = await self._session(request).ready()
        return _tools(await episode.tools())

    def _call(self, request: Request, offer: Offer) -> Answer | Call:
        session = self._session(request)
        if offer.name != session.environment:
            raise NotFound(f"This session is of the environment {session.environment!r}")
        key = request.idempotency_key()
        name, given, task_id = request.tool_call()
        if task_id is not None:
            known = session.calls.by_id(task_id)
            return _no_call(task_id, _UNKNOWN_TASK) if known is None else self._replay(session, known)
        if key is not None:
            if session.calls.spent(key):
                return _no_call(next(self._task_ids), GONE)
            known = session.calls.by_key(key)
            if known is not None:
                return self._replay(session, known)
        self._check_room(session)
        id = next(self._task_ids)
        call = session.calls.start(session.call, name, given, id, key, request.trace())
        if session.sid in self.house.observers.watched:
            self.house.observers.show(CallStarted(session.sid, name, id, given))
        return call

    def _replay(self, session: Session, call: Call) -> Call:
        self.house.observers.tell(CallReplayed(session.sid, session.environment, call.id))
        return call

    def _check_room(self, session: Session) -> None:
        self._check_open()
        limit = self.limits.calls
        if limit is not None and self.house.running >= limit:
            raise _too_many(f"The server runs {limit} calls, as many as it may")
        if session.calls.running > self.limits.queued_calls:
            raise _too_many(f"{self.limits.queued_calls} calls of this session wait for their turn already")

    # ── Small things ─────────────────────────────────────────────────────────────────────────────

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _session(self, request: Request) -> Session:
        assert self._loop is not None
        return self.sessions.find(request.session_id(), self._loop.time(), request.key)

    def _touch(self, request: Request) -> None:
        sid = request.maybe_session_id()
        if sid:
            self.sessions.touch(sid, self._now(), request.key)

    def _bare(self, handler: Handler) -> Handler:
        # openreward 0.1.167 without a variant: the session knows its environment.
        def served(request: Request, offer: Offer) -> Outcome:
            return handler(request, self._offers[self._session(request).environment])

        return served


SHUTDOWN = "Server is shutting down"
_UNKNOWN_TASK = _protocol.error_event(_protocol.UNKNOWN_TASK_ID)
_REJECTIONS = {"limit", "shutdown", "key", "host", "origin"}
_OWN = f"/{_protocol.OWN_PREFIX}/"
_OPEN_PATHS = {_protocol.HEALTH.path(), *HEALTH_PATHS, HOME, HOME.rstrip("/")}
_ROOT_NAMES = {e.name for e in _protocol.ENDPOINTS if not e.per_environment} | {_protocol.OWN_PREFIX}
_BARE_DISCOVERY = {e.name for e in _protocol.ENDPOINTS if e.per_environment and not e.needs_session}


def _is_open(path: str) -> bool:
    # The inspector's page holds nothing secret, and asks for the key.
    return path in _OPEN_PATHS or path.startswith(FILES)


def _tools(listed: ListToolsOutput) -> Answer:
    # The specification knows `tools` alone; the rest is there only for environments that have it.
    return answer({key: value for key, value in listed if value is not None})


def _too_many(message: str) -> Unavailable:
    return Unavailable(message, retry_after=1, status=429, reason="limit")


def _preflight(request: Request, offer: Offer) -> Answer:
    # What a browser asks before it lets a page of another origin call us.
    return Answer(
        204,
        b"",
        Headers(
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", b"*, authorization"),
            (b"access-control-max-age", b"600"),
        ),
    )


def _no_call(task_id: str, events: bytes) -> Answer:
    return Answer(200, encode("task_id", task_id) + events, STREAM)


def _below(environment: str, request: Request) -> bytes:
    path = quote(f"/{environment}/{request.path.lstrip('/')}", safe="/:@!$&'()*+,;=~-._").encode()
    return path + (b"?" + request.query if request.query else b"")


def _routes(
    handlers: dict[Endpoint, Handler], bare: Callable[[Handler], Handler], offers: dict[str, Offer]
) -> dict[tuple[str, str], tuple[Handler, Offer]]:
    first = next(iter(offers.values()))
    routes: dict[tuple[str, str], tuple[Handler, Offer]] = {}
    for endpoint, handler in handlers.items():
        if not endpoint.per_environment:
            routes[endpoint.method, endpoint.path()] = (handler, first)
            continue
        for name, offer in offers.items():
            routes[endpoint.method, endpoint.path(name)] = (handler, offer)
        if endpoint.needs_session and len(offers) > 1:
            routes[endpoint.method, endpoint.path()] = (bare(handler), first)
    return routes
