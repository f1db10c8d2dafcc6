"""One tool call: sent once, rejoined until its result is here."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from ors._json import dumps
from ors._protocol import CALL, IDEMPOTENCY_KEY, RESULT_GONE, SESSION_OVER, UNKNOWN_TASK_ID, CallReader
from ors.client.interruptible import Interruptible
from ors.client.retry import Retry
from ors.client.server import RemoteServer, whole
from ors.client.status_errors import certainly_not_run, failure, too_large
from ors.client.transports.base import Broken, Response, drain
from ors.errors import CallOutcomeUnknown, SessionLost, ToolFailed, TransportError

__all__ = ["OnTaskId", "PendingCall"]

OnTaskId = Callable[[str], None]


class PendingCall:
    """One tool call, from its first byte out to its last event in.

    The server is told of it once. When the connection breaks, the call is rejoined: by its task id when that
    has arrived, else by its idempotency key where the server honours it, else not at all.
    """

    __slots__ = (
        "_body", "_headers", "_keeper", "_maybe_started", "_on_task_id", "_opened", "_path", "_pending",
        "_rejoining", "_remote", "_retry", "_task_id",
    )  # fmt: skip

    def __init__(
        self,
        remote: RemoteServer,
        pending: Interruptible,
        path: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        on_task_id: OnTaskId | None,
    ) -> None:
        self._remote = remote
        self._keeper = remote.keeper
        self._pending = pending
        self._path = path
        self._headers = {**headers, IDEMPOTENCY_KEY: os.urandom(16).hex()}
        self._body = body
        self._on_task_id = on_task_id
        self._task_id: str | None = body.get("task_id")
        self._maybe_started = self._rejoining = self._task_id is not None
        self._opened: float | None = None
        self._retry = Retry(remote.options, limit=remote.options.rejoins, seconds=remote.options.call_seconds)

    async def result(self) -> Any:
        """The call's result, parsed.

        Raises:
            ToolFailed, SessionLost, CallOutcomeUnknown, TransportError, ResponseError: there is none.
        """
        self._keeper.watch(self._pending)
        try:
            while True:
                try:
                    with self._pending:
                        return self._outcome(await self._attempt())
                except TransportError as error:
                    with self._pending:
                        await self._recover(error)
        finally:
            self._keeper.unwatch(self._pending)

    async def _attempt(self) -> CallReader:
        self._opened = None
        # Before its first byte only a server of ours is known not to wait for the environment's setup.
        self._pending.silent_after = self._silence() if self._remote.honours_keys else None
        response = await self._remote.send(CALL.method, self._path, self._headers, dumps(self._body))
        if response.status != 200:
            text = await whole(response, self._remote.options.answer_bytes)
            raise failure(response.status, response.headers, text)
        reader = CallReader()
        try:
            await self._read(response, reader)
        except BaseException:
            response.close()
            raise
        if not response.ended:
            await drain(response)
        return reader

    async def _read(self, response: Response, reader: CallReader) -> None:
        self._opened = asyncio.get_running_loop().time()
        left = limit = self._remote.options.answer_bytes
        async for chunk in response.body:
            self._pending.silent_after = self._silence()
            left -= len(chunk)
            if left < 0:
                raise ToolFailed(too_large("result", limit), reason="limit")
            done = reader.feed(chunk)
            if reader.task_id is not None and self._task_id is None:
                self._started(reader.task_id)
            if done:
                return
            if self._pending.silent_after > self._retry.deadline + self._remote.options.heartbeat_seconds:
                raise CallOutcomeUnknown(f"no result within {self._retry.seconds:g} s")
        raise Broken("the stream ended before its last event")

    def _silence(self) -> float:
        return asyncio.get_running_loop().time() + self._remote.options.heartbeat_seconds

    def _started(self, task_id: str) -> None:
        self._task_id = self._body["task_id"] = task_id
        if self._on_task_id is not None:
            self._on_task_id(task_id)

    async def _recover(self, error: TransportError) -> None:
        self._pending.silent_after = None
        self._maybe_started = self._maybe_started or not certainly_not_run(error)
        if self._maybe_started:
            if self._task_id is None and not self._remote.honours_keys:
                raise CallOutcomeUnknown(f"the call may have run: {error}") from error
            self._rejoining = True
        if self._opened is not None and self._held_long(self._opened):
            self._retry.reset()
        try:
            await self._retry.pause(error)
        except TransportError as last:
            if self._maybe_started:
                raise CallOutcomeUnknown(f"the call may have run, and cannot be rejoined: {last}") from error
            raise

    def _held_long(self, since: float) -> bool:
        # Something on the way that cuts every stream after a minute must not end a tool that takes an hour.
        return asyncio.get_running_loop().time() - since >= self._remote.options.heartbeat_seconds

    def _outcome(self, reader: CallReader) -> Any:
        if reader.error is not None:
            if reader.error.startswith(SESSION_OVER):
                raise SessionLost(reader.error, sid=self._headers.get("X-Session-ID"), reason=reader.reason)
            if self._rejoining and reader.error.startswith((UNKNOWN_TASK_ID, RESULT_GONE)):
                raise CallOutcomeUnknown(
                    f"the call has run or is running, but its result is lost: {reader.error}"
                )
            raise ToolFailed(reader.error or "the tool failed, without saying why", reason=reader.reason)
        try:
            return reader.value()
        except ValueError as error:
            raise ToolFailed(f"the result is not valid: {error}") from None
