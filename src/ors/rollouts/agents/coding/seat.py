"""Seat: a place at an episode for whoever plays it over MCP, and the address on loopback where it is."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from itertools import takewhile
from secrets import token_urlsafe
from typing import Any, NamedTuple

import uvicorn

from ors import mcp
from ors._protocol import EVENT_STREAM
from ors.client import ToolInvocation, http_transport
from ors.errors import ToolCallError, TransportError
from ors.providers.messages import AgentMessage, ToolMessage, UserMessage, text_blocks
from ors.rollouts.episodes.episode import Conversation
from ors.types import Blocks, ToolSpec, described

OVER = "The episode is over."
HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
LARGEST_MESSAGE = 64 * 2**20


class Reply(NamedTuple):
    """What an MCP client is sent: a body, or if a call takes long, messages."""

    status: int
    body: bytes = b""
    messages: AsyncIterator[bytes | None] | None = None
    """Progress, or None as a sign of life, and at last the answer; the model's own, if it has headers."""
    headers: Mapping[str, str] | None = None


class Seat:
    """A place at one episode. The driver sees the agent that sits there; MCP clients see the episode."""

    def __init__(self) -> None:
        self.left = False
        """Whether the driver has heard the last words of an agent that left."""
        self._conversation: Conversation | None = None
        self._all_tools: Sequence[ToolSpec] = ()
        self.begun = asyncio.Event()
        """Set when clients are answered."""
        self._moves: asyncio.Queue[AgentMessage | Exception] = asyncio.Queue()
        self._waiting: dict[str | None, asyncio.Future[ToolMessage]] = {}
        self._calls = 0
        self._over: str | None = None

    # ── What the driver sees ──

    @asynccontextmanager
    async def joining(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[None]:
        """Lets clients see the episode."""
        self._conversation, self._all_tools = conversation, tools
        self.begun.set()
        yield

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Hands over the results so far; returns the next call, or the last words of an agent that left."""
        self._hand_over()
        move = await self._moves.get()
        if isinstance(move, Exception):
            raise move
        self.left = not move.calls
        return move

    def leave(self, last: AgentMessage | Exception) -> None:
        """The agent has left: with its last words, or by an error."""
        self._moves.put_nowait(last)
        self._moves.put_nowait(AgentMessage(stop="empty"))  # to a nudge, which nobody hears any more

    def close(self, why: str = OVER) -> None:
        """Hands over the last results, and refuses all other calls."""
        self._hand_over()
        self._over = self._over or why
        self.begun.set()
        for call, answer in self._waiting.items():
            if not answer.done():
                answer.set_result(ToolMessage(call, "", text_blocks(why), ok=False))

    def _hand_over(self) -> None:
        messages = [] if self._conversation is None else self._conversation.messages
        for message in takewhile(lambda each: isinstance(each, ToolMessage), reversed(messages)):
            assert isinstance(message, ToolMessage)
            answer = self._waiting.pop(message.call, None)
            if answer is not None and not answer.done():  # its client may have gone
                answer.set_result(message)

    # ── What MCP clients see: results without their rewards, so that nothing here can tell them ──

    async def heard(
        self, sent: bytes, headers: Mapping[str, str] | None = None, *, streams: bool = True
    ) -> Reply:
        """Answers a message. A call goes on if its client leaves."""
        try:
            message = mcp.read(sent, headers)
        except mcp.Refused as refused:
            return Reply(refused.status, refused.answer())
        if message.id is None:
            return Reply(202)  # cancellations too: a call that runs is finished, as it is for other clients
        task = asyncio.create_task(self._answer(message))
        long = streams and message.method == "tools/call"
        await asyncio.wait({task}, timeout=mcp.AT_ONCE_SECONDS if long else None)
        return task.result() if task.done() else Reply(200, messages=_messages(message, task))

    async def _answer(self, message: mcp.Message) -> Reply:
        try:
            if message.method == "tools/call":
                return Reply(200, await self._call(message))
            return Reply(200, await mcp.told(message, self._tools, self._prompt))
        except mcp.Refused as refused:
            return Reply(refused.status, refused.answer())

    async def _call(self, message: mcp.Message) -> bytes:
        name, given = mcp.asked(message)
        await self.begun.wait()
        if self._over is not None:
            return mcp.failed(message, self._over)
        name = await mcp.tool_named(message, self._tools)
        self._calls += 1
        call = ToolInvocation(name, given, f"call_{self._calls}")
        answer = self._waiting[call.id] = asyncio.get_running_loop().create_future()
        self._moves.put_nowait(AgentMessage(calls=(call,)))
        result = await answer
        if not result.ok:
            return mcp.failed(message, described(result.blocks))
        return mcp.called(message, map(vars, result.blocks), result.finished)

    async def _tools(self) -> list[ToolSpec]:
        await self._prompt()
        return list(self._all_tools)

    async def _prompt(self) -> Blocks:
        await self.begun.wait()
        if self._conversation is None:
            raise ToolCallError(self._over or OVER)
        return prompt_of(self._conversation)


def prompt_of(conversation: Conversation) -> Blocks:
    return next(each.blocks for each in conversation.messages if isinstance(each, UserMessage))


async def _messages(message: mcp.Message, task: asyncio.Task[Reply]) -> AsyncIterator[bytes | None]:
    count = 0
    while not task.done():
        count += 1
        yield message.progress(count)
        await asyncio.wait({task}, timeout=mcp.PROGRESS_SECONDS)
    yield task.result().body


class MCPListener:
    """Serves seats over MCP on loopback, each at an address that nobody can guess."""

    def __init__(self, model: "ModelDoor | None" = None) -> None:
        self._model = model
        self._seats: dict[str, Seat] = {}
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        settings: Any = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
        settings |= {"timeout_graceful_shutdown": 2, "timeout_keep_alive": 3600}
        self._server = _Uvicorn(uvicorn.Config(self, **settings))
        self._serving: asyncio.Task[None] | None = None

    @contextmanager
    def address(self, seat: Seat) -> Iterator[str]:
        """Serves a seat; yields the path of its URL."""
        self._serving = self._serving or asyncio.ensure_future(self._server.serve([self._socket]))
        path = f"/mcp/{token_urlsafe(32)}"
        self._seats[path] = seat
        try:
            yield path
        finally:
            del self._seats[path]

    async def close(self) -> None:
        """Stops listening, once the answers that are under way have left."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = bytearray(), True
        while more and len(body) <= LARGEST_MESSAGE:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        reply = Reply(413) if more else await self._reply(scope, bytes(body))
        told = {"cache-control": "no-cache", "allow": "POST", **(reply.headers or {})}
        if reply.messages is None:
            told |= {"content-type": "application/json", "content-length": str(len(reply.body))}
        elif reply.headers is None:
            told |= {"content-type": EVENT_STREAM}
        fields = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
        if reply.messages is not None:
            async for each in reply.messages:
                part = mcp.event(each) if reply.headers is None else each
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: dict[str, Any], body: bytes) -> Reply:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if self._model is not None and scope["path"].startswith(self._model.path):
            return await self._model.passed_on(scope, headers, body)
        seat = self._seats.get(scope["path"].rstrip("/"))
        if seat is None or scope["method"] != "POST":
            return Reply(404 if seat is None else 405)
        return await seat.heard(body, headers, streams=EVENT_STREAM in headers.get("accept", "").lower())


class ModelDoor:
    """The model, for programs elsewhere: passes requests on, with the key that they do not get."""

    def __init__(self, base_url: str, key: str) -> None:
        self.token = token_urlsafe(32)
        """Stands for the key."""
        self.path = f"/model/{self.token}"
        self._key, self._transport = key, http_transport(base_url)

    async def passed_on(self, scope: dict[str, Any], headers: dict[str, str], body: bytes) -> Reply:
        path = scope["raw_path"].decode().removeprefix(self.path)
        target = f"{path}?{scope['query_string'].decode()}".rstrip("?")
        told = {name: value.replace(self.token, self._key) for name, value in _kept(headers).items()}
        try:
            response = await self._transport.send(scope["method"], target, told, body or None)
        except TransportError as error:
            return Reply(502, str(error).encode())
        return Reply(response.status, messages=response.body, headers=_kept(response.headers))

    async def close(self) -> None:
        await self._transport.close()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves signals to its process."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
