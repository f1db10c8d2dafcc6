"""An answer whose server is still to be found."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ors.errors import ORSError
from ors.server.answers import failure, refusal
from ors.server.relay import Relay, Sink
from ors.server.requests import Request

log = logging.getLogger("ors.cluster")


class Asking(Relay):
    """Waits for who has the answer, or for the answer itself, and goes on with that."""

    def __init__(self, request: Request, finding: Coroutine[Any, Any, Any]) -> None:
        self._request = request
        self._finding = finding
        self._task: asyncio.Task[None] | None = None
        self._left = False

    def begin(self, sink: Sink) -> None:
        """Finds it."""
        self._task = asyncio.get_running_loop().create_task(self._settle(sink))

    async def _settle(self, sink: Sink) -> None:
        try:
            outcome = await self._finding
        except ORSError as error:
            outcome = refusal(error)
        except Exception as error:
            log.error("%s %s failed", self._request.method, self._request.path, exc_info=error)
            outcome = failure()
        if not self._left:
            sink.settle(self._request, outcome)
        elif asyncio.iscoroutine(outcome):
            outcome.close()

    def pause(self) -> None:
        """Nothing comes yet."""

    def resume(self) -> None:
        """Nothing comes yet."""

    def leave(self) -> None:
        """The client has gone before its request went anywhere."""
        self._left = True
