"""Seat: a place at an episode for whoever plays it over MCP, and the address on loopback where it is."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from itertools import takewhile
from secrets import token_urlsafe
from typing import Any

import uvicorn

from ors.client import ToolInvocation
from ors.errors import ToolCallError
from ors.mcp import Episode, HTTPDialogue, Reply
from ors.providers.messages import AgentMessage, ToolMessage, UserMessage
from ors.rollouts.episodes.episode import Conversation
from ors.types import Blocks, JSONObject, ToolOutput, ToolSpec, described

OVER = "The episode is over."
LARGEST_MESSAGE = 16 * 2**20


class Seat:
    """A place at one episode. The driver sees the agent that sits there; MCP clients see the episode.

    Results are handed over without their rewards, so that nothing behind a seat can tell them.
    """

    def __init__(self) -> None:
        self.left = False
        """Whether the driver has heard the last words of an agent that left."""
        self._conversation: Conversation | None = None
        self._tools: Sequence[ToolSpec] = ()
        self._begun = asyncio.Event()
        self._moves: asyncio.Queue[AgentMessage | Exception] = asyncio.Queue()
        self._waiting: dict[str | None, asyncio.Future[ToolMessage]] = {}
        self._calls = 0
        self._over: str | None = None

    # ── What the driver sees ──

    @asynccontextmanager
    async def joining(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[None]:
        """Lets clients see the episode."""
        self._conversation, self._tools = conversation, tools
        self._begun.set()
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
        self._begun.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ToolCallError(why))

    def _hand_over(self) -> None:
        messages = [] if self._conversation is None else self._conversation.messages
        for message in takewhile(lambda each: isinstance(each, ToolMessage), reversed(messages)):
            assert isinstance(message, ToolMessage)
            answer = self._waiting.pop(message.call, None)
            if answer is not None and not answer.done():  # its client may have gone
                answer.set_result(message)

    # ── What MCP clients see ──

    async def list_tools(self, *, terminal: bool = False) -> list[ToolSpec]:
        await self._joined()
        return list(self._tools)

    async def get_prompt(self) -> Blocks:
        return prompt_of(await self._joined())

    async def call_tool(self, tool_name: str, input: JSONObject) -> ToolOutput:
        await self._joined()
        if self._over is not None:
            raise ToolCallError(self._over)
        self._calls += 1
        call = ToolInvocation(tool_name, dict(input), f"call_{self._calls}")
        answer = self._waiting[call.id] = asyncio.get_running_loop().create_future()
        self._moves.put_nowait(AgentMessage(calls=(call,)))
        result = await answer
        if not result.ok:
            raise ToolCallError(described(result.blocks), reason=result.reason)
        return ToolOutput(blocks=result.blocks, finished=result.finished)

    async def _joined(self) -> Conversation:
        await self._begun.wait()
        if self._conversation is None:
            raise ToolCallError(self._over or OVER)
        return self._conversation


def prompt_of(conversation: Conversation) -> Blocks:
    return next(each.blocks for each in conversation.messages if isinstance(each, UserMessage))


class MCPListener:
    """Serves episodes over MCP on loopback, each at an address that nobody can guess."""

    def __init__(self) -> None:
        self._dialogues: dict[str, HTTPDialogue] = {}
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._server = _Uvicorn(
            uvicorn.Config(
                self,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=2,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def address(self, episode: Episode) -> AsyncIterator[str]:
        """Serves an episode; yields its URL."""
        self._serving = self._serving or asyncio.ensure_future(self._server.serve([self._socket]))
        path = f"/mcp/{token_urlsafe(32)}"
        dialogue = self._dialogues[path] = HTTPDialogue(episode)
        try:
            yield f"http://127.0.0.1:{self._socket.getsockname()[1]}{path}"
        finally:
            del self._dialogues[path]
            await dialogue.close()

    async def close(self) -> None:
        """Stops listening, once the answers that are under way have left."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        dialogue, body, more = self._dialogues.get(scope["path"]), b"", True
        while more and len(body) <= LARGEST_MESSAGE:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        reply = Reply(404 if dialogue is None else 413)
        if dialogue is not None and not more:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            reply = await dialogue.reply(scope["method"], headers, body)
        sent = [(name.lower().encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        if not isinstance(reply.body, bytes):
            async for each in reply.body:
                await send({"type": "http.response.body", "body": each, "more_body": True})
        last = reply.body if isinstance(reply.body, bytes) else b""
        await send({"type": "http.response.body", "body": last})


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves signals to its process."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
