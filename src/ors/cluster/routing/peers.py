"""The other servers: where they are, how much they have to do, and the link to each."""

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ors import _protocol
from ors.cluster.handover import Outlet
from ors.cluster.link.client import LinkClient
from ors.server.episodes.threads import NoThread, Threads
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.cluster")

CONNECT_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0
SILENCE_SECONDS = 10.0
"""The link to a server on another machine that says nothing for this long is cut; it speaks every 2 s."""
QUIET_SECONDS = 5.0
"""One that says nothing for this long, on this machine too, gets no new sessions."""
GIVE_UP_SECONDS = 30.0
"""A server that cannot be reached, and is not known to be dead, is taken for dead after this."""
UNIX = "unix:"
VACANT_SECONDS = 2.0
"""A server that died is back by then, or its slot may stay empty."""
MAX_DEAD = 10_000


def prefix(slot: int, incarnation: int) -> str:
    """How the session ids of a server begin."""
    return _protocol.new_session_id(slot, incarnation)[:13]


def route(prefix: str) -> tuple[int, int]:
    """The slot and the incarnation of the server whose ids begin so."""
    digits = prefix.replace("-", "")
    return int(digits[:4], 16), int(digits[4:], 16)


class Peer:
    """Another server. The link to it is kept up: made again whenever it breaks."""

    def __init__(self, place: str, peers: "Peers", api_key: str) -> None:
        self.place = place
        self._peers = peers
        self._api_key = api_key
        self.link: LinkClient | None = None
        self._made: LinkClient | None = None  # the last one, also if nothing was said on it yet
        self.slot = -1
        self.incarnation = -1
        self.prefix = ""
        self.environments: list[str] = []
        self.sessions = 0
        self._taking = False
        self.greeted = False
        """Whether it has ever been there."""
        self.tried = False
        """Whether it was there, or was not, when it was first looked for."""
        self._parted = False
        self._left: float | None = None  # when the link broke
        self._outlet = Outlet(place.removeprefix(UNIX)) if place.startswith(UNIX) else None
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._keeping = self._loop.create_task(self._keep())

    # ── What it says ─────────────────────────────────────────────────────────────────────────────

    def hello(self, link: LinkClient, me: dict[str, Any]) -> None:
        """The link is up."""
        self.link = link
        self.greeted = self.tried = True
        self.slot, self.incarnation = me["slot"], me["incarnation"]
        self.prefix = prefix(self.slot, self.incarnation)
        self.environments = me["environments"]
        self._left = None
        self._peers.joined(self)

    def load(self, sessions: int, taking: bool) -> None:
        """How much it has to do."""
        self.sessions, self._taking = sessions, taking

    @property
    def taking(self) -> bool:
        """Whether new sessions may go there."""
        return self._taking and not self.quiet and self._peers.alike(self)

    @property
    def quiet(self) -> bool:
        """Whether it has said nothing for a while: it may stand still."""
        return self.link is None or self._loop.time() - self.link.heard > QUIET_SECONDS

    def bye(self) -> None:
        """It has no session any more, and is about to end."""
        self._parted = True
        self._taking = False
        self.link = None
        self._peers.left(self)
        self._peers.died(self, parted=True)

    def again(self, request: Request) -> Outcome:
        """The answer of somebody else."""
        return self._peers.again(request)

    def closed(self, link: LinkClient) -> None:
        """The link is down."""
        self._taking = False
        if self.link is link:
            self.link = None
            self._left = self._loop.time()
            self._peers.left(self)
        self._closed.set()
        self._peers.alone(self)

    # ── The link ─────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._closed.clear()
            try:
                made = await self._connect()
            except (OSError, TimeoutError, ValueError) as error:  # a name may be none at all
                self._missed()
                self._judge(isinstance(error, ConnectionRefusedError | FileNotFoundError))
            else:
                await self._watch(made)
                self._missed()
                self._judge(False)
                pause = FIRST_PAUSE_SECONDS if self.greeted else pause
                if self._parted:  # another may come up at its place, but not at once
                    self._parted, pause = False, LONGEST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _missed(self) -> None:
        if not self.tried:
            self.tried = True
            self._peers.changed()

    def _judge(self, refused: bool) -> None:
        """Nobody listens where it was: it is dead. Whoever just cannot be reached may be alive."""
        late = self._left is not None and self._loop.time() - self._left > GIVE_UP_SECONDS
        if self._left is not None and (refused or late):
            self._left = None
            self._peers.died(self)

    async def _connect(self) -> LinkClient:
        if self.place.startswith(UNIX):
            made = self._made = LinkClient(self, "localhost", self._api_key, receiver=self)
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_unix_connection(lambda: made, self.place.removeprefix(UNIX))
            return made
        url = urlsplit(self.place)
        host = url.netloc.rpartition("@")[2]
        made = self._made = LinkClient(self, host, self._api_key, url.path.rstrip("/"))
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._peers.addresses(url.hostname or "", port)
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._reach(made, addresses, port, url.hostname if url.scheme == "https" else None)
        return made

    async def _reach(self, made: LinkClient, addresses: list[str], port: int, tls_name: str | None) -> None:
        """Connects to the first address where somebody answers."""
        tls = None if tls_name is None else ssl.create_default_context()
        failure = OSError(f"{self.place} has no address")
        for address in addresses:
            try:
                transport, _ = await self._loop.create_connection(
                    lambda: made, address, port, ssl=tls, server_hostname=tls_name
                )
            except OSError as error:
                failure = error
            else:
                transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
        raise failure

    async def _watch(self, link: LinkClient) -> None:
        """Waits until the link is closed; cuts it when the other machine falls silent."""
        link.heard = link.heard or self._loop.time()
        try:
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_SECONDS / 4):
                        await self._closed.wait()
                silent = self._loop.time() - link.heard
                if silent > SILENCE_SECONDS and not self.place.startswith(UNIX):
                    log.warning("%s has said nothing for %.0f s: the link is cut", self.place, silent)
                    link.cut()
        except asyncio.CancelledError:
            link.cut()
            raise

    def give(self, *connections: int) -> bool:
        """Gives it connections of clients; False if it takes none now."""
        return self.taking and self._outlet is not None and self._outlet.give(*connections)

    def held(self) -> Iterator[int]:
        """The file descriptors of the sockets to it."""
        if self._outlet is not None:
            yield self._outlet.fileno()
        if self._made is not None:
            yield self._made.fileno()

    async def close(self) -> None:
        """Ends the link for good: it is no more, or is somebody else's."""
        self._peers.died(self)
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping
        if self._outlet is not None:
            self._outlet.close()


class _End(NamedTuple):
    """When a server was known to be no more, and whether it had taken leave."""

    at: float
    parted: bool


class Peers:
    """All other servers that are known, by place, by the ids of their sessions, and by slot."""

    def __init__(self, environments: Iterable[str] = (), api_key: str = "") -> None:
        self._api_key = api_key
        self._by_place: dict[str, Peer] = {}
        self._wanted: set[str] = set()
        self.by_prefix: dict[str, Peer] = {}
        self._holders: dict[int, Peer | None] = {}  # of each slot ever seen, whoever has it now
        self._dead: OrderedDict[str, _End] = OrderedDict()  # by how the ids of theirs begin
        self._newest: dict[int, int] = {}  # of each slot, its latest life
        self._met = False
        self._own = list(environments)
        self.environments = self._own
        """What is served: what this server has, or else most of the others."""
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._lookups = Threads()
        self.again: Callable[[Request], Outcome]
        """The router's: gives the answer to a request that a server refused, since it is about to end."""

    def __iter__(self) -> Iterator[Peer]:
        """Those that can be asked now."""
        return iter(self.by_prefix.values())

    def meet(self, places: Iterable[str], *, all: bool = True) -> None:
        """These are the other servers from now on; if not all, those that are known stay too."""
        self._met = True
        self._changed.set()
        self._wanted = set(places) if all else self._wanted.union(places)
        for place in self._by_place.keys() - self._wanted:
            if self._by_place[place].quiet:  # or else we hear of it, though whoever says so does not
                self._drop(place)
        for place in self._wanted - self._by_place.keys():
            self._by_place[place] = Peer(place, self, self._api_key)

    def _drop(self, place: str) -> None:
        closing = asyncio.get_running_loop().create_task(self._by_place.pop(place).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def addresses(self, name: str, port: int) -> list[str]:
        """Where a name leads to.

        Raises:
            OSError: nowhere.
        """
        # Each in a thread of its own: uvloop has four for all, so where a name that does not exist takes
        # seconds, servers that are not there yet would keep those waiting that are.
        try:
            asked = self._lookups.run(socket.getaddrinfo, name, port, 0, socket.SOCK_STREAM)
        except NoThread as error:
            raise OSError(str(error)) from error
        found = await asked
        return [address[0] for *_, address in found]

    def missing(self) -> list[str]:
        """Where nobody has answered yet."""
        return sorted(place for place, peer in self._by_place.items() if not peer.greeted)

    def joined(self, peer: Peer) -> None:
        """The link to a server is up."""
        self.by_prefix[peer.prefix] = peer
        self._agree()
        if not self.alike(peer):
            there, here = ", ".join(peer.environments), ", ".join(self.environments)
            log.error("%s serves %s, not %s: it gets no new sessions", peer.place, there, here)
        self._newest[peer.slot] = max(peer.incarnation, self._newest.get(peer.slot, 0))
        self._dead.pop(peer.prefix, None)
        holder = self._holders.get(peer.slot)
        if holder is None or holder.incarnation < peer.incarnation:
            self._holders[peer.slot] = peer
        self._changed.set()

    def alike(self, peer: Peer) -> bool:
        """Whether a server has the environments that all should have."""
        return peer.environments == self.environments

    def _agree(self) -> None:
        lists = [peer.environments for peer in sorted(self, key=lambda peer: -peer.incarnation)]
        if not self._own and lists:
            self.environments = max(lists, key=lists.count)  # the newest, of several that are as many

    def changed(self) -> None:
        """Something has changed that somebody may wait for."""
        self._changed.set()

    def left(self, peer: Peer) -> None:
        """The link to a server is down."""
        if self.by_prefix.get(peer.prefix) is peer:
            del self.by_prefix[peer.prefix]
            self._agree()
        if self._holders.get(peer.slot) is peer:
            others = [one for one in self.by_prefix.values() if one.slot == peer.slot]
            self._holders[peer.slot] = max(others, key=lambda one: one.incarnation, default=None)
        self._changed.set()

    def alone(self, peer: Peer) -> None:
        """There is no link to a server any more; one that nobody wants is not asked for again."""
        if peer.place not in self._wanted and peer.place in self._by_place:
            self._drop(peer.place)

    def died(self, peer: Peer, *, parted: bool = False) -> None:
        """A server is no more, and its sessions with it; one that has parted had none any more."""
        if peer.prefix and self.by_prefix.get(peer.prefix, peer) is peer:
            self._dead.setdefault(peer.prefix, _End(asyncio.get_running_loop().time(), parted))
            if len(self._dead) > MAX_DEAD:
                self._dead.popitem(last=False)
        self._changed.set()

    def gone(self, slot: int, incarnation: int) -> bool:
        """Whether that life of a server is over, as far as is known."""
        return prefix(slot, incarnation) in self._dead or incarnation < self._newest.get(slot, 0)

    def parted(self, slot: int, incarnation: int) -> bool:
        """Whether that life of a server is over, and had no session any more."""
        end = self._dead.get(prefix(slot, incarnation))
        return end is not None and end.parted

    def vacant(self, slot: int, incarnation: int) -> bool:
        """Whether nobody has come after that life of a server, nor seems to: others may have its ids."""
        end = self._dead.get(prefix(slot, incarnation))
        if end is None or self._holders.get(slot) is not None:
            return False
        return end.parted or asyncio.get_running_loop().time() - end.at > VACANT_SECONDS

    def holder(self, slot: int) -> Peer | None:
        """The newest server of a slot, if it is up."""
        return self._holders.get(slot)

    def knows(self, slot: int) -> bool:
        """Whether the slot is, or was, one of these servers'."""
        return slot in self._holders

    def have_had(self, slot: int, incarnation: int) -> None:
        """That life of a slot is known: another that is older is over, unless it is here."""
        self._newest[slot] = max(incarnation, self._newest.get(slot, 0))

    async def come(self, slot: int, incarnation: int, seconds: float) -> Peer | None:
        """Waits for a server that may be about to be known here."""
        start = prefix(slot, incarnation)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while start not in self.by_prefix and self._may_come(start, slot, incarnation):
                    self._changed.clear()
                    await self._changed.wait()
        return self.by_prefix.get(start)

    def _may_come(self, start: str, slot: int, incarnation: int) -> bool:
        if start in self._dead:
            return False
        return incarnation >= self._newest.get(slot, 0) or not self._settled

    @property
    def _settled(self) -> bool:
        return self._met and all(peer.tried for peer in self._by_place.values())

    async def settle(self, seconds: float) -> None:
        """Waits until every server has been met once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._settled:
                    self._changed.clear()
                    await self._changed.wait()

    def held(self) -> Iterator[int]:
        """The file descriptors of all sockets to other servers."""
        for peer in list(self._by_place.values()):
            yield from peer.held()

    async def close(self) -> None:
        """Ends all links."""
        for peer in list(self._by_place.values()):
            await peer.close()
        if self._closing:
            await asyncio.wait(self._closing)
