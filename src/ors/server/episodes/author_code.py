"""How a server runs the code of environments."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ors.server.episodes.error_text import ErrorText
from ors.server.episodes.threads import Threads
from ors.server.observe.sandbox_counts import SandboxCounts

CLEAN_UP_SECONDS = 1.0
"""How long cancelled code may still clean up."""


@dataclass(frozen=True, slots=True)
class AuthorCode:
    """What the code of all environments of a server runs with."""

    threads: Threads
    error_text: ErrorText
    sandboxes: SandboxCounts


class OutOfTime(Exception):
    """Authors' code did not end in time."""


async def within(seconds: float | None, work: Coroutine[Any, Any, Any]) -> None:
    """Runs `work`. When the time is up, or this is cancelled, cancels it, and soon goes on without it.

    Raises:
        OutOfTime: it did not end in time; the cause says where it was.
    """
    task = asyncio.ensure_future(work)
    late = True
    try:
        await asyncio.wait({task}, timeout=seconds)
        late = not task.done()
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({task}, timeout=CLEAN_UP_SECONDS)
    try:
        task.result()
    except (asyncio.CancelledError, asyncio.InvalidStateError) as error:
        raise OutOfTime if late else asyncio.CancelledError from error
