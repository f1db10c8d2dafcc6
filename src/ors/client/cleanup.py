"""Sessions that nobody wants any more, and their deletion."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ors._protocol import DELETE, SESSION_ID
from ors.errors import Gone, NotFound, ORSError

if TYPE_CHECKING:
    from ors.client.server import RemoteServer

__all__ = ["Leftovers", "deleted"]

logger = logging.getLogger("ors.client")


class Leftovers:
    """Deletions that go on when their caller is cancelled. A client waits for them when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def delete(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs `work` in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def deleted(self) -> None:
        """Waits for all deletions that run on this loop."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)


async def deleted(remote: "RemoteServer", headers: Mapping[str, str], seconds: float) -> None:
    """Deletes the session in `headers`. One that cannot be deleted in time is left to expire, and logged."""
    try:
        async with asyncio.timeout(seconds):
            await remote.ask(DELETE, headers=headers)
    except (NotFound, Gone):
        return
    except ORSError as error:
        logger.warning("session %s could not be deleted, it will expire: %s", headers[SESSION_ID], error)
    except TimeoutError:
        told = "session %s was not seen to end within %g s: its teardown takes long, or it will expire"
        logger.warning(told, headers[SESSION_ID], seconds)
