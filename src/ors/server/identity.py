"""Which server this is, among others and among its own earlier lives."""

import time
from dataclasses import dataclass, field

from ors import _protocol
from ors._protocol import MAX_SLOT as MAX_SLOT


def new_incarnation() -> int:
    """A number that no earlier start of the same server had: tenths of a second, for 13 years."""
    return time.time_ns() // 10**8 & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's place (slot) and life (incarnation), which the ids of its sessions carry."""

    slot: int = 0
    incarnation: int = field(default_factory=new_incarnation)

    def new_session_id(self) -> str:
        """An id that leads to this server."""
        return _protocol.new_session_id(self.slot, self.incarnation)

    def made(self, sid: str) -> bool:
        """Whether the id leads to this server."""
        return _protocol.session_id_route(sid) == (self.slot, self.incarnation)

    def lost(self, sid: str) -> bool:
        """Whether the id is of an earlier life of this server, whose sessions are gone."""
        route = _protocol.session_id_route(sid)
        return route is not None and route[0] == self.slot and route[1] != self.incarnation
