"""Forks a session on its server."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ors._protocol import FORK, IDEMPOTENCY_KEY, SESSION_ID, valid_session_id
from ors.client.requests.decode import field
from ors.client.requests.server import RemoteServer
from ors.client.sessions.create import delete
from ors.errors import Gone, MethodNotAllowed, NotFound, ServerFailed, SessionLost

if TYPE_CHECKING:
    from ors.client.sessions.session import AsyncSession


async def forked(session: "AsyncSession", count: int) -> "list[AsyncSession]":
    """Forks of a session, open and pinged. Raises as `AsyncSession.fork` does."""
    headers = await session._opened_headers()
    try:
        sids = await session._until_lost(fork(session._remote, headers, count))
    except (NotFound, Gone, MethodNotAllowed) as error:
        found = error if isinstance(error, MethodNotAllowed) else await session._diagnosed(error)
        raise (found if isinstance(found, SessionLost) else cannot_fork()) from None
    return [_copy(session, sid) for sid in sids]


def _copy(session: "AsyncSession", sid: str) -> "AsyncSession":
    made = type(session)(session.env, sid=sid)
    made.task, made.split, made.index = session.task, session.split, session.index
    made._secrets, made._terminal = session._secrets, session._terminal
    made._environment, made._call_path = session._environment, session._call_path
    made._headers, made._attached = session._headers, False
    made._transcript = session._transcript and session._transcript.copy()
    made._set_sid(sid)
    made._keep_alive()
    return made


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


def cannot_fork() -> NotFound:
    """The error for a server without forks."""
    return NotFound(f"the server cannot fork sessions: it has no {FORK.path()}; open a new session instead")


async def _ask(remote: RemoteServer, headers: Mapping[str, str], count: int) -> list[str]:
    # With a key, so that an attempt whose answer was lost is not a second fork.
    sent = {**headers, IDEMPOTENCY_KEY: os.urandom(16).hex()}
    answer = await remote.ask(FORK, headers=sent, body={"n": count}, seconds=remote.options.setup_seconds)
    sids = field(answer, "sids", list)
    new = dict.fromkeys(sid for sid in sids if isinstance(sid, str) and valid_session_id(sid))
    new.pop(headers[SESSION_ID], None)
    if len(new) != count or len(sids) != count:
        remote.in_background(_delete_all(remote, headers, new))
        raise ServerFailed(f"the server's answer to fork({count}) is not {count} new session ids")
    return [*new]


async def _undo(remote: RemoteServer, headers: Mapping[str, str], asked: asyncio.Task[list[str]]) -> None:
    await asyncio.wait({asked}, timeout=remote.options.cleanup_seconds / 2)
    asked.cancel()  # closes the connection, which tells the server to undo the fork
    await asyncio.wait({asked})
    if not asked.cancelled() and asked.exception() is None:
        await _delete_all(remote, headers, asked.result())


async def _delete_all(remote: RemoteServer, headers: Mapping[str, str], sids: Iterable[str]) -> None:
    seconds = remote.options.cleanup_seconds / 2
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for sid in sids:  # one at a time, since an answer may name any number
                await delete(remote, {**headers, SESSION_ID: sid}, seconds)
