"""A router alone: it holds no session, and can die at any time."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ors._protocol import CREATE_SESSION, HEALTH
from ors.cluster.routing.known_keys import KnownKeys
from ors.cluster.routing.peers import Peers
from ors.cluster.routing.router import Router
from ors.cluster.runner import ClusterRunner
from ors.errors import ORSError, Unavailable
from ors.limits import Limits
from ors.server import is_loopback
from ors.server.episodes.threads import Threads
from ors.server.http.answers import Answer, answer, failure, refusal
from ors.server.http.endpoints import new_session
from ors.server.http.origin_check import LOOPBACK, OriginCheck
from ors.server.http.requests import KEYLESS_BODY_BYTES, Request
from ors.server.http.routes import is_preflight, preflight
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.cluster")

FIRST_MEETING_SECONDS = 5.0
_PATHS = (CREATE_SESSION.path(), HEALTH.path())


class RouterApp:
    """Takes requests and forwards each to the server that it belongs to."""

    def __init__(self, limits: Limits, api_key: str = "", origin_check: OriginCheck | None = None) -> None:
        self.limits = limits
        self._origin_check = origin_check or OriginCheck()
        self.tasks: set[asyncio.Task[None]] = set()
        self.peers = Peers(api_key=api_key)
        self._guests = KnownKeys(self.peers, api_key, limits.body_bytes)
        self._router = Router(self.peers)
        self.threads = Threads()
        self.ending_seconds = limits.grace_seconds + 10

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        """How long the body may be of a request whose headers alone are there: servers know the keys.

        Raises:
            Forbidden: its host or origin is foreign.
        """
        self._origin_check.check(request)
        if is_preflight(request):
            return KEYLESS_BODY_BYTES
        return self.limits.body_bytes if self._guests.knows(request) else self._guests.ask(request)

    def take(self, request: Request) -> Outcome:
        """What becomes of a client's request. Never raises. Servers ask for the key themselves."""
        try:
            self._origin_check.check(request)
            return self._taken(request)
        except ORSError as error:
            return refusal(error)
        except Exception as error:
            return _failed(request, error)

    def _taken(self, request: Request) -> Outcome:
        if is_preflight(request):
            return preflight()
        path = request.path.rstrip("/")
        if (request.method, path) == (CREATE_SESSION.method, _PATHS[0]):
            return self._create_session(request)
        if request.method in ("GET", "HEAD") and path == _PATHS[1]:
            return answer({"status": "ok"})
        outcome = self._router.elsewhere(request)
        return refusal(_nobody()) if outcome is None else outcome

    def refused(self, error: ORSError) -> Answer:
        """What is answered to a request that is turned away."""
        return refusal(error)

    def start(self) -> None:
        """Nothing is to be begun: links are made when it is told of servers."""

    @property
    def empty(self) -> bool:
        """It never has a session."""
        return True

    def retire(self) -> None:
        """There is nothing to wait for."""

    def leave(self) -> None:
        """No server sends anything here."""

    async def drain(self) -> None:
        """Nothing runs here: clients come back for their calls through another router."""

    async def close(self) -> None:
        """Ends all links."""
        await self.peers.close()

    def _create_session(self, request: Request) -> Answer:
        # The id comes from here, its session from the server that it names: that one asks for the key.
        sid = self._router.new_session_id()
        return new_session(request, sid) if sid else refusal(_nobody())


class RouterServer(ClusterRunner):
    """Runs a router on a port, for the servers at some URLs.

    When it ends, streams that are still open after the grace period break: their clients come back
    through another router.
    """

    def __init__(
        self,
        urls: Sequence[str],
        host: str,
        port: int,
        limits: Limits,
        api_key: str = "",
        on_start: Callable[[str], None] | None = None,
        *,
        cors_origins: Sequence[str] = (),
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        # As a server does: on loopback and without a key, only a name of this machine's own is answered to.
        hosts = LOOPBACK | {host.lower()} if is_loopback(host) and not api_key else None
        self.front = RouterApp(limits, api_key, OriginCheck(hosts, cors_origins))
        self._urls = urls
        super().__init__(self.front, host, port, on_start, ssl_certfile, ssl_keyfile)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Meets the servers, then listens."""
        self.front.peers.meet(self._urls)
        await self.front.peers.settle(FIRST_MEETING_SECONDS)
        missing = self.front.peers.missing()
        if missing:
            log.warning("no answer yet from %s", ", ".join(missing))
        await super().startup(sockets)


def _failed(request: Request, error: Exception) -> Answer:
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return failure()


def _nobody() -> Unavailable:
    return Unavailable("No server takes new sessions now", retry_after=1, reason="worker_lost")
