"""What the server does with a request, whoever read it from the wire."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Protocol

from ors import _protocol
from ors._json import dumps
from ors.errors import ORSError
from ors.limits import Limits
from ors.server.answers import Answer, refusal
from ors.server.endpoints import Endpoints
from ors.server.house import SHUTDOWN, House
from ors.server.inspector import FILES, HOME, Inspector
from ors.server.intake import STRANGERS_BODY_BYTES
from ors.server.journal import Journal
from ors.server.keys import Keys
from ors.server.live import Live
from ors.server.metrics import Metrics
from ors.server.observers import Closing, Rejected
from ors.server.offers import Offer
from ors.server.origin_check import LOOPBACK, Door
from ors.server.pages import HEALTH_PATHS, Pages
from ors.server.requests import Request
from ors.server.routes import Coming, Routes, is_preflight
from ors.server.sessions import Sessions
from ors.server.streams import CallStream, CallTimers, Later, Outcome
from ors.server.threads import NoThread, Threads

log = logging.getLogger("ors.server")

REAP_SECONDS = 5.0
BETWEEN_SECONDS = 0.01
LAST_WORDS_SECONDS = 5.0
"""For observers to pass on what they were told, such as the last spans."""

_REJECTIONS = {"limit", "shutdown", "key", "host", "origin"}
_OPEN_PATHS = {_protocol.HEALTH.path(), *HEALTH_PATHS, HOME, HOME.rstrip("/")}


class Peers(Protocol):
    """The other servers, as far as this one needs to know of them."""

    def elsewhere(self, request: Request) -> Outcome | None:
        """What gives the answer if another server has it; None if this one does."""

    def new_session_id(self) -> str:
        """An id that leads to the server that should have the next session."""


class App:
    """The server without a wire. `take` every request; the rest is life: drain, close."""

    def __init__(self, offers: dict[str, Offer], house: House, keys: Keys, origins: Sequence[str]) -> None:
        self.limits: Limits = house.limits
        self.house = house
        self.keys = keys
        self._keyed = bool(keys)
        self._origins = origins
        self.door = Door(None, origins)
        self._offers = offers
        self.sessions = Sessions(house, keys)
        self.sessions.admission.per_environment = {
            name: offer.limits.sessions_per_environment for name, offer in offers.items()
        }
        self.timers = CallTimers(self.limits.ping_seconds)
        self.tasks: set[asyncio.Task[None]] = set()
        """Those that work on answers."""
        self.metrics = Metrics(
            house, self.sessions, {name: offer.tool_names for name, offer in offers.items()}
        )
        house.observers.own += [self.metrics, Journal()]
        inspector = Inspector(Live(house, self.sessions, offers, keys), self.sessions, offers)
        self.pages = Pages(self.sessions, self.metrics, inspector, self._is_ready)
        endpoints = Endpoints(offers, house, keys, self.sessions, self.timers, self._new_session_id)
        self._routes = Routes(endpoints.handlers(), endpoints.bare, offers, self.pages.route)
        self.peers: Peers | None = None
        """The other servers, if this one forwards requests to them."""
        self._reaping: asyncio.TimerHandle | None = None

    def guard(self, host: str, *, loopback: bool) -> None:
        """On loopback and without keys, only a name of this machine's own is a host we answer to."""
        self.door = Door(LOOPBACK | {host.lower()} if loopback and not self.keys else None, self._origins)

    @property
    def environments(self) -> list[str]:
        """The names of what is served, the default first."""
        return list(self._offers)

    def admit(self, request: Request) -> int:
        """How long the body may be of a request whose headers alone are there.

        Raises:
            Forbidden: its host or origin is foreign.
            AuthenticationError: it needs a key, and has none.
        """
        self.door.check(request)
        if not self._keyed:
            return self.limits.body_bytes
        self._recognise(request)
        return self.limits.body_bytes if request.key else min(STRANGERS_BODY_BYTES, self.limits.body_bytes)

    def take(self, request: Request, *, forwarded: bool = False) -> Outcome:
        """What becomes of a request. Never raises.

        One that another server has `forwarded` goes no further. That server has looked at its host and
        origin; the key is looked at again, since this server decides whose a session is.
        """
        if self.house.loop is None:
            self.start()
        try:
            if not forwarded and (
                request.headers.get(b"host", b"") not in self.door.good or b"origin" in request.headers
            ):
                self.door.check(request)
            if self._keyed:
                self._recognise(request)
            if self.peers is not None and not forwarded:
                elsewhere = self.peers.elsewhere(request)
                if elsewhere is not None:
                    return elsewhere
            route = self._routes.exact.get((request.method, request.path)) or self._routes.find(request)
            outcome = route[0](request, route[1])
        except ORSError as error:
            return self.refused(error)
        except Exception as error:
            return self._failure(request, error)
        if type(outcome) is CallStream:  # as nearly always: the next check takes longer
            return outcome
        if isinstance(outcome, Coroutine):
            return Later(request, self._finish(request, outcome), self.tasks)
        return outcome

    async def _finish(self, request: Request, coming: Coming) -> Answer:
        try:
            return await coming
        except ORSError as error:
            return self.refused(error)
        except Exception as error:
            return self._failure(request, error)

    def _recognise(self, request: Request) -> None:
        if not is_preflight(request) and not _is_open(request.path):
            request.key = self.keys.name_of(request.api_key())

    def refused(self, error: ORSError) -> Answer:
        """What is answered to a request that is turned away, which is counted."""
        if error.reason in _REJECTIONS:
            self.house.observers.tell(Rejected(error.reason))
        return refusal(error)

    def _failure(self, request: Request, error: Exception) -> Answer:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return Answer(500, dumps({"detail": self.house.wording.told("Internal Server Error", error)}))

    def _new_session_id(self) -> str:
        return (self.peers or self.house.identity).new_session_id()

    # ── Life ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begins to reap, on the running loop."""
        # By a timer, not a task: under a server that sends no lifespan events nobody would end the task.
        self.house.loop = asyncio.get_running_loop()
        self.house.copies.begin(self.house.loop)
        self.metrics.lag.start(self.house.loop)
        self.timers.start(self.house.loop)
        self._later_reap()

    def _reap(self) -> None:
        assert self.house.loop is not None
        now = self.house.loop.time()
        self.sessions.reap(now)
        self._reap_results()
        self._later_reap()

    def _reap_results(self) -> None:
        assert self.house.loop is not None
        if self.house.kept.reap(self.house.loop.time()):  # others get their turn before the next of them
            self.house.loop.call_later(BETWEEN_SECONDS, self._reap_results)

    def _later_reap(self) -> None:
        assert self.house.loop is not None
        self._reaping = self.house.loop.call_later(REAP_SECONDS, self._reap)

    def _is_ready(self) -> bool:
        return self.house.taking and not self.sessions.admission.saturated

    @property
    def threads(self) -> Threads:
        """Where authors' code runs that is not async."""
        return self.house.threads

    @property
    def ending_seconds(self) -> float:
        """The longest that an end takes, if no code of an author's holds up the event loop."""
        teardown = max(offer.limits.teardown_seconds for offer in self._offers.values())
        # Calls that are stopped may clean up first; then there are last writes, last words, last tasks.
        return self.limits.grace_seconds + 2 * teardown + 15

    @property
    def empty(self) -> bool:
        """Whether it has no session."""
        return not len(self.sessions)

    def retire(self) -> None:
        """Takes no new sessions from now on."""
        self.house.retiring = True

    def leave(self) -> None:
        """Has had its last session: what other servers still send goes elsewhere."""
        self.house.leaving = True

    async def drain(self) -> None:
        """Takes nothing new, lets running calls go on for the grace period, then ends their streams."""
        self.house.draining = True
        self.sessions.turn_away(asyncio.get_running_loop().time(), SHUTDOWN)
        try:
            async with asyncio.timeout(self.limits.grace_seconds):
                await self.sessions.drain()
        except TimeoutError:
            self.sessions.stop_calls(SHUTDOWN, "shutdown")

    async def close(self) -> None:
        """Ends every session."""
        self.house.draining = True
        self.metrics.lag.stop()
        if self._reaping is not None:
            self._reaping.cancel()
        await self.sessions.close(asyncio.get_running_loop().time(), SHUTDOWN)
        last = [task for observer in self.house.observers.closing if (task := self._closing(observer))]
        if last:
            await asyncio.wait(last, timeout=LAST_WORDS_SECONDS)

    def _closing(self, observer: Closing) -> asyncio.Future[None] | None:
        try:
            return self.house.threads.run(observer.close)
        except NoThread as error:  # the others are still to be told
            log.error("%s was not told of the end: %s", type(observer).__name__, error)
            return None


def _is_open(path: str) -> bool:
    # The inspector's page holds nothing secret, and asks for the key.
    if path in _OPEN_PATHS or path.startswith(FILES):
        return True
    return path[-1:] == "/" and path.rstrip("/") in _OPEN_PATHS
