"""Decides whose request bodies a router accepts. It has no list of keys, so it asks a server."""

import random

from ors import _protocol
from ors.cluster.aggregate.pages import answer_of
from ors.cluster.routing.peers import Peers
from ors.errors import AuthenticationError, Unavailable
from ors.server.http.requests import Request
from ors.server.sessions.api_keys import digest

MOST_KNOWN = 1024
_LIST = _protocol.LIST_ENVIRONMENTS


class KnownKeys:
    """Remembers the keys that servers have accepted, so that each is asked about once."""

    def __init__(self, peers: Peers, api_key: str, body_bytes: int) -> None:
        self._peers = peers
        self._keyed = bool(api_key)  # a router without a key has only servers that ask for none
        self._body_bytes = body_bytes
        self._known = {digest(api_key.encode())}

    def knows(self, request: Request) -> bool:
        """Whether a server has accepted the key of a request."""
        return not self._keyed or digest(request.api_key()) in self._known

    async def ask(self, request: Request) -> int:
        """Asks a server about the key; returns how long the body may be.

        Raises:
            AuthenticationError: the key is wrong.
            Unavailable: no server could be asked.
        """
        peers = list(self._peers)
        if not peers:
            raise Unavailable("No server is up", retry_after=1, reason="worker_lost")
        question = Request(_LIST.method, _LIST.path(), b"", request.headers, b"")
        found = await answer_of(random.choice(peers), question)
        if found.status == AuthenticationError.status:
            raise AuthenticationError(
                f"The API key is missing or wrong; send it as {_protocol.API_KEY}", reason="key"
            )
        if found.status == 200 and len(self._known) < MOST_KNOWN:
            self._known.add(digest(request.api_key()))
        return self._body_bytes
