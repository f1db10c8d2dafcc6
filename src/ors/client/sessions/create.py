"""Creates a session on its server, forks it, and deletes it."""

import asyncio
import base64
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ors._json import dumps, loads
from ors._protocol import (
    CREATE,
    CREATE_SESSION,
    DELETE,
    FORK,
    IDEMPOTENCY_KEY,
    IDLE_SECONDS,
    PROMPT,
    SECRETS,
    SESSION_ID,
    TASK_TOOLS,
    CallReader,
    Endpoint,
    valid_session_id,
)
from ors.client.requests.decode import Task, field
from ors.client.requests.retry import RetryInLine, certainly_not_run
from ors.client.requests.server import RemoteServer, parsed
from ors.client.transports.base import Broken
from ors.client.transports.multiplexed import Answer, Link
from ors.errors import (
    BadRequest,
    Gone,
    MethodNotAllowed,
    NotFound,
    ORSError,
    ResponseError,
    ServerFailed,
    SessionLost,
    TransportError,
)

if TYPE_CHECKING:
    from ors.client.sessions.session import AsyncSession


async def new_sid(remote: RemoteServer, headers: Mapping[str, str]) -> str:
    """A new session id: made here, or asked of the server. Retried: an id that is never used costs nothing.

    Raises:
        TransportError, ResponseError: the server gave none.
    """
    link = remote.link(headers)
    if link is not None and (sid := link.new_sid()):
        return sid

    async def attempt() -> str:
        answer = await remote.exchange(CREATE_SESSION.method, CREATE_SESSION.path(), headers, b"{}")
        return checked_sid(_sid(answer), ServerFailed)

    return await remote.retry().run(attempt)


def checked_sid(sid: str, error: type[ResponseError] = BadRequest) -> str:
    """Returns `sid`, or raises `error` if it cannot name a session."""
    if not valid_session_id(sid):
        raise error(f"not a valid session id: {sid!r:.100}; use 1 to 256 characters without line breaks")
    return sid


def _sid(answer: bytes) -> str:
    if answer.lstrip()[:1] not in b"e:":
        sid: str = field(parsed(answer), "sid", str)
        return sid
    # ors-sdk 0.1.0 and openreward 0.1.167 always stream: the id is the task id, and `end` is empty.
    reader = CallReader()
    reader.feed(answer)
    if reader.error is not None:
        raise ServerFailed(reader.error or "the server gave no session id", reason=reader.reason)
    try:
        value = loads(reader.result or "null")
    except ValueError:
        raise Broken("the server's answer is not JSON") from None
    named = value.get("sid") if isinstance(value, dict) else reader.task_id
    if not named or not isinstance(named, str):
        raise Broken("the server's answer has no session id")
    return named


def task_body(environment: str, task: Task | None, split: str | None, index: int | None) -> dict[str, Any]:
    """The body of a creation, before its secrets."""
    if task is not None:
        return {"env_name": environment, "task_spec": task.task_spec}
    return {"env_name": environment, "split": split, "index": index}


async def create(
    remote: RemoteServer, headers: Mapping[str, str], task: Mapping[str, Any], secrets: Mapping[str, str]
) -> None:
    """Starts the episode of `task` under the id in `headers`. When cancelled, deletes it again.

    Raises:
        TransportError, ResponseError: the episode was not started.
    """
    more = {SECRETS: _secrets_header(secrets)} if secrets else {}
    if remote.options.idle_seconds is not None:
        more[IDLE_SECONDS] = str(remote.options.idle_seconds)
    creation = _Creation(remote, {**headers, **more})
    try:
        await _create(creation, task, secrets)
    except BaseException as error:
        if creation.maybe_created:
            undo = remote.in_background(creation.undo(headers))
            if not isinstance(error, ORSError):
                # Shielded from a second cancellation; awaited, since the event loop may stop after us.
                await asyncio.shield(undo)
        raise


async def _create(creation: "_Creation", task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    remote = creation.remote
    if secrets and remote.reads_secrets_in_body:
        try:
            return await creation.run({**task, "secrets": secrets})
        except BadRequest as error:
            # openreward 0.1.167 reads only the header, and answers 422 to the field of the specification.
            if error.status != 422 or "secrets" not in str(error):
                raise
            remote.reads_secrets_in_body = False
    return await creation.run(task)


class _Creation:
    """The requests that create one session. Only this client knows its id."""

    def __init__(self, remote: RemoteServer, headers: Mapping[str, str]) -> None:
        self.remote = remote
        self._headers = headers
        self._broke_off = False
        self._outcome_unknown = False  # of an earlier attempt
        self._attempt: asyncio.Task[bytes] | None = None
        self.maybe_created = False
        """Whether the server may have created the session, or may still create it."""

    async def undo(self, headers: Mapping[str, str]) -> None:
        """Deletes the session if it was created, or is being created."""
        seconds = self.remote.options.cleanup_seconds / 2
        if self._attempt is not None and not self._attempt.done():
            # A deletion that overtakes the creation would find nothing, and the session would stay.
            # A creation without an answer may be queued; closing its connection takes it off the queue.
            await asyncio.wait({self._attempt}, timeout=seconds)
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
        await delete(self.remote, headers, seconds)

    async def run(self, body: Mapping[str, Any]) -> None:
        """Sends the request until the server answers it."""
        data = dumps(body)
        await RetryInLine(self.remote.options, self.remote.lines[body["env_name"]]).run(
            lambda: self._try(data)
        )

    async def _try(self, data: bytes) -> None:
        answer = self.remote.ask_by_link(CREATE, self._headers, data)
        self.maybe_created = True
        try:
            if answer is not None:
                await self.remote.complete(await answer.arrived())  # over a link, no deletion overtakes it
            else:
                # A task of its own: if the caller is cancelled, `undo` still needs the answer.
                asked = self.remote.exchange(CREATE.method, CREATE.path(), self._headers, data)
                self._attempt = asyncio.create_task(asked)
                await asyncio.shield(self._attempt)
        except TransportError as error:
            self._broke_off = True
            self._outcome_unknown = self._outcome_unknown or not certainly_not_run(error)
            self.maybe_created = self._outcome_unknown
            raise
        except BadRequest as error:
            # An earlier attempt created it, and only its answer was lost.
            if not (self._broke_off and "already exists" in str(error)):
                self.maybe_created = self._outcome_unknown
                raise
        except ORSError:
            self.maybe_created = self._outcome_unknown
            raise


def _secrets_header(secrets: Mapping[str, str]) -> str:
    wrapped = {name: {"value": value} for name, value in secrets.items()}
    return base64.b64encode(dumps(wrapped)).decode()


logger = logging.getLogger("ors.client")
_DELETED = frozenset({200, NotFound.status, Gone.status})


async def delete(remote: RemoteServer, headers: Mapping[str, str], seconds: float | None = None) -> None:
    """Deletes the session in `headers`. If that fails or takes over `seconds`, logs that it will expire."""
    try:
        await remote.ask(DELETE, headers=headers, seconds=seconds)
    except (NotFound, Gone):
        pass
    except ORSError as error:
        logger.warning("session %s could not be deleted, it will expire: %s", headers[SESSION_ID], error)
        return
    remote.freed()


Ending = set[asyncio.Future[Any]]
"""Deletions of sessions that are under way."""


async def all_ended(ending: Ending, seconds: float) -> None:
    """Waits for deletions, for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while ending:
                await asyncio.wait(ending)


def delete_later(remote: RemoteServer, headers: Mapping[str, str], ending: Ending | None = None) -> None:
    """Deletes the session in `headers`, and does not wait for it: it is in `ending` meanwhile."""
    under_way: Ending = set() if ending is None else ending

    def delete_in_background() -> None:
        task = remote.in_background(delete(remote, headers, remote.options.cleanup_seconds))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    answer = remote.ask_by_link(DELETE, headers)
    if answer is None:
        delete_in_background()
        return

    def ended(begun: asyncio.Future[bytes | None]) -> None:
        under_way.discard(begun)
        if answer.status in _DELETED:
            remote.freed()
        elif not begun.cancelled():
            delete_in_background()

    under_way.add(answer.begun)
    remote.wait_at_close(answer.begun)
    answer.begun.add_done_callback(ended)


class Ahead:
    """What a session asks along with its creation, so that nobody has to wait for it later.

    Over a link, that is what earlier sessions of the environment asked before their first call: so nobody
    gives a prompt that is not wanted.
    """

    __slots__ = ("_asked", "_usual", "is_over")

    def __init__(self, usual: set[Endpoint]) -> None:
        self._usual = usual
        self._asked: dict[Endpoint, Answer] = {}
        self.is_over = False
        """Whether the first call was made."""

    def begin(self, remote: RemoteServer, environment: str, headers: Mapping[str, str]) -> None:
        link = remote.link(headers)
        if self._usual and link is not None:
            # In the next turn of the event loop: behind the creation, in the same write.
            asyncio.get_running_loop().call_soon(self._ask, link, remote, environment, headers)

    def _ask(self, link: Link, remote: RemoteServer, environment: str, headers: Mapping[str, str]) -> None:
        for each in () if self.is_over else self._usual:
            answer = link.ask(each.method, remote.path(each, environment), headers, b"")
            if answer is not None:
                self._asked[each] = answer

    def take(self, endpoint: Endpoint) -> Answer | None:
        """The answer that was asked for ahead, if it was. If it is an error, it is to be asked for again."""
        if not self.is_over and endpoint in (PROMPT, TASK_TOOLS):
            self._usual.add(endpoint)
        return self._asked.pop(endpoint, None)

    def end(self) -> None:
        """Drops what nobody has asked for: a call may change it, and the next session need not ask."""
        self.is_over = True
        self._usual.difference_update(self._asked)
        for answer in self._asked.values():
            answer.close()
        self._asked.clear()


# ── Forks ────────────────────────────────────────────────────────────────────────────────────────


async def forked(session: "AsyncSession", count: int) -> "list[AsyncSession]":
    """Forks of a session, open and pinged. Raises as `AsyncSession.fork` does."""
    headers = await session._opened_headers()
    try:
        sids = await session._until_lost(fork(session._remote, headers, count))
    except (NotFound, Gone, MethodNotAllowed) as error:
        found = error if isinstance(error, MethodNotAllowed) else await session._diagnosed(error)
        if not isinstance(found, SessionLost):
            why = f"the server cannot fork sessions: it has no {FORK.path()}; open a new session instead"
            found = NotFound(why)
        raise found from None
    return [_session_of_fork(session, sid) for sid in sids]


def _session_of_fork(session: "AsyncSession", sid: str) -> "AsyncSession":
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
    # A task of its own: if the caller is cancelled, `_undo_fork` still needs the answer.
    asked = asyncio.create_task(_ask_fork(remote, headers, count))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        # Shielded from a second cancellation; awaited, since the event loop may stop after us.
        await asyncio.shield(remote.in_background(_undo_fork(remote, headers, asked)))
        raise


async def _ask_fork(remote: RemoteServer, headers: Mapping[str, str], count: int) -> list[str]:
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


async def _undo_fork(
    remote: RemoteServer, headers: Mapping[str, str], asked: asyncio.Task[list[str]]
) -> None:
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
