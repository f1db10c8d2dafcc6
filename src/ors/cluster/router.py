"""Finds the server of a request: named by the session id, found by asking all, or chosen."""

import asyncio
import hashlib
import random
from collections import OrderedDict
from typing import Any

from ors import _protocol
from ors._protocol import PREFIX_CHARS
from ors.cluster.link import LOST, WORKER_LOST, Forwarded
from ors.cluster.pages import MergedPages
from ors.cluster.peers import Peer, Peers, prefix_route
from ors.errors import Gone, ORSError, Unavailable
from ors.server.app import App
from ors.server.http.answers import STREAM, Answer, refusal
from ors.server.http.endpoints import Endpoints
from ors.server.http.mcp import MCP, lost_call
from ors.server.http.requests import Request
from ors.server.http.routing import AtRouter, Route
from ors.server.http.streams import Later, Outcome
from ors.server.routes import AT_ROUTER
from ors.server.sessions.registry import Sessions

ARRIVAL_SECONDS = 2.0
"""How long requests wait for a server that is not known yet: it may have just started."""
ANSWER_SECONDS = 1.0
"""How long to wait for the answer whether a server has a session: it may be frozen."""
LIVES = 2
"""The presence of a session with the server that has it."""
UNEVEN = 1.5
"""A server may have this many times the sessions of an average peer and still get the next.

An average, because the last report of a single peer may have caught it between episodes: compared with
one, twice as many short episodes began on another server, and eight workers played 10% fewer."""
PROMISE_SECONDS = 1.0
MAX_LOCATIONS = 100_000
"""Sessions with ids from clients, whose servers are remembered here."""


class Router:
    """Forwards each request to its server. Without a local server, it forwards everything."""

    def __init__(self, peers: Peers, local: App | None = None) -> None:
        self._peers = peers
        self._local = local
        self._own = ""  # how ids of sessions here begin
        self._slot = self._incarnation = -1
        self._promised = _Promised()
        self._tasks: set[asyncio.Task[None]] = set()
        # By session id that a client made: the prefix of its server.
        self._locations: OrderedDict[str, str] = OrderedDict()
        if local is not None:
            me = local.sessions.identity
            self._slot, self._incarnation = me.slot, me.incarnation
            self._own = me.id_prefix
            peers.record(me.slot, me.incarnation)
        peers.reroute = self._reroute
        peers.answer_instead = self._instead
        self._merged = MergedPages(peers, local, self._tasks)

    def elsewhere(self, request: Request) -> Outcome | None:
        """Forwards a request; None if this server is to answer it."""
        sid = request.maybe_session_id()
        if not sid:
            route, named = AT_ROUTER.find(request.method, request.path) or (None, {})
            sid = named.get("sid", "")
            if not sid:
                return self._without_session(route, request)
        if self._local is not None and sid in self._local.sessions:
            return None
        location = self._locations.get(sid)
        peer = self._peers.by_prefix.get(location or sid[:PREFIX_CHARS])
        if peer is not None and peer.link is not None:
            if location is None or not creates(request):
                return Forwarded(peer.link, request)
        elif sid[:PREFIX_CHARS] == self._own:
            return self._of_own(request, sid)
        return Later(request, self._find(request, sid), self._tasks)

    def _of_own(self, request: Request, sid: str) -> Outcome | None:
        assert self._local is not None
        successor = self._successor(self._slot) if self._local.leaving else None
        if successor is None or successor.link is None or self._presence_here(sid):
            return None
        # The session was created when the other servers knew already that this one is about to end.
        return Forwarded(successor.link, request)

    def _reroute(self, request: Request) -> Outcome:
        outcome = self.elsewhere(request)
        return self._answer_here(request) if outcome is None else outcome

    def _instead(self, request: Request, sent: bool) -> Outcome:
        """Answers a request that its server has not answered, since the link to it broke."""
        route = _route_of(request)
        if route is not None and route.handler is Endpoints.call and sent:
            # The call may have run: after an error status, clients of other packages would send it again.
            first = _protocol.task_id_event(next(_protocol.task_ids()))
            return Answer(200, first + _protocol.error_event(LOST, WORKER_LOST), STREAM)
        if route is not None and route.handler is MCP.message and sent:
            return Answer(200, lost_call(request, LOST))
        if self._local is not None and not _needs_session(request):
            return self._local.take(request, forwarded=True)
        if creates(request) or isinstance(request, _Retried):
            return _lost(request)
        # Perhaps only the link is broken: the session is looked for once more.
        return self._reroute(
            _Retried(request.method, request.path, request.query, request.headers, request.body)
        )

    def new_session_id(self) -> str:
        """Returns an id for a new session: on this server if loads are even, else on the emptier of two."""
        peers = [peer for peer in self._peers if peer.accepts_sessions]
        local = self._local
        # The client is connected to this server, so its requests need no forwarding.
        if local is not None and (
            not peers or (local.sessions.accepts_sessions and self._is_even(local, peers))
        ):
            self._promised.add(local.sessions)
            return local.sessions.identity.new_session_id()
        if not peers:
            return ""
        chosen = min(random.sample(peers, min(2, len(peers))), key=lambda peer: peer.sessions)
        chosen.sessions += 1  # until its next load arrives
        return _protocol.new_session_id(chosen.slot, chosen.incarnation)

    def _is_even(self, local: App, peers: list[Peer]) -> bool:
        average = sum(peer.sessions for peer in peers) / len(peers)
        return self._promised.on(local.sessions) <= average * UNEVEN

    # ── Requests without a session ───────────────────────────────────────────────────────────────

    def _without_session(self, route: Route[Any] | None, request: Request) -> Outcome | None:
        if route is not None and route.at_router is AtRouter.MERGED and request.method != "HEAD":
            return self._merged.page(route.pattern, request)
        return None if self._local is not None else self.anywhere(request)

    def anywhere(self, request: Request) -> Outcome:
        peers = [peer for peer in self._peers if self._peers.serves_the_same(peer)] or list(self._peers)
        if not peers:
            return refusal(Unavailable("No server is up", retry_after=1, reason="worker_lost"))
        link = random.choice(peers).link
        return _lost(request) if link is None else Forwarded(link, request)

    # ── Sessions that are looked for ─────────────────────────────────────────────────────────────

    async def _find(self, request: Request, sid: str) -> Outcome:
        made = _protocol.session_id_route(sid)
        # A router that has just started does not know all slots yet.
        await self._peers.settle(ARRIVAL_SECONDS)
        if made is not None:
            slot, incarnation = made
            peer = await self._peers.wait_for(slot, incarnation, ARRIVAL_SECONDS)
            if slot != self._slot and self._peers.has_no_successor(slot, incarnation):
                return await self._of_client(request, sid)  # the id may not have been used
            if peer is None and (sid in self._locations or self._peers.is_dead(slot, incarnation)):
                found, presence = await self._ask_all(sid)  # it may have been created elsewhere meanwhile
                if presence == LIVES:
                    return self._to(found, request, sid)
            if self._peers.knows(slot):
                return self._of_slot(request, slot, incarnation, peer)
        return await self._of_client(request, sid)  # a client made it, even if it looks like ours

    def _successor(self, slot: int) -> Peer | None:
        """Returns the newest server of a slot, unless that is this one."""
        newest = self._peers.newest(slot)
        own = self._incarnation if slot == self._slot else -1
        return newest if newest is not None and newest.incarnation > own else None

    def _of_slot(self, request: Request, slot: int, incarnation: int, peer: Peer | None) -> Outcome:
        # A later incarnation knows that the session is lost, and creates the ones that were about to begin.
        peer = peer or self._successor(slot)
        if peer is not None and peer.link is not None:
            return Forwarded(peer.link, request)
        if slot == self._slot or (self._local is not None and not _needs_session(request)):
            return self._answer_here(request)
        if not _needs_session(request):
            return self.anywhere(request)
        return _lost(request) if self._peers.is_dead(slot, incarnation) else _unreachable()

    async def _of_client(self, request: Request, sid: str) -> Outcome:
        creating = creates(request)
        made = _protocol.session_id_route(sid)
        known = self._locations.get(sid)
        if known == self._own and not creating and known:
            return self._answer_here(request)
        if known and known != self._own:
            peer = await self._peers.wait_for(*prefix_route(known), ARRIVAL_SECONDS)
            if peer is not None and peer.link is not None and not creating:
                return Forwarded(peer.link, request)  # another request has created it meanwhile, or tried to
        found, presence = await self._ask_all(sid)
        if presence == LIVES or (presence and not creating):
            return self._to(found, request, sid)
        if creating:
            return self._create(request, sid)
        if known is not None and _needs_session(request):
            return _lost(request) if self._peers.is_dead(*prefix_route(known)) else _unreachable()
        if made is not None and _needs_session(request) and self._peers.has_no_successor(*made):
            return _ended() if self._peers.was_drained(*made) else _lost(request)
        return self._answer_here(request) if self._local is not None else self.anywhere(request)

    async def _ask_all(self, sid: str) -> tuple[Peer | None, int]:
        peers = [peer for peer in self._peers if not peer.quiet]
        asked = [peer.link.find(sid) for peer in peers if peer.link is not None]
        await asyncio.wait(asked, timeout=ANSWER_SECONDS) if asked else None
        presences = [each.result() if each.done() else 0 for each in asked]
        here = self._presence_here(sid)
        return max(zip([None, *peers], [here, *presences], strict=True), key=lambda each: each[1])

    def _presence_here(self, sid: str) -> int:
        if self._local is None:
            return 0
        return self._local.sessions.presence(sid, asyncio.get_running_loop().time())

    def _create(self, request: Request, sid: str) -> Outcome:
        """Chooses a server by a hash of the id, so that of concurrent creations only one succeeds."""
        choices: dict[str, Peer | None] = {peer.prefix: peer for peer in self._peers if peer.accepts_sessions}
        if self._local is not None and self._local.sessions.accepts_sessions:
            choices[self._own] = None
        if not choices:
            return refusal(Unavailable("No server accepts new sessions", retry_after=1, reason="shutdown"))
        chosen = max(choices, key=lambda prefix: hashlib.blake2b(f"{prefix}{sid}".encode()).digest())
        return self._to(choices[chosen], request, sid)

    def _to(self, peer: Peer | None, request: Request, sid: str) -> Outcome:
        self._locations.pop(sid, None)
        self._locations[sid] = self._own if peer is None else peer.prefix
        if len(self._locations) > MAX_LOCATIONS:
            self._locations.popitem(last=False)
        if peer is None:
            return self._answer_here(request)
        return _lost(request) if peer.link is None else Forwarded(peer.link, request)

    def _answer_here(self, request: Request) -> Outcome:
        assert self._local is not None
        return self._local.take(request, forwarded=True)


class _Retried(Request):
    """A request that is forwarded a second time, since its link broke."""


class _Promised:
    """Counts ids that were handed out recently and whose sessions have not begun yet."""

    def __init__(self) -> None:
        self._count = 0
        self._begun = 0  # sessions that had begun when the first of them was handed out
        self._until = 0.0

    def on(self, sessions: Sessions) -> int:
        """The sessions of this server, with those that are about to begin."""
        if self._count and asyncio.get_running_loop().time() > self._until:
            self._count = 0
        waiting = self._count - (sessions.begun - self._begun) if self._count else 0
        return len(sessions) + max(0, waiting)

    def add(self, sessions: Sessions) -> None:
        if not self._count:
            self._begun = sessions.begun
            self._until = asyncio.get_running_loop().time() + PROMISE_SECONDS
        self._count += 1


def _route_of(request: Request) -> Route[Any] | None:
    found = AT_ROUTER.find(request.method, request.path)
    return None if found is None else found[0]


def creates(request: Request) -> bool:
    """Whether a session begins with this request."""
    return _at_router(request) is AtRouter.CREATE


def is_feed(request: Request) -> bool:
    route = _route_of(request)
    return route is None or route.is_feed


def _at_router(request: Request) -> AtRouter:
    route = _route_of(request)
    return AtRouter.ANY if route is None else route.at_router


def _needs_session(request: Request) -> bool:
    """Whether only the server that has the session can answer, or is to have it."""
    return _at_router(request) in (AtRouter.SESSION, AtRouter.CREATE)


def _lost(request: Request) -> Answer:
    error: ORSError = Unavailable("The server is being restarted", retry_after=1, reason=WORKER_LOST)
    if _at_router(request) is AtRouter.SESSION:
        error = Gone(LOST, reason=WORKER_LOST)
    return refusal(error)


def _ended() -> Answer:
    return refusal(Gone("The session has ended, and its server has shut down", reason="shutdown"))


def _unreachable() -> Answer:
    text = "The session's server is unreachable"
    return refusal(Unavailable(text, retry_after=1, reason="unreachable"))
