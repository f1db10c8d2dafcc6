"""The server end of a link to another server: answers what it forwards, and tells it the load."""

import asyncio

from ors._json import dumps
from ors._protocol import frames
from ors.errors import BadRequest
from ors.server.app import App
from ors.server.connections.context import Open, Upgrade
from ors.server.connections.link import LinkServer
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

LOAD_SECONDS = 0.25
"""How often a change of load is sent to the other server."""
HEARTBEAT_TICKS = 8
"""An unchanged load is sent once in this many times, so that silence means death."""
FRAME_ROOM = 128 * 1024
"""Greatest size of a request's frame besides its body."""
MAX_REQUESTS = 50_000
"""Requests that may be open on one link."""


def upgrade(app: App) -> tuple[bytes, Upgrade]:
    """Returns the upgrade that makes a connection to `app` a link of another server."""

    def take_over(
        transport: asyncio.Transport, open_: Open, headers: dict[bytes, bytes], rest: bytes
    ) -> None:
        PeerLink(app, open_).take_over(transport, frames.PEERS, rest)

    return frames.PEERS, Upgrade(frames.PATHS[frames.PEERS].encode(), take_over)


class PeerLink(LinkServer):
    """A link of another server, which has checked host and origin of what it forwards."""

    heartbeat_seconds = LOAD_SECONDS

    def __init__(self, app: App, open_: Open) -> None:
        super().__init__(app, open_, {}, app.limits.body_bytes + FRAME_ROOM)
        self.app = app
        self._most = MAX_REQUESTS
        self._sent_load: tuple[int, bool] | None = None
        self._ticks = 0

    def _greet(self) -> None:
        me, limits = self.app.sessions.identity, self.app.limits
        self.write(frames.Hello(me.slot, me.incarnation, self.app.environments, limits.body_bytes).frame())
        if self.app.leaving:
            self.goodbye()

    def _heartbeat(self) -> None:
        load = (len(self.app.sessions), self.app.sessions.accepts_sessions)
        self._ticks += 1
        if not self.paused and (load != self._sent_load or self._ticks % HEARTBEAT_TICKS == 0):
            self._sent_load = load
            self.write(frames.frame(frames.LOAD, 0, dumps(load)))

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.FIND:
            found = self.app.sessions.presence(payload.decode(), self._loop.time())
            self.write(frames.frame(frames.FOUND, number, b"%d" % found))
        elif kind == frames.REQUEST and self.app.leaving:
            self.write(frames.frame(frames.REFUSED, number))
        elif kind != frames.CALL:
            super()._take(kind, number, payload)

    def _outcome(self, kind: int, payload: bytes) -> Outcome:
        try:
            return self.app.take(Request(*frames.read_request(payload)), forwarded=True)
        except BadRequest as error:
            return self.app.refused(error)

    def _is_forgotten(self, silent: float) -> bool:
        return False
