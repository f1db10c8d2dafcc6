"""Identity of a server among its peers and its own earlier starts."""

import time
from dataclasses import dataclass, field

from ors import _protocol
from ors._protocol import MAX_SLOT as MAX_SLOT


def new_incarnation() -> int:
    """Returns a number that no earlier start of this server had: tenths of a second, unique for 13 years."""
    return time.time_ns() // 10**8 & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's slot and incarnation (one start of it), which are part of its session ids."""

    slot: int = 0
    incarnation: int = field(default_factory=new_incarnation)

    def new_session_id(self) -> str:
        """Returns a session id that leads to this server."""
        return _protocol.new_session_id(self.slot, self.incarnation)

    def made(self, sid: str) -> bool:
        """Whether the id leads to this server."""
        return _protocol.session_id_route(sid) == (self.slot, self.incarnation)

    def lost(self, sid: str) -> bool:
        """Whether the id is from an earlier start of this server, whose sessions are lost."""
        route = _protocol.session_id_route(sid)
        return route is not None and route[0] == self.slot and route[1] != self.incarnation
