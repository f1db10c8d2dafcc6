"""A router as a process: it holds no session and can die at any time."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ors._protocol import API_KEY, CREATE_SESSION, HEALTH, LIST_ENVIRONMENTS
from ors.cluster.routing.pages import answer_of
from ors.cluster.routing.peers import Peers
from ors.cluster.routing.router import Router
from ors.cluster.servers.linked_server import Forwarding
from ors.errors import AuthenticationError, ORSError, Unavailable
from ors.limits import Limits
from ors.server import is_loopback
from ors.server.episodes.threads import Threads
from ors.server.http.answers import Answer, answer, refusal
from ors.server.http.endpoints import new_session
from ors.server.http.origin_check import LOOPBACK, OriginCheck, is_preflight, preflight
from ors.server.http.requests import KEYLESS_BODY_BYTES, Request
from ors.server.http.routing import LIVE
from ors.server.http.streams import Outcome, failed
from ors.server.process.runner import Part, Runner
from ors.server.routes import AT_ROUTER
from ors.server.sessions.api_keys import digest

log = logging.getLogger("ors.cluster")

FIRST_CONNECT_SECONDS = 5.0
MOST_KNOWN_KEYS = 1024


class RouterApp(Part):
    """Forwards each request to its server."""

    def __init__(
        self,
        limits: Limits,
        api_key: str = "",
        origin_check: OriginCheck | None = None,
        urls: Sequence[str] = (),
    ) -> None:
        self._urls = urls
        self.limits = limits
        self._origin_check = origin_check or OriginCheck()
        self.tasks: set[asyncio.Task[None]] = set()
        self.peers = Peers(api_key=api_key)
        self._known_keys = _KnownKeys(self.peers, api_key, limits.body_bytes)
        self._router = Router(self.peers)
        self._own: dict[str, Callable[[Request], Answer]] = {
            CREATE_SESSION.path(): self._create_session,
            HEALTH.path(): self._health,
            LIVE: self._health,
        }
        self.threads = Threads()
        self.ending_seconds = limits.grace_seconds + 10

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        """Returns how long the body of a request may be, by its headers; servers know the keys.

        Raises:
            Forbidden: its host or origin is not allowed.
        """
        self._origin_check.check(request)
        if is_preflight(request):
            return KEYLESS_BODY_BYTES
        return self.limits.body_bytes if self._known_keys.knows(request) else self._known_keys.ask(request)

    def take(self, request: Request) -> Outcome:
        """Answers a client's request. Never raises. The servers check the key."""
        headers = request.headers
        try:
            if headers.get(b"host", b"") not in self._origin_check.good or b"origin" in headers:
                self._origin_check.check(request)
                if is_preflight(request):
                    return preflight(request)
            own = self._own.get(f"/{request.path.strip('/')}")
            if own is not None and AT_ROUTER.find(request.method, request.path) is not None:
                return own(request)
            outcome = self._router.elsewhere(request)
        except Exception as error:
            return failed(request, error)
        return refusal(_no_server()) if outcome is None else outcome

    def refused(self, error: ORSError) -> Answer:
        return refusal(error)

    # ── As a part of its process ─────────────────────────────────────────────────────────────────

    async def start(self, runner: Runner) -> None:
        self.peers.update(self._urls)
        await self.peers.settle(FIRST_CONNECT_SECONDS)
        missing = self.peers.missing()
        if missing:
            log.warning("No answer yet from %s", ", ".join(missing))

    async def stop(self) -> None:
        await self.peers.close()

    def _health(self, request: Request) -> Answer:
        return answer({"status": "ok"})

    def _create_session(self, request: Request) -> Answer:
        # The router makes the id; the server that it names creates the session and checks the key.
        sid = self._router.new_session_id()
        return new_session(request, sid) if sid else refusal(_no_server())


class RouterServer(Runner):
    """Runs a router for the servers at some URLs.

    When it ends, streams that are open after the grace period break; their clients come back through
    another router.
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
        # Like a server: on loopback and without a key, only names of this machine are accepted as Host.
        hosts = LOOPBACK | {host.lower()} if is_loopback(host) and not api_key else None
        self.app = RouterApp(limits, api_key, OriginCheck(hosts, cors_origins), urls)
        parts = [self.app, Forwarding(self.app)]
        super().__init__(
            self.app,
            host,
            port,
            on_start,
            ssl_certfile,
            ssl_keyfile,
            parts=parts,
        )


class _KnownKeys:
    """Decides whose request bodies a router accepts.

    A router has no list of keys: it asks a server about each once, and remembers the accepted ones.
    """

    def __init__(self, peers: Peers, api_key: str, body_bytes: int) -> None:
        self._peers = peers
        self._keyed = bool(api_key)  # a router without a key has only servers that ask for none
        self._body_bytes = body_bytes
        self._known = {digest(api_key.encode())}

    def knows(self, request: Request) -> bool:
        return not self._keyed or digest(request.api_key()) in self._known

    async def ask(self, request: Request) -> int:
        """Asks a server about the key; returns how long the body may be.

        Raises:
            AuthenticationError: the key is wrong.
            Unavailable: no server could be asked.
        """
        peers = list(self._peers)
        if not peers:
            raise Unavailable("No server is up", retry_after=1, reason="worker_lost")
        question = Request(LIST_ENVIRONMENTS.method, LIST_ENVIRONMENTS.path(), b"", request.headers, b"")
        found = await answer_of(random.choice(peers), question)
        if found.status == AuthenticationError.status:
            raise AuthenticationError(f"The API key is missing or wrong; send it as {API_KEY}", reason="key")
        if found.status == 200 and len(self._known) < MOST_KNOWN_KEYS:
            self._known.add(digest(request.api_key()))
        return self._body_bytes


def _no_server() -> Unavailable:
    return Unavailable("No server accepts new sessions", retry_after=1, reason="worker_lost")
