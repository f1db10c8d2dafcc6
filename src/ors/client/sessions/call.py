"""One tool call: sent once, rejoined until its result arrives."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from ors._json import dumps, loads
from ors._protocol import CALL, IDEMPOTENCY_KEY, RESULT_GONE, SESSION_OVER, UNKNOWN_TASK_ID, CallReader
from ors._protocol.frames import read_result
from ors.client.requests.keepalive import Interruptible
from ors.client.requests.retry import Retry
from ors.client.requests.server import RemoteServer, read_body
from ors.client.requests.status_errors import certainly_not_run, failure, too_large
from ors.client.transports.base import Broken, Response, read_rest
from ors.errors import CallOutcomeUnknown, SessionLost, ToolFailed, TransportError

OnTaskId = Callable[[str], None]


class PendingCall:
    """One tool call, from the first byte of its request to the last event of its stream.

    The tool runs once. When the connection breaks, the call is rejoined by its task id if that has arrived,
    else by its idempotency key if the server honours it, else not at all.
    """

    __slots__ = (
        "_body", "_deadline", "_headers", "_keepalive", "_maybe_started", "_on_task_id", "_opened", "_path",
        "_rejoining", "_remote", "_retry", "_task_id", "_wait",
    )  # fmt: skip

    def __init__(
        self,
        remote: RemoteServer,
        wait: Interruptible,
        path: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        on_task_id: OnTaskId | None,
    ) -> None:
        self._remote = remote
        self._keepalive = remote.keepalive
        self._wait = wait
        self._path = path
        self._headers = {**headers, IDEMPOTENCY_KEY: os.urandom(16).hex()}
        self._body = body
        self._on_task_id = on_task_id
        self._task_id: str | None = body.get("task_id")
        self._maybe_started = self._rejoining = self._task_id is not None
        self._opened: float | None = None
        self._deadline = asyncio.get_running_loop().time() + remote.options.call_seconds
        self._retry: Retry | None = None  # since the connection broke without progress

    async def result(self) -> Any:
        """Runs the call; returns its result as parsed JSON.

        Raises:
            ToolFailed, SessionLost, CallOutcomeUnknown, TransportError, ResponseError: there is no result.
        """
        self._keepalive.watch(self._wait)
        try:
            while True:
                try:
                    with self._wait:
                        return self._outcome(await self._attempt())
                except TransportError as error:
                    with self._wait:
                        await self._recover(error)
        finally:
            self._keepalive.unwatch(self._wait)

    async def _attempt(self) -> CallReader | bytes:
        self._opened = None
        # Other servers send no byte, not even a ping, while they wait for the environment's setup.
        silence = asyncio.get_running_loop().time() + self._remote.options.heartbeat_seconds
        self._wait.silent_after = silence if self._remote.honours_keys else self._deadline
        links, body = self._remote.links, dumps(self._body)
        told = None if links is None else await links.call(self._path, self._headers, body)
        if isinstance(told, bytes):
            if self._on_task_id is not None and self._task_id is None:
                self._on_task_id(read_result(told)[0])
            return told
        response = told or await self._remote.send(CALL.method, self._path, self._headers, body)
        if response.status != 200:
            text = await read_body(response, self._remote.options.answer_bytes)
            raise failure(response.status, response.headers, text)
        reader = CallReader()
        try:
            await self._read(response, reader)
        except BaseException:
            response.close()
            raise
        if not response.ended:
            await read_rest(response)
        return reader

    async def _read(self, response: Response, reader: CallReader) -> None:
        loop, options = asyncio.get_running_loop(), self._remote.options
        self._opened = loop.time()
        left = limit = options.answer_bytes
        async for chunk in response.body:
            self._wait.silent_after = silent_after = loop.time() + options.heartbeat_seconds
            left -= len(chunk)
            if left < 0:
                raise ToolFailed(too_large("result", limit), reason="limit")
            done = reader.feed(chunk)
            if reader.task_id is not None and self._task_id is None:
                self._task_id = self._body["task_id"] = reader.task_id
                if self._on_task_id is not None:
                    self._on_task_id(reader.task_id)
            if done:
                return
            if silent_after > self._deadline + options.heartbeat_seconds:
                raise CallOutcomeUnknown(
                    f"the call has no result after {options.call_seconds:g} s, and may still run;"
                    " Options(call_seconds=...) allows more"
                )
        raise Broken("the stream ended before its last event")

    async def _recover(self, error: TransportError) -> None:
        self._wait.silent_after = None
        self._maybe_started = self._maybe_started or not certainly_not_run(error)
        if self._maybe_started:
            if self._task_id is None and not self._remote.honours_keys:
                raise CallOutcomeUnknown(f"the call may have run: {error}") from error
            self._rejoining = True
        if self._retry is None or self._held_long():
            options = self._remote.options
            seconds, deadline = options.call_seconds, self._deadline
            self._retry = Retry(options, limit=options.rejoins, seconds=seconds, deadline=deadline)
        try:
            await self._retry.pause(error)
        except TransportError as last:
            if self._maybe_started:
                raise CallOutcomeUnknown(f"the call may have run, and cannot be rejoined: {last}") from error
            raise

    def _held_long(self) -> bool:
        # A proxy that cuts every stream after a minute must not end a tool that takes an hour.
        held = 0.0 if self._opened is None else asyncio.get_running_loop().time() - self._opened
        return held >= self._remote.options.heartbeat_seconds

    def _outcome(self, reader: CallReader | bytes) -> Any:
        if isinstance(reader, CallReader) and reader.error is not None:
            if reader.error.startswith(SESSION_OVER):
                raise SessionLost(reader.error, reason=reader.reason)
            if self._rejoining and reader.error.startswith((UNKNOWN_TASK_ID, RESULT_GONE)):
                raise CallOutcomeUnknown(
                    f"the call has run or is running, but its result is lost: {reader.error}"
                )
            raise ToolFailed(reader.error or "the tool failed, without saying why", reason=reader.reason)
        try:
            return loads(read_result(reader)[1]) if isinstance(reader, bytes) else reader.value()
        except ValueError as error:
            raise ToolFailed(f"the result is not valid: {error}") from None
