"""Which server a request belongs to: the session id names it, or it is asked for, or it is chosen."""

import asyncio
import hashlib
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ors import _protocol
from ors.cluster.aggregate.pages import MergedPages
from ors.cluster.routing.classify import ended, endpoint, lost, named, needs_session, unreachable
from ors.cluster.routing.lookup import Lookup
from ors.cluster.routing.peers import Peer, Peers, prefix, route
from ors.errors import Unavailable
from ors.server.http.answers import refusal
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome
from ors.server.identity import Identity

ARRIVAL_SECONDS = 2.0
"""A server that nobody here knows may have started just now: so long its first requests wait."""
ANSWER_SECONDS = 1.0
"""A server that does not say in time whether it has a session may be frozen, and does not hold up others."""
LIVES = 2
"""How a session stands with the server that has it."""
UNEVEN = 4
"""A server that has a quarter more sessions than another may still have the next."""
PROMISE_SECONDS = 1.0
MAX_PLACES = 100_000
"""Sessions whose ids their clients made, and whose places are remembered here."""


class LocalServer(Protocol):
    """The server that the router is part of."""

    identity: Identity

    def has(self, sid: str) -> bool:
        """Whether the session lives here."""

    def standing(self, sid: str) -> int:
        """As `Sessions.standing`."""

    def take(self, request: Request) -> Outcome:
        """What this server does with the request."""

    @property
    def taking(self) -> bool:
        """Whether new sessions may come here."""

    @property
    def leaving(self) -> bool:
        """Whether others know that it is about to end, and ask its successor."""

    @property
    def sessions(self) -> int:
        """How many there are."""


class Router:
    """Finds the server of each request. Without a home it is a router alone, and forwards everything."""

    def __init__(self, peers: Peers, local: LocalServer | None = None) -> None:
        self._peers = peers
        self._local = local
        self._own = prefix(local.identity.slot, local.identity.incarnation) if local is not None else ""
        self._answer_locally: Callable[[Request], Outcome] | None = local.take if local is not None else None
        self._promised = _Promised()
        self._tasks: set[asyncio.Task[None]] = set()
        # Of ids that clients made: the prefix of their server.
        self._places: OrderedDict[str, str] = OrderedDict()
        if local is not None:
            peers.have_had(local.identity.slot, local.identity.incarnation)
        peers.again = self._again
        self._merged = MergedPages(
            peers, self._answer_locally, local.identity if local is not None else None, self._tasks
        )

    def elsewhere(self, request: Request) -> Outcome | None:
        """What gives the answer if another server has it; None if this one does."""
        sid = request.maybe_session_id() or named(request)
        if not sid:
            return self._without_session(request)
        if self._local is not None and self._local.has(sid):
            return None
        place = self._places.get(sid)
        peer = self._peers.by_prefix.get(place or sid[:13])
        if peer is not None and peer.link is not None:
            if place is None or endpoint(request) is not _protocol.CREATE:
                return peer.link.ask(request, self._answer_locally)
        elif sid[:13] == self._own:
            return self._of_own(request, sid)
        return Lookup(request, self._find(request, sid), self._tasks)

    def _of_own(self, request: Request, sid: str) -> Outcome | None:
        assert self._local is not None
        successor = self._successor(self._local.identity.slot) if self._local.leaving else None
        if successor is None or successor.link is None or self._local.standing(sid):
            return None
        return successor.link.ask(
            request, self._answer_locally
        )  # it was created when others knew us gone already

    def _again(self, request: Request) -> Outcome:
        outcome = self.elsewhere(request)
        return self._answer_here(request) if outcome is None else outcome

    def new_session_id(self) -> str:
        """An id for the next session, on the less loaded of two servers; on this one if it is about even."""
        peers = [peer for peer in self._peers if peer.taking]
        local = self._local
        # Whoever asks here is connected here: what need not be forwarded should not be.
        if local is not None and (not peers or (local.taking and self._is_even(local, random.choice(peers)))):
            self._promised.add(local.sessions)
            return local.identity.new_session_id()
        if not peers:
            return ""
        chosen = min(random.sample(peers, min(2, len(peers))), key=lambda peer: peer.sessions)
        chosen.sessions += 1  # until it tells us itself
        return _protocol.new_session_id(chosen.slot, chosen.incarnation)

    def _is_even(self, local: LocalServer, other: Peer) -> bool:
        return self._promised.on(local.sessions) <= other.sessions + other.sessions // UNEVEN

    # ── What has no session ──────────────────────────────────────────────────────────────────────

    def _without_session(self, request: Request) -> Outcome | None:
        merged = self._merged.page(request)
        if merged is not None:
            return merged
        return None if self._local is not None else self.anywhere(request)

    def anywhere(self, request: Request) -> Outcome:
        """The answer of any server, for what all can answer."""
        peers = [peer for peer in self._peers if self._peers.alike(peer)] or list(self._peers)
        if not peers:
            return refusal(Unavailable("No server is up", retry_after=1, reason="worker_lost"))
        link = random.choice(peers).link
        return lost(request) if link is None else link.ask(request, None)

    # ── What is not known at once ────────────────────────────────────────────────────────────────

    async def _find(self, request: Request, sid: str) -> Outcome:
        made = _protocol.session_id_route(sid)
        await self._peers.settle(ARRIVAL_SECONDS)  # who has just started does not know all slots yet
        if made is not None:
            slot, incarnation = made
            peer = await self._peers.come(slot, incarnation, ARRIVAL_SECONDS)
            if not self._is_own(slot) and self._peers.vacant(slot, incarnation):
                return await self._of_client(request, sid)  # the id may have been given, and not used
            if peer is None and (sid in self._places or self._peers.gone(slot, incarnation)):
                found, standing = await self._ask_all(sid)  # it may have begun elsewhere meanwhile
                if standing == LIVES:
                    return self._to(found, request, sid)
            if self._peers.knows(slot) or self._is_own(slot):
                return self._of_slot(request, slot, incarnation, peer)
        return await self._of_client(request, sid)  # of its making, even if it looks like ours

    def _is_own(self, slot: int) -> bool:
        return self._local is not None and self._local.identity.slot == slot

    def _successor(self, slot: int) -> Peer | None:
        """The newest server of a slot, unless that is this one."""
        holder = self._peers.holder(slot)
        own = self._local.identity.incarnation if self._local is not None and self._is_own(slot) else -1
        return holder if holder is not None and holder.incarnation > own else None

    def _of_slot(self, request: Request, slot: int, incarnation: int, peer: Peer | None) -> Outcome:
        # Another life of the server knows that the session is lost; it also takes what was about to begin.
        peer = peer or self._successor(slot)
        if peer is not None and peer.link is not None:
            return peer.link.ask(request, self._answer_locally)
        if self._is_own(slot) or (self._local is not None and not needs_session(request)):
            return self._answer_here(request)
        if not needs_session(request):
            return self.anywhere(request)
        return lost(request) if self._peers.gone(slot, incarnation) else unreachable()

    async def _of_client(self, request: Request, sid: str) -> Outcome:
        creating = endpoint(request) is _protocol.CREATE
        made = _protocol.session_id_route(sid)
        known = self._places.get(sid)
        if known == self._own and not creating and known:
            return self._answer_here(request)
        if known and known != self._own:
            await self._peers.come(*route(known), ARRIVAL_SECONDS)
        found, standing = await self._ask_all(sid)
        if standing == LIVES or (standing and not creating):
            return self._to(found, request, sid)
        if creating:
            return self._place(request, sid)
        if known is not None and needs_session(request):
            return lost(request) if self._peers.gone(*route(known)) else unreachable()
        if made is not None and needs_session(request) and self._peers.vacant(*made):
            return ended() if self._peers.parted(*made) else lost(request)
        return self._answer_here(request) if self._local is not None else self.anywhere(request)

    async def _ask_all(self, sid: str) -> tuple[Peer | None, int]:
        peers = [peer for peer in self._peers if not peer.quiet]
        asked = [peer.link.find(sid) for peer in peers if peer.link is not None]
        await asyncio.wait(asked, timeout=ANSWER_SECONDS) if asked else None
        standings = [each.result() if each.done() else 0 for each in asked]
        here = self._local.standing(sid) if self._local is not None else 0
        return max(zip([None, *peers], [here, *standings], strict=True), key=lambda each: each[1])

    def _place(self, request: Request, sid: str) -> Outcome:
        """By a hash of the id: of creations at several doors at once, one server lets one succeed."""
        places: dict[str, Peer | None] = {peer.prefix: peer for peer in self._peers if peer.taking}
        if self._local is not None and self._local.taking:
            places[self._own] = None
        if not places:
            return refusal(Unavailable("No server takes new sessions now", retry_after=1, reason="shutdown"))
        chosen = max(places, key=lambda place: hashlib.blake2b(f"{place}{sid}".encode()).digest())
        return self._to(places[chosen], request, sid)

    def _to(self, peer: Peer | None, request: Request, sid: str) -> Outcome:
        self._places.pop(sid, None)
        self._places[sid] = self._own if peer is None else peer.prefix
        if len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)
        if peer is None:
            return self._answer_here(request)
        return lost(request) if peer.link is None else peer.link.ask(request, self._answer_locally)

    def _answer_here(self, request: Request) -> Outcome:
        assert self._answer_locally is not None
        return self._answer_locally(request)


class _Promised:
    """Ids of this server that were given away of late, and whose sessions may not be there yet."""

    def __init__(self) -> None:
        self._before = 0  # sessions when the first of them was given away
        self._count = 0
        self._until = 0.0

    def on(self, sessions: int) -> int:
        """How many sessions there are, or will be if all come."""
        if self._count and asyncio.get_running_loop().time() > self._until:
            self._count = 0
        return max(sessions, self._before + self._count) if self._count else sessions

    def add(self, sessions: int) -> None:
        """Another id is given away, when there are so many sessions."""
        if not self._count:
            self._before = sessions
            self._until = asyncio.get_running_loop().time() + PROMISE_SECONDS
        self._count += 1
