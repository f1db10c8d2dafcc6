"""Forks a session on its server."""

import asyncio
import os
from collections.abc import Mapping

from ors._protocol import FORK, IDEMPOTENCY_KEY, SESSION_ID
from ors.client.decode import field, items
from ors.client.server import RemoteServer
from ors.client.sessions.delete import delete


async def fork(remote: RemoteServer, headers: Mapping[str, str], count: int) -> list[str]:
    """The ids of `count` new sessions, forks of the one in `headers`. When cancelled, deletes them again.

    Raises:
        TransportError, ResponseError: there are none.
    """
    # A task of its own: if the caller is cancelled, `_undo` still needs the answer.
    asked = asyncio.create_task(_ask(remote, headers, count))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        # Shielded from a second cancellation; awaited, since the event loop may stop after us.
        await asyncio.shield(remote.in_background(_undo(remote, headers, asked)))
        raise


async def _ask(remote: RemoteServer, headers: Mapping[str, str], count: int) -> list[str]:
    # With a key, so that an attempt whose answer was lost is not a second fork.
    sent = {**headers, IDEMPOTENCY_KEY: os.urandom(16).hex()}
    answer = await remote.ask(FORK, headers=sent, body={"n": count}, seconds=remote.options.setup_seconds)
    return items(field(answer, "sids"), str, "session ids")


async def _undo(remote: RemoteServer, headers: Mapping[str, str], asked: asyncio.Task[list[str]]) -> None:
    seconds = remote.options.cleanup_seconds / 2
    await asyncio.wait({asked}, timeout=seconds)
    asked.cancel()  # closes the connection, which tells the server to undo the fork
    await asyncio.wait({asked})
    if not asked.cancelled() and asked.exception() is None:
        made = [{**headers, SESSION_ID: sid} for sid in asked.result()]
        await asyncio.gather(*(delete(remote, each, seconds) for each in made))
