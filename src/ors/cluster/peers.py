"""The other servers and the links to them: by address, by the prefix of their session ids, and by slot."""

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from ors._protocol import id_prefix
from ors._protocol.frames import Hello
from ors.cluster.handover import HandoverClient
from ors.cluster.link import LinkClient
from ors.server.episodes.threads import NoThread, Threads
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.cluster")

CONNECT_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0
SILENCE_SECONDS = 10.0
"""The link to a server on another machine is cut after this long without a frame; one comes every 2 s."""
QUIET_SECONDS = 5.0
"""A server that has sent nothing for this long gets no new sessions, on this machine too."""
GIVE_UP_SECONDS = 30.0
"""A server that cannot be reached counts as dead after this long."""
UNIX = "unix:"


def prefix_route(prefix: str) -> tuple[int, int]:
    """Returns the slot and the incarnation of the server whose session ids begin so."""
    digits = prefix.replace("-", "")
    return int(digits[:4], 16), int(digits[4:], 16)


class Peer:
    """Another server. Its link is made again whenever it breaks."""

    def __init__(self, address: str, peers: "Peers", api_key: str) -> None:
        self.address = address
        self._peers = peers
        self._api_key = api_key
        self.link: LinkClient | None = None
        self.slot = -1
        self.incarnation = -1
        self.prefix = ""
        self.environments: list[str] = []
        self.sessions = 0
        self._accepts = False
        self.greeted = False
        """Whether the link was ever up."""
        self.tried = False
        """Whether the first attempt to connect has ended, well or not."""
        self._said_goodbye = False
        self._lost_at: float | None = None  # when the link broke
        path = address.removeprefix(UNIX) if address.startswith(UNIX) else None
        self.handover = None if path is None else HandoverClient(path)
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._keeping = self._loop.create_task(self._keep())

    # ── Events of the link ───────────────────────────────────────────────────────────────────────

    def hello(self, link: LinkClient, hello: Hello) -> None:
        self.link = link
        self.greeted = self.tried = True
        self.slot, self.incarnation = hello.slot, hello.incarnation
        self.prefix = id_prefix(self.slot, self.incarnation)
        self.environments = hello.environments
        self._lost_at = None
        self._peers.connected(self)

    def load(self, sessions: int, accepts: bool) -> None:
        self.sessions, self._accepts = sessions, accepts

    @property
    def accepts_sessions(self) -> bool:
        return self._accepts and not self.quiet and self._peers.serves_the_same(self)

    @property
    def quiet(self) -> bool:
        """Whether it has been silent for a while: it may be frozen."""
        return self.link is None or self._loop.time() - self.link.heard > QUIET_SECONDS

    def goodbye(self) -> None:
        self._said_goodbye = True
        self._accepts = False
        self.link = None
        self._peers.disconnected(self)
        self._peers.ended(self, drained=True)

    def refused(self, request: Request) -> Outcome:
        return self._peers.reroute(request)

    def lost(self, request: Request, sent: bool) -> Outcome:
        return self._peers.answer_instead(request, sent)

    def closed(self, link: LinkClient) -> None:
        self._accepts = False
        if self.link is link:
            self.link = None
            self._lost_at = self._loop.time()
            self._peers.disconnected(self)
        self._closed.set()
        self._peers.drop_if_unwanted(self)

    # ── The link ─────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._closed.clear()
            refused = False
            try:
                await self._watch(await self._connect())
            except (OSError, ValueError, NoThread) as error:  # ValueError: a malformed name
                refused = isinstance(error, ConnectionRefusedError | FileNotFoundError)
            else:
                pause = FIRST_PAUSE_SECONDS if self.greeted else pause
                if self._said_goodbye:  # a successor may start at its address, but not at once
                    self._said_goodbye, pause = False, LONGEST_PAUSE_SECONDS
            if not self.tried:
                self.tried = True
                self._peers.notify()
            self._check_dead(refused)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _check_dead(self, refused: bool) -> None:
        """Refused means dead; a timeout does not, until it lasts."""
        late = self._lost_at is not None and self._loop.time() - self._lost_at > GIVE_UP_SECONDS
        if self._lost_at is not None and (refused or late):
            self._lost_at = None
            self._peers.ended(self)

    async def _connect(self) -> LinkClient:
        if self.address.startswith(UNIX):
            made = LinkClient(self, "localhost", self._api_key)
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_unix_connection(lambda: made, self.address.removeprefix(UNIX))
            return made
        url = urlsplit(self.address)
        host = url.netloc.rpartition("@")[2]
        made = LinkClient(self, host, self._api_key, url.path.rstrip("/"))
        port = url.port or (443 if url.scheme == "https" else 80)
        # In a thread of its own: uvloop has four for all names, so those that take long to look up would
        # delay the servers that are up.
        lookup = self._peers.threads.run(socket.getaddrinfo, url.hostname or "", port, 0, socket.SOCK_STREAM)
        addresses = [address[0] for *_, address in await lookup]
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._reach(made, addresses, port, url.hostname if url.scheme == "https" else None)
        return made

    async def _reach(self, made: LinkClient, addresses: list[str], port: int, tls_name: str | None) -> None:
        tls = None if tls_name is None else ssl.create_default_context()
        failure = OSError(f"{self.address} has no address")
        for address in addresses:
            try:
                await self._loop.create_connection(
                    lambda: made, address, port, ssl=tls, server_hostname=tls_name
                )
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    async def _watch(self, link: LinkClient) -> None:
        """Waits until the link is closed; cuts it when the other machine is silent."""
        link.heard = link.heard or self._loop.time()
        try:
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_SECONDS / 4):
                        await self._closed.wait()
                silent = self._loop.time() - link.heard
                if silent > SILENCE_SECONDS and not self.address.startswith(UNIX):
                    log.warning("No data from %s for %.0f s: closing the link", self.address, silent)
                    link.cut()
        except asyncio.CancelledError:
            link.cut()
            raise

    def give(self, *connections: int) -> bool:
        return self.accepts_sessions and self.handover is not None and self.handover.give(*connections)

    async def close(self) -> None:
        """Closes the link for good; its sessions count as lost."""
        self._peers.ended(self)
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping
        if self.handover is not None:
            self.handover.close()


SUCCESSOR_SECONDS = 2.0
"""A server that died is back after this long, or other servers may use its session ids."""
MAX_DEAD = 10_000


class _End(NamedTuple):
    """When a server was found to have ended, and whether it had no session left."""

    at: float
    drained: bool


class Peers:
    def __init__(self, environments: Iterable[str] = (), api_key: str = "") -> None:
        self._api_key = api_key
        self._by_address: dict[str, Peer] = {}
        self._wanted: set[str] = set()
        self.by_prefix: dict[str, Peer] = {}
        self._dead: OrderedDict[str, _End] = OrderedDict()  # by the prefix of their session ids
        self._latest: dict[int, int] = {}  # of each slot, its latest incarnation
        self._updated = False
        self._own = list(environments)
        self.environments = self._own
        """What is served: by this server, or else by most of the others."""
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self.threads = Threads()
        # Set by the router:
        self.reroute: Callable[[Request], Outcome]
        """Answers a request that a server refused because it is about to end."""
        self.answer_instead: Callable[[Request, bool], Outcome]
        """Answers a request whose server is gone; says whether the request was sent to it."""

    def __iter__(self) -> Iterator[Peer]:
        """Iterates over the servers whose link is up now; what is sent to one may find its link broken."""
        return iter(list(self.by_prefix.values()))

    def update(self, addresses: Iterable[str], *, complete: bool = True) -> None:
        """Sets the addresses of the other servers; if not complete, those that are known stay too."""
        self._updated = True
        self._changed.set()
        self._wanted = set(addresses) if complete else self._wanted.union(addresses)
        for address in self._by_address.keys() - self._wanted:
            if self._by_address[address].quiet:  # one that still sends frames is not gone
                self._drop(address)
        for address in self._wanted - self._by_address.keys():
            self._by_address[address] = Peer(address, self, self._api_key)

    def _drop(self, address: str) -> None:
        closing = asyncio.get_running_loop().create_task(self._by_address.pop(address).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def missing(self) -> list[str]:
        return sorted(address for address, peer in self._by_address.items() if not peer.greeted)

    def connected(self, peer: Peer) -> None:
        self.by_prefix[peer.prefix] = peer
        self._update_environments()
        if not self.serves_the_same(peer):
            there, here = ", ".join(peer.environments), ", ".join(self.environments)
            log.error("%s serves %s, not %s: it gets no new sessions", peer.address, there, here)
        self._latest[peer.slot] = max(peer.incarnation, self._latest.get(peer.slot, 0))
        self._dead.pop(peer.prefix, None)
        self._changed.set()

    def serves_the_same(self, peer: Peer) -> bool:
        """Whether a server has the environments that all should have."""
        return peer.environments == self.environments

    def _update_environments(self) -> None:
        lists = [peer.environments for peer in sorted(self, key=lambda peer: -peer.incarnation)]
        if not self._own and lists:
            self.environments = max(lists, key=lists.count)  # of equally frequent ones, the newest

    def notify(self) -> None:
        self._changed.set()

    def disconnected(self, peer: Peer) -> None:
        if self.by_prefix.get(peer.prefix) is peer:
            del self.by_prefix[peer.prefix]
            self._update_environments()
        self._changed.set()

    def drop_if_unwanted(self, peer: Peer) -> None:
        """Makes no new link to a server that is not among the addresses any more."""
        if peer.address not in self._wanted and peer.address in self._by_address:
            self._drop(peer.address)

    def ended(self, peer: Peer, *, drained: bool = False) -> None:
        """Records that a server has ended; its sessions are lost, unless it was drained and had none."""
        if peer.prefix and self.by_prefix.get(peer.prefix, peer) is peer:
            self._dead.setdefault(peer.prefix, _End(asyncio.get_running_loop().time(), drained))
            if len(self._dead) > MAX_DEAD:
                self._dead.popitem(last=False)
        self._changed.set()

    def is_dead(self, slot: int, incarnation: int) -> bool:
        return id_prefix(slot, incarnation) in self._dead or incarnation < self._latest.get(slot, 0)

    def was_drained(self, slot: int, incarnation: int) -> bool:
        end = self._dead.get(id_prefix(slot, incarnation))
        return end is not None and end.drained

    def has_no_successor(self, slot: int, incarnation: int) -> bool:
        """Whether a server has ended and its slot stays empty: others may use its session ids."""
        end = self._dead.get(id_prefix(slot, incarnation))
        if end is None or self.newest(slot) is not None:
            return False
        return end.drained or asyncio.get_running_loop().time() - end.at > SUCCESSOR_SECONDS

    def newest(self, slot: int) -> Peer | None:
        up = [peer for peer in self.by_prefix.values() if peer.slot == slot]
        return max(up, key=lambda peer: peer.incarnation, default=None)

    def knows(self, slot: int) -> bool:
        return slot in self._latest

    def record(self, slot: int, incarnation: int) -> None:
        self._latest[slot] = max(incarnation, self._latest.get(slot, 0))

    async def wait_for(self, slot: int, incarnation: int, seconds: float) -> Peer | None:
        """Waits for the link to a server that may have just started."""
        start = id_prefix(slot, incarnation)
        await self._wait(
            lambda: start in self.by_prefix or not self._may_appear(start, slot, incarnation), seconds
        )
        return self.by_prefix.get(start)

    def _may_appear(self, start: str, slot: int, incarnation: int) -> bool:
        if start in self._dead:
            return False
        return incarnation >= self._latest.get(slot, 0) or not self._settled

    @property
    def _settled(self) -> bool:
        return self._updated and all(peer.tried for peer in self._by_address.values())

    async def settle(self, seconds: float) -> None:
        """Waits until the first attempt to connect to each server has ended."""
        await self._wait(lambda: self._settled, seconds)

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        for peer in list(self._by_address.values()):
            await peer.close()
        if self._closing:
            await asyncio.wait(self._closing)
