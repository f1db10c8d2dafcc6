"""The tools of an MCP server over streamable HTTP, written by hand: both eras, JSON and events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import ors.testing
from ors import Environment, Server, TextBlock
from ors.client import AsyncORS, AsyncSession, ToolCallError
from ors.errors import ServerFailed, ToolFailed
from ors.toolsets import MCPToolset
from tests.support.live_server import serving
from tests.support.mcp_stdio_server import TEXT
from tests.support.scripted_server import Request, accepting, head, read
from tests.toolsets.test_mcp import Plain, having, text

META = "io.modelcontextprotocol/"


@dataclass
class Remote:
    """An MCP server; `modern` ones know no handshake. `fault` is what a call meets."""

    modern: bool = False
    streams: bool = False
    fault: str = ""
    requests: list[Request] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read(reader)) is not None:
                self.requests.append(request)
                writer.write(await self.reply(request))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async def reply(self, request: Request) -> bytes:
        if request.method == "DELETE":
            self.sessions.remove(request.headers["mcp-session-id"])
            return head(200, {}, 0)
        message = request.json()
        if "method" not in message:
            self.replies.append(message)
            return head(202, {}, 0)
        if self.modern:
            return self.modern_reply(request, message)
        if message["method"] == "initialize":
            self.sessions.append(f"s{len(self.sessions)}")
            info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x"}}
            return self.written(message, info, {"Mcp-Session-Id": self.sessions[-1]})
        if request.headers.get("mcp-session-id") not in self.sessions:
            error = {
                "jsonrpc": "2.0",
                "id": "server-error",
                "error": {"code": -32600, "message": "no session"},
            }
            body = json.dumps(error).encode()
            return head(404, {"Content-Type": "application/json"}, len(body)) + body
        assert request.headers["mcp-protocol-version"] == "2025-06-18"
        if "id" not in message:
            return head(202, {}, 0)
        if message["method"] == "tools/call" and self.fault:
            failed: bytes = getattr(self, f"on_{self.fault}")(message)
            return failed
        return self.written(message, self.result(message))

    def modern_reply(self, request: Request, message: Any) -> bytes:
        meta = message["params"].get("_meta", {})
        if meta.get(f"{META}protocolVersion") != "2026-07-28":
            error = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
            return head(400, {"Content-Type": "application/json"}, len(body)) + body
        assert request.headers["mcp-protocol-version"] == "2026-07-28"
        assert request.headers["mcp-method"] == message["method"]
        assert request.headers.get("mcp-name") == message["params"].get("name")
        assert f"{META}clientCapabilities" in meta
        if message["method"] == "server/discover":
            return self.written(message, {"supportedVersions": ["2026-07-28"]})
        return self.written(message, self.result(message))

    def result(self, message: Any) -> Any:
        if message["method"] == "tools/list":
            return {"tools": [{"name": "echo", "description": "Says it.", "inputSchema": TEXT}]}
        given = message["params"]["arguments"]["text"]
        return {"content": [{"type": "text", "text": given}], "isError": given == "wrong"}

    def written(self, message: Any, result: Any, headers: dict[str, str] | None = None) -> bytes:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if not self.streams:
            body = json.dumps(answer).encode()
            return head(200, {"Content-Type": "application/json", **(headers or {})}, len(body)) + body
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "…"}}
        ping = {"jsonrpc": "2.0", "id": f"p{message['id']}", "method": "ping"}
        data = ["", *(json.dumps(each) for each in (note, ping, answer))]
        body = b": hello\n\n" + b"".join(f"id: 1\ndata: {each}\n\n".encode() for each in data)
        kind = {"Content-Type": "text/event-stream; charset=utf-8"}
        return head(200, {**kind, **(headers or {})}, len(body)) + body

    def on_status(self, message: Any) -> bytes:
        return head(503, {"Content-Type": "text/html"}, 4) + b"busy"

    def on_ended_stream(self, message: Any) -> bytes:
        return head(200, {"Content-Type": "text/event-stream"}, 8) + b": hello\n"

    def on_nonsense(self, message: Any) -> bytes:
        return head(200, {"Content-Type": "application/json"}, 5) + b"{nope"

    def on_forgotten(self, message: Any) -> bytes:
        self.sessions.clear()
        error = {"jsonrpc": "2.0", "id": "x", "error": {"code": -32600, "message": "no session"}}
        body = json.dumps(error).encode()
        return head(404, {"Content-Type": "application/json"}, len(body)) + body

    def on_cut(self, message: Any) -> bytes:
        raise ConnectionError


@asynccontextmanager
async def remote(**settings: Any) -> AsyncIterator[Remote]:
    made = Remote(**settings)
    async with accepting(made.serve) as port:
        made.url = f"http://127.0.0.1:{port}/some/mcp?token=abc"
        yield made


@asynccontextmanager
async def opened(url: Any, **more: Any) -> AsyncIterator[AsyncSession]:
    async with ors.testing.session(having(MCPToolset(url=url, **more)), split="train", index=0) as session:
        yield session


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("modern", [False, True])
async def test_both_eras_answer_as_json_and_as_events(modern: bool, streams: bool) -> None:
    async with remote(modern=modern, streams=streams) as server:
        async with opened(server.url) as session:
            assert [spec.name for spec in await session.list_tools()] == ["submit", "echo"]
            assert await text(session, "echo", text="x" * 5_000_000) == "x" * 5_000_000
            with pytest.raises(ToolCallError, match="wrong"):
                await session.call_tool("echo", {"text": "wrong"})
            assert len(server.sessions) == (0 if modern else 1)
        assert server.sessions == []
    assert {request.method for request in server.requests} == ({"POST"} if modern else {"POST", "DELETE"})
    assert {request.path for request in server.requests} == {"/some/mcp?token=abc"}
    assert all(reply["result"] == {} for reply in server.replies)
    assert bool(server.replies) is streams


async def test_each_session_has_a_connection_of_its_own_with_its_headers() -> None:
    def headers(env: Environment) -> dict[str, str]:
        return {"Authorization": f"Bearer {env.secrets['token']}"}

    async with remote() as server:
        served = having(MCPToolset(url=server.url, headers=headers))
        async with ors.testing.client(served) as client:
            environment = client.environment("having")
            for name in ("one", "two"):
                async with environment.session(split="train", index=0, secrets={"token": name}) as session:
                    assert await text(session, "echo", text=name) == name
    told = [request.headers["authorization"] for request in server.requests]
    assert told == ["Bearer one"] * (len(told) // 2) + ["Bearer two"] * (len(told) // 2)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("status", "answered with status 503: b'busy'"),
        ("ended_stream", "ended"),
        ("nonsense", "sent something that is not MCP: '{nope'"),
        ("forgotten", "answered with status 404"),
        ("cut", "was lost: "),
    ],
)
async def test_a_server_that_fails_in_a_call_fails_the_session(fault: str, told: str) -> None:
    async with remote(fault=fault) as server, opened(server.url) as session:
        with pytest.raises(ToolFailed) as failed:
            await session.call_tool("echo", {"text": ""})
        assert f"the MCP server at {server.url[:22]}" in str(failed.value)
        assert told in str(failed.value)
        assert "abc" not in str(failed.value)
        with pytest.raises((ToolFailed, ServerFailed), match="the MCP server"):
            await session.call_tool("submit", {})


async def test_a_server_that_is_not_there_fails_the_setup() -> None:
    async with remote() as server:
        url = server.url
    with pytest.raises(
        ServerFailed, match=r"setup failed: the MCP server at \S+ was lost: .* cannot be reached"
    ):
        async with opened(url) as session:
            await session.list_tools()


async def test_a_session_of_ours_is_a_server_like_others() -> None:
    with serving(Server([Plain])) as url:
        async with (
            AsyncORS(url) as client,
            client.environment("plain").session(split="train", index=0) as inner,
            opened(await inner.mcp_url(), prefix="inner_") as outer,
        ):
            assert [spec.name for spec in await outer.list_tools()] == ["submit", "inner_submit"]
            output = await outer.call_tool("inner_submit", {})
            assert (output.blocks[0], output.reward) == (TextBlock(text="done"), None)
            assert (await inner.score()).rewards == [1.0]
