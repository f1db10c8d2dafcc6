"""One tool call: sent once, rejoined until its result arrives."""

import os
from collections.abc import Mapping
from itertools import count
from typing import Any
from urllib.parse import unquote

from ors._json import dumps
from ors._protocol import (
    CALL,
    EVENT_STREAM,
    IDEMPOTENCY_KEY,
    RESULT_GONE,
    SESSION_ID,
    SESSION_OVER,
    UNKNOWN_TASK_ID,
    CallReader,
)
from ors.client.requests.keepalive import Interruptible
from ors.client.requests.retry import Retry, certainly_not_run, failure, too_large
from ors.client.requests.server import RemoteServer, read_body
from ors.client.transports.base import Broken, Response, read_rest
from ors.client.transports.multiplexed import Answer, OnTaskId
from ors.errors import CallOutcomeUnknown, ORSError, SessionLost, ToolCallError, ToolFailed, TransportError


class CallAddress:
    """Where the calls of one session go."""

    __slots__ = ("_keys", "_name", "headers", "path", "remote", "sid", "wire_path")

    def __init__(self, remote: RemoteServer, path: str, headers: Mapping[str, str]) -> None:
        self.remote = remote
        self.path = path
        self.wire_path = unquote(path).encode()
        """The path in a frame."""
        self.headers = {**headers, "Accept": EVENT_STREAM}
        self.sid = headers[SESSION_ID]
        self._name = os.urandom(8).hex()  # another process may be attached to the same session
        self._keys = count(1)

    def new_key(self) -> str:
        """An idempotency key that no other call of the session has."""
        return f"{self._name}-{next(self._keys)}"


class PendingCall(Interruptible):
    """One tool call, from the first byte of its request to the last event of its stream.

    The tool runs once. When the connection breaks, the call is rejoined by its task id if that has arrived,
    else by its idempotency key if the server honours it, else not at all.

    Raises:
        ToolCallError: the input of `asked` cannot be one.
    """

    # Class attributes, since most calls set none of them.
    _task_id: str | None = None
    _maybe_started = False
    _opened: float | None = None
    _retry: Retry | None = None  # since the connection broke without progress
    _answer: Answer | None = None  # while it is waited for over a link

    def __init__(self, to: CallAddress, asked: dict[str, Any], on_task_id: OnTaskId | None) -> None:
        super().__init__()
        given = asked["input"]
        if not isinstance(given, (dict, Mapping)):  # `dict` first, which takes a tenth of the time
            raise ToolCallError(f"Tool input must be a dictionary, got {type(given).__name__}")
        for key in given:
            if not isinstance(key, str):
                raise ToolCallError(f"All keys in tool input must be strings, found {key!r}")
        self._to = to
        self._remote = to.remote
        self._key = to.new_key()
        self._asked = asked
        self.body = dumps(asked)
        self._on_task_id = on_task_id
        if "task_id" in asked:
            self._task_id, self._maybe_started = asked["task_id"], True
        self._deadline = self.loop.time() + to.remote.options.call_seconds

    async def result(self) -> bytes | str:
        """Runs the call; returns its result as JSON.

        Raises:
            ToolFailed, SessionLost, CallOutcomeUnknown, TransportError, ResponseError: there is no result.
        """
        keepalive = self._remote.keepalive
        keepalive.watch(self)
        try:
            while True:
                try:
                    return await self._attempt()
                except TransportError as error:
                    with self:
                        await self._recover(error)
        finally:
            keepalive.unwatch(self)

    async def _attempt(self) -> bytes | str:
        self._opened, to, remote = None, self._to, self._remote
        # Other servers send no byte, not even a ping, while they wait for the environment's setup.
        silence = self.loop.time() + remote.options.heartbeat_seconds
        self.silent_after = silence if remote.honours_keys else self._deadline
        link = None if remote.links is None else remote.links.link_up(to.headers, self.loop)
        on_task_id = None if self._on_task_id is None else self._tell
        answer = None if link is None else link.call(to.wire_path, to.sid, self._key, self.body, on_task_id)
        if answer is None:
            headers = {**to.headers, IDEMPOTENCY_KEY: self._key}
            with self:
                return await self._streamed(await remote.send(CALL.method, to.path, headers, self.body))
        self._answer = answer
        try:
            told = await answer.begun
        except BaseException:
            answer.close()
            raise
        finally:
            self._answer = None
        if told is None:
            if answer.is_too_long:
                answer.close()
                raise ToolFailed(too_large("result", remote.options.answer_bytes), reason="limit")
            with self:
                return await self._streamed(await answer.arrived())
        return told

    def interrupt(self, error: ORSError) -> None:
        """Makes the call raise `error`. Over a link by its answer, without cancelling the task."""
        if self._answer is None:
            super().interrupt(error)
        elif isinstance(error, TransportError) and self._still_arrives(self._answer):
            return
        elif not self._answer.begun.done():
            self._answer.begun.set_exception(error)
        elif not isinstance(error, TransportError):
            self.loop.call_soon(self.interrupt, error)  # when the call has woken, unless it is over then

    def _tell(self, task_id: str) -> None:
        """Tells the caller the id of the call, once: every attempt receives it."""
        on_task_id, self._on_task_id = self._on_task_id, None
        if on_task_id is not None:
            on_task_id(task_id)

    def _still_arrives(self, answer: Answer) -> bool:
        return self.loop.time() - answer.heard < self._remote.options.heartbeat_seconds

    async def _streamed(self, response: Response) -> str:
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
        return self._outcome(reader)

    async def _read(self, response: Response, reader: CallReader) -> None:
        loop, options = self.loop, self._remote.options
        self._opened = loop.time()
        left = limit = options.answer_bytes
        async for chunk in response.body:
            self.silent_after = silent_after = loop.time() + options.heartbeat_seconds
            left -= len(chunk)
            if left < 0:
                raise ToolFailed(too_large("result", limit), reason="limit")
            done = reader.feed(chunk)
            if reader.task_id is not None and self._task_id is None:
                self._task_id = self._asked["task_id"] = reader.task_id
                self.body = dumps(self._asked)
                if self._on_task_id is not None:
                    self._tell(reader.task_id)
            if done:
                return
            if silent_after > self._deadline + options.heartbeat_seconds:
                raise CallOutcomeUnknown(
                    f"the call has no result after {options.call_seconds:g} s, and may still run;"
                    " Options(call_seconds=...) allows more"
                )
        raise Broken("the stream ended before its last event")

    async def _recover(self, error: TransportError) -> None:
        self.silent_after = None
        self._maybe_started = self._maybe_started or not certainly_not_run(error)
        if self._maybe_started and self._task_id is None and not self._remote.honours_keys:
            raise CallOutcomeUnknown(f"the call may have run: {error}") from error
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
        held = 0.0 if self._opened is None else self.loop.time() - self._opened
        return held >= self._remote.options.heartbeat_seconds

    def _outcome(self, reader: CallReader) -> str:
        if reader.error is not None:
            if reader.error.startswith(SESSION_OVER):
                raise SessionLost(reader.error, reason=reader.reason)
            if self._maybe_started and reader.error.startswith((UNKNOWN_TASK_ID, RESULT_GONE)):
                raise CallOutcomeUnknown(
                    f"the call has run or is running, but its result is lost: {reader.error}"
                )
            raise ToolFailed(reader.error or "the tool failed, without saying why", reason=reader.reason)
        return reader.result or "null"
