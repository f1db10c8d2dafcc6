"""The other servers: by address, by the prefix of their session ids, and by slot."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ors._protocol import id_prefix
from ors.cluster.routing.peer import Peer
from ors.server.episodes.threads import Threads
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.cluster")

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
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while start not in self.by_prefix and self._may_appear(start, slot, incarnation):
                    self._changed.clear()
                    await self._changed.wait()
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
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._settled:
                    self._changed.clear()
                    await self._changed.wait()

    def descriptors(self) -> Iterator[int]:
        for peer in list(self._by_address.values()):
            yield from peer.descriptors()

    async def close(self) -> None:
        for peer in list(self._by_address.values()):
            await peer.close()
        if self._closing:
            await asyncio.wait(self._closing)
