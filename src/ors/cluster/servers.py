"""Servers with peers, and routers, as processes."""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ors._protocol import API_KEY, CREATE_SESSION, HEALTH, LIST_ENVIRONMENTS
from ors.cluster.handover import MAX_CONNECTIONS, HandoverServer
from ors.cluster.link import Forwarded, LinkOwner, upgrade
from ors.cluster.pages import answer_of
from ors.cluster.peers import Peers
from ors.cluster.router import Router, creates, is_feed
from ors.errors import AuthenticationError, ORSError, Unavailable
from ors.limits import Limits
from ors.server import Server, is_loopback
from ors.server.app import App
from ors.server.connections.connection import Connection
from ors.server.connections.context import Responder
from ors.server.episodes.threads import Threads
from ors.server.http.answers import Answer, answer, refusal
from ors.server.http.endpoints import new_session
from ors.server.http.origin_check import LOOPBACK, OriginCheck, is_preflight, preflight
from ors.server.http.requests import KEYLESS_BODY_BYTES, Request
from ors.server.http.routing import LIVE
from ors.server.http.streams import Later, Outcome, Stream, failed
from ors.server.process.runner import Part, Runner
from ors.server.routes import AT_ROUTER, is_open, keyless_bytes
from ors.server.sessions.admission import digest
from ors.server.sessions.shared import Identity

log = logging.getLogger("ors.cluster")

MOVE_AFTER = 16
"""After this many requests in a row for another server of the machine, a connection moves there; after one
that begins a session there, at once.

Forwarding costs two wake-ups per call, moving costs one, once."""


class Streak(NamedTuple):
    server: LinkOwner
    length: int


class Forwarding(Part):
    """Moves clients to the servers that they ask, and waits for forwarded answers at the end."""

    def __init__(self, app: Responder) -> None:
        self._app = app
        self._runner: Runner | None = None
        self._successor: LinkOwner | None = None  # takes over all clients' connections, between requests

    async def start(self, runner: Runner) -> None:
        self._runner = runner
        runner.clients.context.after_answer = self._answered

    # ── Moving connections ───────────────────────────────────────────────────────────────────────

    def _answered(self, connection: Connection) -> None:
        stream, streak = connection.stream, connection.note
        connection.note = streak = self._streak(stream, streak) if isinstance(stream, Forwarded) else None
        if self._successor is not None or (streak is not None and streak.length >= MOVE_AFTER):
            asyncio.get_running_loop().call_soon(self._move, connection)  # when the answer is written

    def _streak(self, stream: Forwarded, before: Streak | None) -> Streak | None:
        server = stream.link.owner
        if server.handover is None:
            return None
        if creates(stream.request):  # the requests of its episode follow
            return Streak(server, MOVE_AFTER)
        return Streak(server, before.length + 1 if before and before.server is server else 1)

    def _move(self, connection: Connection) -> None:
        streak, spare = connection.note, connection.spare
        server = self._successor or (streak.server if streak is not None else None)
        if server is not None and spare is not None:
            connection.note = None
            if server.give(spare):
                connection.abort()  # in this process only

    def hand_over(self, successor: LinkOwner) -> None:
        """Hands clients' connections to another server: idle ones now, the others after their answers."""
        self._successor = successor
        spare = [(each, number) for each in self._clients() if (number := each.spare) is not None]
        for start in range(0, len(spare), MAX_CONNECTIONS):
            some = spare[start : start + MAX_CONNECTIONS]
            if not successor.give(*(number for _, number in some)):
                break  # its queue is full
            for connection, _ in some:
                connection.abort()  # in this process only

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting())

    def waiting(self, *, feeds: bool = False) -> list[Connection]:
        """Returns the connections whose answer comes from another server; with `feeds`, also endless ones."""
        return [each for each in self._clients() if self._is_forwarded(each.stream, feeds)]

    def _is_forwarded(self, stream: Stream | None, feeds: bool) -> bool:
        if isinstance(stream, Later):
            return stream.tasks is not self._app.tasks  # the router looks for its server
        # Whatever is outside the standard may be a feed, which does not end by itself.
        return isinstance(stream, Forwarded) and (feeds or not is_feed(stream.request))

    async def drain(self) -> None:
        if self._runner is not None:
            await self._runner.wait_until_none(self.waiting, self._app.limits.grace_seconds)

    def cut(self) -> None:
        """Breaks forwarded answers: their clients come back through another server."""
        for connection in self.waiting(feeds=True):
            connection.abort()

    def _clients(self) -> list[Connection]:
        return [] if self._runner is None else list(self._runner.clients)


class LinkedServer(Runner):
    """Runs a server that forwards requests to its peers, and answers those that they forward."""

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        *,
        identity: Identity | None = None,
        insecure: bool = False,
        link: socket.socket | None = None,
        parts: Sequence[Part] = (),
        **options: Any,  # as `Runner` takes them
    ) -> None:
        self.app: App = server._app
        if self.app.is_local:
            raise ValueError('return_errors="line" exposes source code and cannot be used with peers')
        server._guard(host, insecure)
        self.app.sessions.identity = identity or self.app.sessions.identity
        keys = list(self.app.keys.by_name.values())
        self.peers = Peers(self.app.environments, keys[0].secret if keys else "")
        self.app.peers = Router(self.peers, self.app)
        self.forwarding = Forwarding(self.app)
        parts = [self.app, _Links(self.peers, link), self.forwarding, *parts]
        super().__init__(self.app, host, port, parts=parts, **options)
        self.clients.context.upgrades.update([upgrade(self.app)])


class _Links(Part):
    """The links to and from the other servers, over a Unix socket if they are on this machine."""

    def __init__(self, peers: Peers, link: socket.socket | None) -> None:
        self._peers = peers
        self._link = link
        self._handover: HandoverServer | None = None

    async def start(self, runner: Runner) -> None:
        """Listens for the other servers, and for the clients that they hand over."""
        if self._link is not None:
            clients = runner.clients
            self._handover = HandoverServer(
                self._link.getsockname(), lambda client: clients.context.start_task(clients.serve(client))
            )
            await clients.listen(self._link)

    async def drain(self) -> None:
        """Takes over no more clients; requests for other servers are forwarded until the end."""
        if self._handover is not None:
            self._handover.close()

    async def stop(self) -> None:
        await self._peers.close()


FIRST_CONNECT_SECONDS = 5.0
MOST_KNOWN_KEYS = 1024


class RouterApp(Part):
    """Forwards each request to its server."""

    accepts_sessions, id_prefix = True, ""

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
        """Returns how long the body of a request may be, by its headers; servers know the keys."""
        self._origin_check.check(request)
        if is_preflight(request):
            return KEYLESS_BODY_BYTES
        if self._known_keys.knows(request):
            return self.limits.body_bytes
        return keyless_bytes(request.path) if is_open(request.path) else self._known_keys.ask(request)

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
        super().__init__(self.app, host, port, on_start, ssl_certfile, ssl_keyfile, parts=parts)


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
        """Asks a server about the key; returns how long the body may be."""
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
