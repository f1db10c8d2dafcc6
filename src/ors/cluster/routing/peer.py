"""Another server, and the link to it."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ors._protocol import id_prefix
from ors._protocol.frames import Hello
from ors.cluster.link.client import LinkClient
from ors.cluster.link.handover import HandoverClient
from ors.server.episodes.threads import NoThread
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

if TYPE_CHECKING:
    from ors.cluster.routing.peers import Peers

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
        self._made: LinkClient | None = None  # the last one, also if it is not up yet
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
        self._handover = None if path is None else HandoverClient(path)
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
            try:
                made = await self._connect()
            except (OSError, TimeoutError, ValueError, NoThread) as error:  # ValueError: a malformed name
                self._missed()
                self._check_dead(isinstance(error, ConnectionRefusedError | FileNotFoundError))
            else:
                await self._watch(made)
                self._missed()
                self._check_dead(False)
                pause = FIRST_PAUSE_SECONDS if self.greeted else pause
                if self._said_goodbye:  # a successor may start at its address, but not at once
                    self._said_goodbye, pause = False, LONGEST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _missed(self) -> None:
        if not self.tried:
            self.tried = True
            self._peers.notify()

    def _check_dead(self, refused: bool) -> None:
        """Refused means dead; a timeout does not, until it lasts."""
        late = self._lost_at is not None and self._loop.time() - self._lost_at > GIVE_UP_SECONDS
        if self._lost_at is not None and (refused or late):
            self._lost_at = None
            self._peers.ended(self)

    async def _connect(self) -> LinkClient:
        if self.address.startswith(UNIX):
            made = self._made = LinkClient(self, "localhost", self._api_key, handover=self)
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_unix_connection(lambda: made, self.address.removeprefix(UNIX))
            return made
        url = urlsplit(self.address)
        host = url.netloc.rpartition("@")[2]
        made = self._made = LinkClient(self, host, self._api_key, url.path.rstrip("/"))
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
        """Hands clients' connections over to it; False if it takes none now."""
        return self.accepts_sessions and self._handover is not None and self._handover.give(*connections)

    def descriptors(self) -> Iterator[int]:
        if self._handover is not None:
            yield self._handover.fileno()
        if self._made is not None and (number := self._made.out.fileno()) is not None:
            yield number

    async def close(self) -> None:
        """Closes the link for good; its sessions count as lost."""
        self._peers.ended(self)
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping
        if self._handover is not None:
            self._handover.close()
