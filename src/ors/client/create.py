"""How a session is opened: an id first, then an episode under it."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from ors._json import dumps
from ors._protocol import CREATE, CREATE_SESSION, EVENT_STREAM, SECRETS, CallReader
from ors.client.cleanup import deleted
from ors.client.decode import field
from ors.client.server import RemoteServer, Reply, parsed
from ors.client.status_errors import certainly_not_run
from ors.client.transports.base import Broken
from ors.errors import BadRequest, ORSError, ServerFailed, TransportError

__all__ = ["create", "new_sid"]


async def new_sid(remote: RemoteServer, headers: Mapping[str, str]) -> str:
    """A fresh session id. An id that gets lost on the way costs nothing, so this may be asked again.

    Raises:
        TransportError, ResponseError: there is none.
    """

    async def attempt() -> str:
        return _sid(await remote.exchange(CREATE_SESSION.method, CREATE_SESSION.path(), headers, b"{}"))

    return await remote.retry().until_answered(attempt)


def _sid(answer: Reply) -> str:
    if EVENT_STREAM not in answer.kind:
        sid: str = field(parsed(answer), "sid", str)
        return sid
    # ors-sdk 0.1.0 and openreward 0.1.167 always stream: the id is the task id, and `end` is empty.
    reader = CallReader()
    reader.feed(answer.data)
    if reader.error is not None:
        raise ServerFailed(reader.error or "the server gave no session id", reason=reader.reason)
    try:
        value = reader.value()
    except ValueError:
        raise Broken("the server's answer is not JSON") from None
    named = value.get("sid") if isinstance(value, dict) else reader.task_id
    if not named or not isinstance(named, str):
        raise Broken("the server's answer has no session id")
    return named


async def create(
    remote: RemoteServer, headers: Mapping[str, str], task: Mapping[str, Any], secrets: Mapping[str, str]
) -> None:
    """Starts the episode of `task` under the id in `headers`. Cancelled, it leaves no session behind.

    Raises:
        TransportError, ResponseError: it was not started.
    """
    sent = {**headers, SECRETS: _secrets_header(secrets)} if secrets else headers
    creation = _Creation(remote, sent)
    try:
        await _create(creation, task, secrets)
    except BaseException as error:
        if creation.maybe_made:
            undone = remote.leftovers.delete(creation.undo(headers))
            if not isinstance(error, ORSError):
                # Shielded: a second cancellation does not end it. Waited for: the loop may end with us.
                await asyncio.shield(undone)
        raise


async def _create(creation: "_Creation", task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    remote = creation.remote
    if secrets and remote.reads_secrets_in_body:
        try:
            return await creation.run({**task, "secrets": secrets})
        except BadRequest as error:
            # openreward 0.1.167 reads the header alone, and refuses the specification's field with 422.
            if error.status != 422 or "secrets" not in str(error):
                raise
            remote.reads_secrets_in_body = False
    return await creation.run(task)


class _Creation:
    """The requests that make one session: its id is ours alone."""

    def __init__(self, remote: RemoteServer, headers: Mapping[str, str]) -> None:
        self.remote = remote
        self._headers = headers
        self._broke_off = False
        self._lost = False  # an attempt whose answer is not known
        self._attempt: asyncio.Task[Reply] | None = None

    @property
    def maybe_made(self) -> bool:
        """Whether the server may have the session, or may get it yet."""
        if self._lost or self._attempt is None or not self._attempt.done() or self._attempt.cancelled():
            return self._attempt is not None
        error = self._attempt.exception()
        return error is None or (isinstance(error, TransportError) and not certainly_not_run(error))

    async def undo(self, headers: Mapping[str, str]) -> None:
        """Deletes the session, if there is one, or will be."""
        seconds = self.remote.options.cleanup_seconds / 2
        if self._attempt is not None and not self._attempt.done():
            # A deletion must not overtake the creation: it would find nothing, and the session would stay.
            # A creation without an answer may stand in line, which it leaves when its connection is cut.
            await asyncio.wait({self._attempt}, timeout=seconds)
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
        if self.maybe_made:
            await deleted(self.remote, headers, seconds)

    async def run(self, body: Mapping[str, Any]) -> None:
        """Asks until there is an answer."""
        data = dumps(body)

        async def attempt() -> None:
            # A task of its own: when its caller is cancelled, its answer is still to be known.
            self._attempt = asyncio.create_task(
                self.remote.exchange(CREATE.method, CREATE.path(), self._headers, data)
            )
            await self._answered(self._attempt)

        await self.remote.retry().until_answered(attempt)

    async def _answered(self, attempt: "asyncio.Task[Reply]") -> None:
        try:
            await asyncio.shield(attempt)
        except TransportError as error:
            self._broke_off = True
            self._lost = self._lost or not certainly_not_run(error)
            raise
        except BadRequest as error:
            # It exists because our own attempt, which broke off, had come through.
            if not (self._broke_off and "already exists" in str(error)):
                raise


def _secrets_header(secrets: Mapping[str, str]) -> str:
    wrapped = {name: {"value": value} for name, value in secrets.items()}
    return base64.b64encode(dumps(wrapped)).decode()
