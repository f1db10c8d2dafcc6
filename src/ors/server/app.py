"""The server application: takes requests, independent of how they were read."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ors._json import dumps
from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.errors import ORSError
from ors.limits import Limits
from ors.mcp import AT_ONCE_SECONDS, PROGRESS_SECONDS
from ors.server.admin.live_sessions import LiveSessions
from ors.server.admin.metrics import Metrics, MetricSource
from ors.server.admin.pages import Inspector, Pages, RecordedRuns
from ors.server.episodes.author_code import AuthorCode
from ors.server.episodes.environments import ProcessHooks, ServedEnvironment
from ors.server.episodes.threads import NoThread, Threads
from ors.server.http.answers import Answer, refusal
from ors.server.http.endpoints import Endpoints
from ors.server.http.mcp import MCP
from ors.server.http.origin_check import LOOPBACK, OriginCheck, is_preflight
from ors.server.http.programs import Programs
from ors.server.http.requests import SMALL_BODY, Request, is_light, parsed
from ors.server.http.routing import Owner, Route, Routes
from ors.server.http.streams import CallTimers, HeavyBodies, Later, Outcome, Stream
from ors.server.observe.events import Closing, EpisodeEnded, Rejected
from ors.server.observe.log import LOGGED, EventLog
from ors.server.observe.loop_watch import LoopWatch
from ors.server.process.runner import Part, Runner
from ors.server.routes import INSPECTOR, MCP_ROUTES, PAGES, PROGRAM_ROUTES, STANDARD, is_open, keyless_bytes
from ors.server.sessions.admission import Keys
from ors.server.sessions.kept_results import RecentCalls
from ors.server.sessions.registry import Sessions
from ors.server.sessions.shared import SHUTDOWN, Identity, Shared
from ors.types import JSONObject

log = logging.getLogger("ors.server")

REAP_SECONDS = 5.0
BETWEEN_SECONDS = 0.01
LEAVE_SECONDS = 2.0
"""How long a server that ends waits for its peers to close their links."""
OBSERVER_CLOSE_SECONDS = 5.0
"""Time for observers to send their last data, such as spans."""

_REJECTIONS = {"limit", "shutdown", "key", "host", "origin"}


class Forwarding(Protocol):
    """The peers, as far as this server needs to know them."""

    def elsewhere(self, request: Request) -> Outcome | None:
        """Returns the outcome from a peer; None if this server answers itself."""

    def new_session_id(self) -> str:
        """Returns an id for the server that should have the next session."""


class App(Part):
    """Takes requests, and starts, drains and stops the environments and sessions of a server."""

    inspecting = False
    """Whether the inspector is offered."""
    peers: Forwarding | None = None
    """The peers, if this server forwards requests to them."""
    leaving = False
    """Whether its last session has ended: its successor takes what comes now."""
    _runner: Runner | None = None
    _reaping: asyncio.TimerHandle | None = None

    def __init__(
        self,
        environments: dict[str, ServedEnvironment],
        code: AuthorCode,
        shared: Shared,
        keys: Keys,
        origins: Sequence[str],
        identity: Identity,
    ) -> None:
        self.limits: Limits = shared.limits
        self._code = code
        self.shared = shared
        self.keys = keys
        self._keyed = bool(keys)
        self._origins = origins
        self.origin_check = OriginCheck(None, origins, direct=self.is_local)
        self._environments = environments
        self._hooks = ProcessHooks(environments.values(), code)
        self.sessions = Sessions(shared, keys, identity)
        self.sessions.admission.per_environment = {
            name: environment.limits.sessions_per_environment for name, environment in environments.items()
        }
        self.timers = CallTimers(self.limits.ping_seconds)
        self._mcp_timers = CallTimers(min(PROGRESS_SECONDS, self.limits.ping_seconds), AT_ONCE_SECONDS)
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks that produce answers."""
        self._watch = LoopWatch(shared.observers.tell)
        self.metrics = Metrics(
            MetricSource(shared, self.sessions, code, list(environments), self._watch),
            {name: each.tool_names for name, each in environments.items()},
        )
        self._live = LiveSessions(self.sessions, environments, keys)
        self._subscribe()
        self.inspector = Inspector(self._live, self.sessions, environments, keys)
        self._further: list[tuple[Any, Sequence[Route[Any]]]] = []
        self._raw_bodies = {row.pattern for row in PROGRAM_ROUTES if row.has_raw_body}  # they are not JSON
        self._routes = self._all_routes()
        self._heavy_bodies = HeavyBodies(code.threads)

    def _subscribe(self) -> None:
        observers = self.shared.observers
        observers.subscribe(self.metrics.observe, self.metrics.events)
        observers.subscribe(EventLog(self._without_private).observe, LOGGED)
        observers.subscribe(self._live.ended.observe, [EpisodeEnded])

    def _all_routes(self) -> Routes:
        endpoints = Endpoints(self._environments, self.keys, self.sessions, self.timers, self._new_session_id)
        routes = Routes(self._environments, self._is_visit, endpoints.environment_of)
        routes.add(endpoints, STANDARD)
        mcp = MCP(self._environments, self.sessions, self._mcp_timers, self.tasks)
        routes.add(mcp, MCP_ROUTES)
        programs = Programs(self.sessions, self.limits.ping_seconds, self.tasks)
        routes.add(programs, PROGRAM_ROUTES)
        routes.add(Pages(self._environments, self.sessions, self.metrics, self._is_ready), PAGES)
        if self.inspecting:
            routes.add(self.inspector, INSPECTOR)
            routes.add(self.inspector.runs, self.inspector.run_routes())
        for owner, rows in self._further:
            routes.add(owner, rows)
        return routes

    def _is_visit(self, request: Request) -> bool:
        """Whether a browser opens the bare address. It is led to the inspector."""
        if request.path != "/" or request.method not in ("GET", "HEAD"):
            return False
        return self.inspecting and request.wants_page()

    def _without_private(self, environment: str, task: JSONObject) -> JSONObject:
        shown: JSONObject = self._environments[environment].without_private([task])[0]
        return shown

    def inspect(self, offered: bool) -> None:
        """Offers the inspector, and keeps for it what has happened; or neither."""
        self.inspecting = offered
        self.shared.recent = RecentCalls() if offered else None
        self._routes = self._all_routes()

    def show_runs(self, runs: RecordedRuns) -> None:
        self.inspector.runs = runs
        self._routes = self._all_routes()

    def extend(
        self, make: Callable[["App", dict[str, ServedEnvironment]], Owner], rows: Sequence[Route[Owner]]
    ) -> None:
        """Answers further paths, or paths of the standard in another way."""
        self._further.append((make(self, self._environments), rows))
        self._raw_bodies.update(row.pattern for row in rows if row.has_raw_body)
        self._routes = self._all_routes()

    def guard(self, host: str, *, loopback: bool) -> None:
        """Sets the Host check: on loopback and without keys, only names of this machine pass."""
        named = self.is_local or (loopback and not self.keys)
        hosts = LOOPBACK | {host.lower()} if named else None
        self.origin_check = OriginCheck(hosts, self._origins, direct=self.is_local)

    @property
    def is_local(self) -> bool:
        """Whether it answers only programs of this machine, since it shows its source."""
        return self._code.error_text.is_local

    @property
    def accepts_sessions(self) -> bool:
        return self.sessions.accepts_sessions

    @property
    def id_prefix(self) -> str:
        """How the ids of sessions here begin; empty if this server has peers."""
        return "" if self.peers is not None else self.sessions.identity.id_prefix

    @property
    def environments(self) -> list[str]:
        return list(self._environments)

    def admit(self, request: Request) -> int:
        """Returns the longest body that a request may have, from its headers.

        Raises:
            Forbidden: its host or origin is foreign.
            AuthenticationError: it needs a key, and has none.
        """
        self.origin_check.check(request)
        if not self._keyed:
            return self.limits.body_bytes
        self._recognise(request)
        most = self.limits.body_bytes
        return most if request.key else min(keyless_bytes(request.path), most)

    def take(self, request: Request, *, forwarded: bool = False) -> Outcome:
        """Returns the outcome of a request. Never raises.

        A request that a peer has `forwarded` is answered locally. The peer has checked its host and origin;
        the key is checked again, since this server knows which key owns a session.
        """
        if self.shared.loop is None:
            self.begin()
        try:
            if not forwarded and (
                request.headers.get(b"host", b"") not in self.origin_check.good
                or b"origin" in request.headers
            ):
                self.origin_check.check(request)
            if self._keyed:
                self._recognise(request)
            if self.peers is not None and not forwarded:
                elsewhere = self.peers.elsewhere(request)
                if elsewhere is not None:
                    return elsewhere
            handler = self._routes.exact.get((request.method, request.path)) or self._routes.find(request)
            if len(request.body) > SMALL_BODY and request.path not in self._raw_bodies:
                if not is_light(request.body):
                    coming = self._heavy_bodies.answered(request, lambda: handler(request))
                    return Later(request, coming, self.tasks, self._failed)
                request.parsed = parsed(request.body)
            outcome = handler(request)
        except Exception as error:
            return self._failed(request, error)
        if isinstance(outcome, (Answer, Stream)):  # asking for Coroutine takes ten times as long
            return outcome
        return Later(request, outcome, self.tasks, self._failed)

    def _recognise(self, request: Request) -> None:
        if not (is_preflight(request) or is_open(request.path) or self._is_visit(request)):
            request.key = self.keys.name_of(request.api_key())

    def refused(self, error: ORSError) -> Answer:
        if error.reason in _REJECTIONS:
            self.shared.observers.tell(Rejected(error.reason))
        return refusal(error)

    def _failed(self, request: Request, error: Exception) -> Answer:
        if isinstance(error, ORSError):
            return self.refused(error)
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return Answer(500, dumps({"detail": self._code.error_text.told("Internal Server Error", error)}))

    def _new_session_id(self) -> str:
        return (self.peers or self.sessions.identity).new_session_id()

    # ── Lifecycle ────────────────────────────────────────────────────────────────────────────────

    async def start(self, runner: Runner) -> None:
        """Starts the environments, then everything that needs the event loop."""
        self._runner = runner
        await self.prepare()
        self.begin()  # here, so that connections and their calls inherit its context

    async def prepare(self) -> None:
        """Runs the `startup` hooks, unless that has been done. Raises StartupFailed if one raised."""
        await self._hooks.start()

    def begin(self) -> None:
        """Starts on the running loop, with the timer that expires sessions, unless that has been done."""
        loop = asyncio.get_running_loop()
        if self._reaping is not None and self.shared.loop is loop:
            return
        self.shared.loop = self.threads.loop = loop
        SANDBOX_OBSERVER.set(self._code.sandboxes)  # for all that this context starts
        self.timers.start(loop)
        self._mcp_timers.start(loop)
        self._watch.start(loop)
        self._live.start(loop)
        # A timer, not a task: without lifespan events nothing would end a task.
        self._reaping = loop.call_later(REAP_SECONDS, self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reaping = loop.call_later(REAP_SECONDS, self._reap, loop)
        self.sessions.reap(loop.time())
        self._live.ended.settle()
        self._reap_results(loop)

    def _reap_results(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.shared.kept.reap(loop.time()):  # the loop runs others in between
            loop.call_later(BETWEEN_SECONDS, self._reap_results, loop)

    def _is_ready(self) -> bool:
        return self.sessions.accepts_sessions and not self.sessions.admission.saturated

    @property
    def threads(self) -> Threads:
        return self._code.threads

    @property
    def ending_seconds(self) -> float:
        """The longest that shutdown takes, if environment code does not block the event loop."""
        teardown = max(environment.limits.teardown_seconds for environment in self._environments.values())
        # Stopped calls may clean up first; then come shutdown hooks, last writes, observers and tasks.
        return self.limits.grace_seconds + 3 * teardown + 15

    @property
    def is_busy(self) -> bool:
        return bool(len(self.sessions))

    def retire(self, whether: bool = True) -> None:
        self.sessions.retiring = whether

    async def drain(self) -> None:
        """Takes no new work, lets calls run for the grace period, then stops them."""
        if self._runner is not None and not self.is_busy:
            await self._leave_peers(self._runner)
        self.sessions.refuse_new(asyncio.get_running_loop().time(), SHUTDOWN)
        try:
            async with asyncio.timeout(self.limits.grace_seconds):
                await self.sessions.drain()
        except TimeoutError:
            self.sessions.stop_calls(SHUTDOWN, "shutdown")

    async def _leave_peers(self, runner: Runner) -> None:
        """Closes the links of peers: answers what they have sent, and makes them send elsewhere."""
        self.leaving = True
        for link in runner.clients.links():
            link.goodbye()
        await runner.wait_until_none(runner.clients.links, LEAVE_SECONDS)

    async def stop(self) -> None:
        self._watch.stop()
        self._live.stop()
        if self._reaping is not None:
            self._reaping.cancel()
            self._reaping = None
        await self.sessions.close(asyncio.get_running_loop().time(), SHUTDOWN)
        await self._hooks.stop()
        last = [task for observer in self.shared.observers.closing if (task := self._closing(observer))]
        if last:
            await asyncio.wait(last, timeout=OBSERVER_CLOSE_SECONDS)

    def _closing(self, observer: Closing) -> asyncio.Future[None] | None:
        try:
            return self.threads.run(observer.close)
        except NoThread as error:  # the other observers are still closed
            log.error("%s was not closed: %s", type(observer).__name__, error)
            return None
