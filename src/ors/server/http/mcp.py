"""A session as an MCP server: the path that its owner hands out, and the messages that arrive there."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from ors import _protocol, mcp
from ors._json import dumps, loads
from ors.errors import BadRequest, ORSError
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import EMPTY, JSON, STREAM, Answer, answer
from ors.server.http.requests import Request
from ors.server.http.streams import CallStream, CallTimers, Later, Outcome, Sink
from ors.server.sessions.calls import Call
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from ors.types import Blocks, ToolSpec

_HEADERS = [(name.encode(), name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name")]
_BLOCKS: TypeAdapter[Blocks] = TypeAdapter(Blocks)


class MCP:
    def __init__(
        self,
        environments: Mapping[str, ServedEnvironment],
        sessions: Sessions,
        timers: CallTimers,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._shared = sessions.shared
        self._sessions = sessions
        self._timers = timers
        self._tasks = tasks
        self._tools = {name: {tool.name for tool in each.tools.tools} for name, each in environments.items()}

    async def open(self, request: Request) -> Answer:
        """Gives the path at which MCP clients play a session, once it is set up."""
        session = self._sessions.find(request.session_id(), self._shared.now(), request.key)
        await session.ready()
        return answer({"path": f"{_protocol.MCP.path()}/{self._sessions.token(session)}"})

    def score(self, request: Request) -> Answer:
        """What the calls of a session have earned: for its owner, who gets none of their results."""
        session = self._sessions.find(request.session_id(), self._shared.now(), request.key)
        score, finished = session.score, session.episode is not None and session.episode.finished
        counts = {"calls": score.calls, "rewards": [*(score.rewards or ())]}
        return answer({**counts, "finished": finished, "failed": score.failed})

    def message(self, token: str, request: Request) -> Outcome:
        """Answers an MCP client, for whom the token is all that it needs."""
        session = self._sessions.by_token(token, self._shared.now())
        try:
            message = _message(request)
            if message.id is None:
                return Answer(202, b"", EMPTY)
            if message.method == "tools/call":
                name, given = mcp.asked(message)
                if name in self._tools[session.environment]:  # not so tools of one task, or long names
                    return self._call(session, message, name, given, request)
        except mcp.Refused as refused:
            return Answer(refused.status, refused.answer())
        return Later(request, self._later(session, message, request), self._tasks)

    async def _later(self, session: ServerSession, message: mcp.Message, request: Request) -> Outcome:
        tools = partial(_tools, session)
        try:
            if message.method != "tools/call":
                return Answer(200, await mcp.told(message, tools, partial(_prompt, session)))
            name = await mcp.tool_named(message, tools)
            return self._call(session, message, name, mcp.asked(message)[1], request)
        except mcp.Refused as refused:
            return Answer(refused.status, refused.answer())
        except ORSError as failure:
            return Answer(200, mcp.failed(message, str(failure)))

    def _call(
        self, session: ServerSession, message: mcp.Message, name: str, given: dict[str, Any], request: Request
    ) -> Outcome:
        loop = self._shared.loop or asyncio.get_running_loop()
        body = None if self._shared.recent is None else dumps({"name": name, "input": given})
        try:
            call = session.submit(name, given, loop, None, request.idempotency_key(), request.trace(), body)
        except ORSError as failure:
            return Answer(200, mcp.failed(message, str(failure)))
        if isinstance(call, Call):
            return MCPStream(call, self._timers, message, request)
        return Answer(200, mcp.failed(message, _protocol.RESULT_GONE))


class MCPStream(CallStream):
    """The answer to a call: JSON, or if it takes long, events with progress and then the result."""

    def __init__(self, call: Call, timers: CallTimers, message: mcp.Message, request: Request) -> None:
        super().__init__(call, timers)
        self._signs = 0
        self._message = message
        self._request = request

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        if self._call.ending is None:
            super().begin(sink)
        else:
            self._done()

    def open(self) -> None:
        """Begins a stream of events, if the client takes one: the call takes long."""
        if self._sink is not None and self._request.wants_events():
            self._opened = True
            self._sink.head(200, STREAM, self.sign())
            self._timers.pings.add(self)

    def sign(self) -> bytes:
        self._signs += 1
        return mcp.event(self._message.progress(self._signs))

    def _done(self) -> None:
        sink, ending, self._sink = self._sink, self._call.ending, None
        if sink is None or ending is None:
            return
        self._timers.pings.remove(self)
        self._timers.opening.remove(self)
        answer = _result(self._message, ending)
        if self._opened:
            sink.end(mcp.event(answer))
        else:
            sink.whole(200, JSON, answer)

    def leave(self) -> None:
        """Stops writing. The call goes on; it keeps its listener, as nobody comes back for the result."""
        self._sink = None
        self._timers.opening.remove(self)
        self._timers.pings.remove(self)


async def _tools(session: ServerSession) -> list[ToolSpec]:
    listed = await session.tools()
    return [*listed.tools, *(last.as_tool() for last in [listed.terminal_tool] if last is not None)]


async def _prompt(session: ServerSession) -> Blocks:
    return _BLOCKS.validate_json(await session.prompt(), extra="ignore")


def _message(request: Request) -> mcp.Message:
    headers = {
        name: request.headers[key].decode("latin-1") for key, name in _HEADERS if key in request.headers
    }
    try:
        return mcp.parsed(request.value(), headers)
    except BadRequest as wrong:
        raise mcp.Refused(mcp.PARSE_ERROR, str(wrong)) from None


def lost_call(request: Request, text: str) -> bytes:
    """The answer to a message whose server was lost: if it was a call, that may have run."""
    try:
        return _message(request).refused(mcp.INTERNAL, text).answer()
    except mcp.Refused:
        return mcp.Refused(mcp.INTERNAL, text).answer()


def _result(message: mcp.Message, ending: bytes) -> bytes:
    error = _protocol.ending_error(ending)
    if error is not None:
        return mcp.failed(message, error[0])
    result = loads(ending)
    if not result["ok"]:
        return mcp.failed(message, result["error"])
    return mcp.called(message, result["output"]["blocks"], result["output"]["finished"])
