"""What a session asks along with its creation, so that nobody has to wait for it later."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from ors._protocol import PROMPT, TASK_TOOLS, Endpoint
from ors.client.requests.server import RemoteServer, Reply
from ors.errors import ORSError


class Ahead:
    """Asks, over a link, what earlier sessions of the environment asked before their first call.

    So nobody gives a prompt that is not wanted.
    """

    __slots__ = ("_asked", "_usual", "is_over")

    def __init__(self, usual: set[Endpoint]) -> None:
        self._usual = usual
        self._asked: dict[Endpoint, asyncio.Task[Reply | None]] = {}
        self.is_over = False
        """Whether the first call was made."""

    def begin(self, remote: RemoteServer, environment: str, headers: Mapping[str, str]) -> None:
        """Asks, in the turn of the event loop in which the creation is sent."""
        if self._usual and remote.is_linked(headers):
            for each in self._usual:
                asking = _ask(remote, each.method, remote.path(each, environment), headers)
                self._asked[each] = asyncio.create_task(asking)

    def take(self, endpoint: Endpoint) -> asyncio.Task[Reply | None] | None:
        """The answer that was asked for ahead, if it was. If that is None, it is to be asked for again."""
        if not self.is_over and endpoint in (PROMPT, TASK_TOOLS):
            self._usual.add(endpoint)
        return self._asked.pop(endpoint, None)

    def end(self) -> None:
        """Drops what nobody has asked for: a call may change it, and the next session need not ask."""
        self.is_over = True
        self._usual.difference_update(self._asked)
        for task in self._asked.values():
            task.cancel()
        self._asked.clear()


async def _ask(remote: RemoteServer, method: str, path: str, headers: Mapping[str, str]) -> Reply | None:
    await asyncio.sleep(0)  # behind the creation, in the same write
    with suppress(ORSError):
        return await remote.exchange(method, path, headers, None)
    return None
